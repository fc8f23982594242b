"""take: the index tensor's element, brought into the axis by the mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type, unflattened
from nimblevm.kernels.expr import INDEX
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)


def position(em: Emitter, index: Value, size: Value, mode: str, operand: int) -> Value:
    """An element of the index tensor as int64 position on an axis of `size` > 0 elements."""
    b = em.b
    # uint64 is the one dtype that int64 does not hold: it is brought into range before the cast.
    unsigned = index.dtype == "uint64"
    wide = index if unsigned else b.cast(index, INDEX)
    bound = b.cast(size, wide.dtype)
    if mode == "wrap":
        nonzero = b.binary("max", bound, b.const(1, wide.dtype))
        return b.cast(b.binary("floormod", wide, nonzero), INDEX)
    if mode == "fast":
        # A uint64 beyond int64 turns negative and is refused as well.
        return b.check_index(b.cast(wide, INDEX), size, operand)
    last = b.sub(bound, b.const(1, wide.dtype))
    low = wide if unsigned else b.binary("max", wide, b.i64(0))
    return b.cast(b.binary("min", low, last), INDEX)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, indices = (single(arg) for arg in args)
    # The operand that a fault names; computed indices have none of their own, so it is then the
    # data's.
    operand = next((x.storage for x in (indices, data) if x.storage is not None), 0)
    flat = attrs.axis is None
    axis = 0 if flat else axis_of(attrs.axis, data.rank)
    batch = attrs.batch_dims % indices.rank if attrs.batch_dims < 0 else attrs.batch_dims
    # Result axes: data[:axis], indices[batch:], data[axis + 1:].
    end = axis + indices.rank - batch

    def at(index: Index) -> Steps:
        where = index if flat else (*index[:batch], *index[axis:end])
        found = yield indices, where
        size = em.size(data.shape) if flat else em.dim(data.shape[axis])
        place = position(em, found, size, attrs.mode, operand)
        element = (
            unflattened(em, data.shape, place) if flat else (*index[:axis], place, *index[end:])
        )
        value = yield data, element
        return em.b.keep_check(place, value) if attrs.mode == "fast" else value

    shape = tensor_type(out).shape
    return TensorExpr(shape, data.dtype, at, data.cost + indices.cost + 2)


register_compute("take", _compute)
