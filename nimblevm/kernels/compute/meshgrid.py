"""meshgrid: each part read along its own axis of the grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    TensorExpr,
    Tensors,
    moved,
    register_compute,
    several,
)
from nimblevm.relay.op.meshgrid import grid_axes


def _grid(part: TensorExpr, shape: Any, axis: int) -> TensorExpr:
    def where(index: Index) -> Index:
        return (index[axis],) if part.rank else ()

    return moved(part, shape, where)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    parts = several(args[0])
    axes = grid_axes(len(parts), attrs.indexing)
    return tuple(
        _grid(part, type_.shape, axis)
        for part, type_, axis in zip(parts, out.fields, axes, strict=True)
    )


register_compute("meshgrid", _compute)
