"""nn.fifo_buffer: what the buffer keeps, then data, as concatenate joins them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of
from nimblevm.kernels.compute.concatenate import joined
from nimblevm.kernels.tensor_expr import Emitter, Index, Tensors, moved, register_compute, single
from nimblevm.relay import dims


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, buffer = (single(arg) for arg in args)
    axis = axis_of(attrs.axis, buffer.rank)
    added = data.shape[axis]

    def where(index: Index) -> Index:
        return (*index[:axis], em.b.add(index[axis], em.dim(added)), *index[axis + 1 :])

    left = dims.sub(buffer.shape[axis], added)
    kept = moved(buffer, (*buffer.shape[:axis], left, *buffer.shape[axis + 1 :]), where)
    return joined(em, (kept, data), buffer.shape, axis)


register_compute("nn.fifo_buffer", _compute)
