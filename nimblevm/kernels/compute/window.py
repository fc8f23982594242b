"""dyn.window: index = start + i * stride, all of them in-dims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.tensor_expr import Emitter, Index, Tensors, moved, register_compute, single


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    b = em.b

    def where(index: Index) -> Index:
        strides = (b.sub(em.dim(u), em.dim(d)) for u, d in zip(attrs.up, attrs.down, strict=True))
        places = zip(attrs.starts, index, strides, strict=True)
        return tuple(b.add(em.dim(start), b.mul(i, stride)) for start, i, stride in places)

    return moved(single(args[0]), tensor_type(out).shape, where)


register_compute("dyn.window", _compute)
