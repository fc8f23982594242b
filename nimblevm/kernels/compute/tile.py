"""tile: the index modulo the size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import Emitter, Index, Tensors, moved, register_compute, single
from nimblevm.relay.dims import Dim


def _within(em: Emitter, index: Value, size: Dim, result: Dim) -> Value:
    """index mod size; nothing to do where the axis is not repeated."""
    if size is result or size == result:
        return index
    if isinstance(size, int) and size > 0:
        return em.b.binary("floormod", index, em.b.i64(size))
    # An axis is empty only where no element exists; max tells the code generator so.
    return em.b.binary("floormod", index, em.b.binary("max", em.dim(size), em.b.i64(1)))


def _tile(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    shape = tensor_type(out).shape
    first = len(shape) - data.rank

    def where(index: Index) -> Index:
        inner = zip(index[first:], data.shape, shape[first:], strict=True)
        return tuple(_within(em, i, size, result) for i, size, result in inner)

    return moved(data, shape, where)


register_compute("tile", _tile)
