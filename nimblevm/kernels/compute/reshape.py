"""reshape, nn.batch_flatten: equal leading and trailing axes keep their index; the position between is taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import flat_position, tensor_type, unflattened
from nimblevm.kernels.tensor_expr import Emitter, Index, Tensors, moved, register_compute, single


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    shape = tensor_type(out).shape
    source = data.shape
    first = 0
    while first < min(len(source), len(shape)) and source[first] is shape[first]:
        first += 1
    last = 0
    while last < min(len(source), len(shape)) - first and source[-1 - last] is shape[-1 - last]:
        last += 1
    inner, target = source[first : len(source) - last], shape[first : len(shape) - last]

    def where(index: Index) -> Index:
        end = len(index) - last
        position = flat_position(em, target, index[first:end])
        return (*index[:first], *unflattened(em, inner, position), *index[end:])

    return moved(data, shape, where)


register_compute("reshape", _compute)
register_compute("nn.batch_flatten", _compute)
