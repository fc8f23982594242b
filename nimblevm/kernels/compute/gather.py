"""gather and gather_nd: checked indices, negative ones counted from the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type
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


def operand_of(*tensors: TensorExpr) -> int:
    """The operand that a fault names: the first that is one; computed ones have none of their own."""
    return next((t.storage for t in tensors if t.storage is not None), 0)


def checked(em: Emitter, index: Value, size: Value, operand: int) -> Value:
    """An index as position on an axis of `size` elements, IndexOutOfRange unless -size <= index < size."""
    b = em.b
    wide = b.cast(index, INDEX)
    if index.dtype in ("uint64", "bool") or index.dtype.startswith("uint"):
        # A uint64 beyond int64 turns negative and is refused.
        return b.check_index(wide, size, operand)
    place = b.select(b.compare("lt", wide, b.i64(0)), b.add(wide, size), wide)
    return b.check_index(place, size, operand)


def _gather(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, indices = (single(arg) for arg in args)
    axis = axis_of(attrs.axis, data.rank)
    operand = operand_of(indices, data)

    def at(index: Index) -> Steps:
        found = yield indices, index
        place = checked(em, found, em.dim(data.shape[axis]), operand)
        value = yield data, (*index[:axis], place, *index[axis + 1 :])
        return em.b.keep_check(place, value)

    return TensorExpr(tensor_type(out).shape, data.dtype, at, data.cost + indices.cost + 3)


def _gather_nd(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, indices = (single(arg) for arg in args)
    batch, outer = attrs.batch_dims, indices.rank - 1
    count = data.rank - batch - (len(tensor_type(out).shape) - outer)
    operand = operand_of(indices, data)

    def at(index: Index) -> Steps:
        where = list(index[:batch])
        for number in range(count):
            found = yield indices, (em.b.i64(number), *index[:outer])
            where.append(checked(em, found, em.dim(data.shape[batch + number]), operand))
        value = yield data, (*where, *index[outer:])
        for place in where[batch:]:
            value = em.b.keep_check(place, value)
        return value

    cost = data.cost + count * (indices.cost + 3)
    return TensorExpr(tensor_type(out).shape, data.dtype, at, cost)


register_compute("gather", _gather)
register_compute("gather_nd", _gather_nd)
