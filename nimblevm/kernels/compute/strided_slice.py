"""strided_slice: index = start + i * stride on the sliced axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.tensor_expr import Emitter, Index, Tensors, moved, register_compute, single
from nimblevm.relay.op.strided_slice import slice_of, start_of


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    axes = range(len(attrs.begin)) if attrs.axes is None else attrs.axes
    starts = {}
    for position, axis in enumerate(axes):
        begin, _, stride = slice_of(attrs, position)
        at = axis % data.rank
        starts[at] = (start_of(data.shape[at], begin, stride), stride)

    def where(index: Index) -> Index:
        found = list(index)
        for axis, (start, stride) in starts.items():
            found[axis] = em.b.add(em.dim(start), em.b.mul(index[axis], em.b.i64(stride)))
        return tuple(found)

    return moved(data, tensor_type(out).shape, where)


register_compute("strided_slice", _compute)
