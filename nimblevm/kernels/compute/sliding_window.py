"""sliding_window: the start of a window and the place in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type
from nimblevm.kernels.tensor_expr import Emitter, Index, Tensors, moved, register_compute, single


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    axis = axis_of(attrs.axis, data.rank)

    def where(index: Index) -> Index:
        moves = zip(index[axis : data.rank], attrs.strides, index[data.rank :], strict=True)
        places = (em.b.add(em.b.mul(i, em.b.i64(step)), inner) for i, step, inner in moves)
        return (*index[:axis], *places)

    return moved(data, tensor_type(out).shape, where)


register_compute("sliding_window", _compute)
