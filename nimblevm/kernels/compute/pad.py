"""nn.pad and nn.mirror_pad: a guarded read, or an index that is brought back into the axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.cast import convert
from nimblevm.kernels.compute.common import guarded, tensor_type, within
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    RECOMPUTE_LIMIT,
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    moved,
    register_compute,
    single,
)
from nimblevm.relay.dims import Dim


def _guarded(
    em: Emitter, data: TensorExpr, value: TensorExpr, width: Any, shape: tuple[Dim, ...]
) -> TensorExpr:
    """data where the index lies inside, else value; an If, since a Select would read outside."""
    padded = [axis for axis, pair in enumerate(width) if pair != (0, 0)]

    def at(index: Index) -> Steps:
        b = em.b
        if not padded:
            return (yield data, index)
        place = [b.sub(i, em.dim(pair[0])) for i, pair in zip(index, width, strict=True)]
        inside = [c for axis in padded for c in within(em, place[axis], em.dim(data.shape[axis]))]
        outside = yield value, ()
        outside = convert(em, outside, data.dtype)
        return (yield from guarded(em, index, inside, data, tuple(place), outside))

    # As for concatenate: a loop that reads it often stores it.
    return TensorExpr(shape, data.dtype, at, data.cost + value.cost + RECOMPUTE_LIMIT + 1)


def _mirrored(em: Emitter, place: Value, size: Value, twice: bool) -> Value:
    """A place beside the axis, mirrored at its end; `twice`: the element at the end occurs twice."""
    b = em.b
    one = b.i64(1 if twice else 0)
    last = b.sub(size, b.i64(1))
    # abs(-1 - j) is j + 1 there: the mirror lies between two elements.
    low = b.select(b.compare("lt", place, b.i64(0)), b.sub(b.sub(b.i64(0), place), one), place)
    back = b.add(b.sub(last, b.sub(low, last)), one)
    return b.select(b.compare("gt", low, last), back, low)


def _moved(
    em: Emitter, data: TensorExpr, width: Any, shape: tuple[Dim, ...], mode: str
) -> TensorExpr:
    def where(index: Index) -> Index:
        b = em.b
        found = list(index)
        for axis, pair in enumerate(width):
            if pair == (0, 0):
                continue
            place, size = b.sub(index[axis], em.dim(pair[0])), em.dim(data.shape[axis])
            if mode == "edge":
                last = b.sub(size, b.i64(1))
                found[axis] = b.binary("min", b.binary("max", place, b.i64(0)), last)
            else:
                found[axis] = _mirrored(em, place, size, mode == "symmetric")
        return tuple(found)

    return moved(data, shape, where)


def _pad(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, value = (single(arg) for arg in args)
    shape = tensor_type(out).shape
    if attrs.pad_mode == "constant":
        return _guarded(em, data, value, attrs.pad_width, shape)
    return _moved(em, data, attrs.pad_width, shape, attrs.pad_mode)


def _mirror_pad(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    shape = tensor_type(out).shape
    return _moved(em, single(args[0]), attrs.pad_width, shape, attrs.mode.lower())


register_compute("nn.pad", _pad)
register_compute("nn.mirror_pad", _mirror_pad)
