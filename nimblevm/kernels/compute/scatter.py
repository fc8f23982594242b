"""scatter_elements, scatter_nd, invert_permutation: a copy, then one write after the other.

The loops over updates are not parallel: equal indices meet in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type, widened
from nimblevm.kernels.compute.gather import checked, operand_of
from nimblevm.kernels.loop_ir import Store, Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Filling,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)
from nimblevm.relay.types import TensorType

_OPERATION = {"add": "add", "mul": "mul", "min": "min", "max": "max"}


def _combined(em: Emitter, mode: str, old: Value, new: Value) -> Value:
    def half(a: Value, b: Value) -> Value:
        return em.b.binary("div", em.b.add(a, b), em.b.const(2, a.dtype))

    def plain(a: Value, b: Value) -> Value:
        return em.b.binary(_OPERATION[mode], a, b)

    return widened(em, old.dtype, half if mode == "mean" else plain)(old, new)


def filled(type_: TensorType, fill: Any) -> TensorExpr:
    """A tensor that is always stored: `fill(buffer)` writes it."""

    def at(index: Index) -> Steps:
        raise TypeError("a scattered tensor is read from its buffer")
        yield

    return TensorExpr(type_.shape, type_.dtype, at, 1 << 20, costly=True, stored=True, fill=fill)


def _copied(em: Emitter, data: TensorExpr, buffer: int) -> Filling:
    with em.loops(data.shape, parallel=True) as index:
        value = yield data, index
        em.emit(Store(buffer, index, value))


def _put(em: Emitter, buffer: int, where: Index, mode: str, value: Value) -> None:
    if mode != "update":
        value = _combined(em, mode, em.b.load(buffer, value.dtype, where), value)
    em.emit(Store(buffer, where, value))


def _elements(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, indices, updates = (single(arg) for arg in args)
    axis = axis_of(attrs.axis, data.rank)

    def fill(buffer: int) -> Filling:
        yield from _copied(em, data, buffer)
        with em.loops(indices.shape) as index:
            found = yield indices, index
            size = em.dim(data.shape[axis])
            place = checked(em, found, size, operand_of(indices, data))
            value = yield updates, index
            _put(em, buffer, (*index[:axis], place, *index[axis + 1 :]), attrs.reduction, value)

    return filled(tensor_type(out), fill)


def _nd(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, indices, updates = (single(arg) for arg in args)
    outer = indices.rank - 1
    count = data.rank - (updates.rank - outer)

    def fill(buffer: int) -> Filling:
        yield from _copied(em, data, buffer)
        with em.loops(updates.shape) as index:
            where: list[Value] = []
            for number in range(count):
                found = yield indices, (em.b.i64(number), *index[:outer])
                size = em.dim(data.shape[number])
                where.append(checked(em, found, size, operand_of(indices, data)))
            value = yield updates, index
            _put(em, buffer, (*where, *index[outer:]), attrs.mode, value)

    return filled(tensor_type(out), fill)


def _permutation(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])

    def fill(buffer: int) -> Filling:
        with em.loops(data.shape, parallel=True) as index:
            em.emit(Store(buffer, index, em.b.const(0, data.dtype)))
        with em.loops(data.shape) as index:
            found = yield data, index
            place = checked(em, found, em.dim(data.shape[0]), operand_of(data))
            em.emit(Store(buffer, (place,), em.b.cast(index[0], data.dtype)))

    return filled(tensor_type(out), fill)


register_compute("scatter_elements", _elements)
register_compute("scatter_nd", _nd)
register_compute("invert_permutation", _permutation)

__all__ = ["filled"]
