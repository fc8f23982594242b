"""reshape and its kin: equal leading and trailing axes keep their index; the position between is taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import flat_position, tensor_type, unflattened
from nimblevm.kernels.tensor_expr import Emitter, Index, Tensors, moved, register_compute, single
from nimblevm.relay.dims import Dim


def same_end(a: tuple[Dim, ...], b: tuple[Dim, ...], axes: int = 2) -> bool:
    """Whether two shapes have the same last axes."""
    return len(a) >= axes <= len(b) and all(
        x is y for x, y in zip(a[-axes:], b[-axes:], strict=True)
    )


def reindexed(em: Emitter, source: tuple[Dim, ...], target: tuple[Dim, ...], index: Index) -> Index:
    """The index of a tensor of shape `source` that has the row-major position of `index` in `target`."""
    first = 0
    while first < min(len(source), len(target)) and source[first] is target[first]:
        first += 1
    last = 0
    while last < min(len(source), len(target)) - first and source[-1 - last] is target[-1 - last]:
        last += 1
    end = len(index) - last
    position = flat_position(em, target[first : len(target) - last], index[first:end])
    inside = unflattened(em, source[first : len(source) - last], position)
    return (*index[:first], *inside, *index[end:])


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    source, shape = data.shape, tensor_type(out).shape
    return moved(
        data,
        shape,
        lambda index: reindexed(em, source, shape, index),
        forward=lambda index: reindexed(em, shape, source, index),
        rows=same_end(source, shape),
    )


register_compute("reshape", _compute)
register_compute("contrib_reverse_reshape", _compute)
register_compute("nn.batch_flatten", _compute)

__all__ = ["reindexed", "same_end"]
