"""cumsum, cumprod: one loop along the axis that keeps the running value and stores it at every element."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from nimblevm.kernels.compute.cast import convert
from nimblevm.kernels.compute.common import axis_of, flat_position, tensor_type, wide
from nimblevm.kernels.loop_ir import Local, SetLocal, Store, Value
from nimblevm.kernels.tensor_expr import (
    Compute,
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)

# name -> (operation, start value)
TABLE = {"cumsum": ("add", 0), "cumprod": ("mul", 1)}


def _step(
    em: Emitter,
    op: str,
    running: Local,
    value: Value,
    store: Callable[[Value], None],
    exclusive: bool,
) -> None:
    """Take one element. It is read before the store: the result may share its storage."""
    taken = em.local(value.dtype, ())
    em.emit(SetLocal(taken, value))
    if exclusive:
        store(running)
        em.emit(SetLocal(running, em.b.binary(op, running, taken)))
    else:
        em.emit(SetLocal(running, em.b.binary(op, running, taken)))
        store(running)


def _compute(name: str) -> Compute:
    op, start = TABLE[name]

    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        data, type_ = single(args[0]), tensor_type(out)
        dtype = wide(type_.dtype)
        axis = None if attrs.axis is None else axis_of(attrs.axis, data.rank)
        kept = () if axis is None else tuple(a for a in range(data.rank) if a != axis)
        along = range(data.rank) if axis is None else (axis,)

        def fill(buffer: int) -> Generator[tuple[TensorExpr, Index], Value, None]:
            yield from em.cheap(data)
            with em.loops([data.shape[a] for a in kept], parallel=True) as outer:
                running = em.local(dtype, outer)
                em.emit(SetLocal(running, em.b.const(start, dtype)))
                with em.loops([data.shape[a] for a in along]) as inner:
                    at = dict(zip(kept, outer, strict=True)) | dict(zip(along, inner, strict=True))
                    index: Index = tuple(at[a] for a in range(data.rank))
                    value = yield data, index
                    # Converted first, as the operator says; then in the wide dtype.
                    value = em.b.cast(convert(em, value, type_.dtype), dtype)
                    place = index if axis is not None else (flat_position(em, data.shape, index),)

                    def store(found: Value, place: Index = place) -> None:
                        em.emit(Store(buffer, place, em.b.cast(found, type_.dtype)))

                    _step(em, op, running, value, store, attrs.exclusive)

        return TensorExpr(
            type_.shape, type_.dtype, _unreachable, 1 << 20, costly=True, stored=True, fill=fill
        )

    return compute


def _unreachable(index: Index) -> Steps:
    raise TypeError("a scan is stored as a whole")
    yield


for _name in TABLE:
    register_compute(_name, _compute(_name))
