"""adv_index: checked indices, stretched to the shape that they broadcast to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.compute.gather import checked, operand_of
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    several,
)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, *indices = several(args[0])
    shape = tensor_type(out).shape
    outer = len(shape) - (data.rank - len(indices))

    def at(index: Index) -> Steps:
        where: list[Value] = []
        for axis, tensor in enumerate(indices):
            place = em.broadcast(tensor.shape, shape[:outer], index[:outer])
            found = yield tensor, place
            size = em.dim(data.shape[axis])
            where.append(checked(em, found, size, operand_of(tensor, data)))
        value = yield data, (*where, *index[outer:])
        for checked_index in where:
            value = em.b.keep_check(checked_index, value)
        return value

    cost = data.cost + sum(tensor.cost + 3 for tensor in indices)
    return TensorExpr(shape, data.dtype, at, cost)


register_compute("adv_index", _compute)
