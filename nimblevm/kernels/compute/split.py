"""split: each part is the operand from an offset on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    TensorExpr,
    Tensors,
    moved,
    register_compute,
    single,
)
from nimblevm.relay.types import TensorType


def _part(em: Emitter, data: TensorExpr, type_: TensorType, axis: int, offset: Value) -> TensorExpr:
    def where(index: Index) -> Index:
        return (*index[:axis], em.b.add(offset, index[axis]), *index[axis + 1 :])

    return moved(data, type_.shape, where)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    axis = axis_of(attrs.axis, data.rank)
    offset = em.b.i64(0)
    parts: list[TensorExpr] = []
    for number, type_ in enumerate(out.fields):
        if not isinstance(attrs.indices_or_sections, int):
            offset = em.b.i64((0, *attrs.indices_or_sections)[number])
        parts.append(_part(em, data, type_, axis, offset))
        offset = em.b.add(offset, em.dim(type_.shape[axis]))
    return tuple(parts)


register_compute("split", _compute)
