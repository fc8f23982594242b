"""stack: concatenate of parts that got an axis of size 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type
from nimblevm.kernels.compute.concatenate import joined
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Tensors,
    moved,
    register_compute,
    several,
)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    shape = tensor_type(out).shape
    axis = axis_of(attrs.axis, len(shape))

    def where(index: Index) -> Index:
        return (*index[:axis], *index[axis + 1 :])

    unit = (*shape[:axis], 1, *shape[axis + 1 :])
    return joined(em, tuple(moved(part, unit, where) for part in several(args[0])), shape, axis)


register_compute("stack", _compute)
