"""variance: squares of distances, summed and divided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type, wide
from nimblevm.kernels.compute.reduce import Reduced
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    b = em.b
    data, mean = (single(arg) for arg in args)
    reduced = Reduced(em, data, attrs)
    dtype = wide(data.dtype)

    def at(index: Index) -> Steps:
        nothing = tuple(b.i64(0) for _ in reduced.axes)
        middle = yield mean, reduced.index(index, nothing)

        def term(inner: Index) -> Steps:
            value = yield data, reduced.index(index, inner)
            centred = b.sub(b.cast(value, dtype), b.cast(middle, dtype))
            return b.mul(centred, centred)

        total = yield from em.accumulate("add", b.const(0.0, dtype), index, reduced.extents, term)
        count = em.size(reduced.extents)
        if attrs.unbiased:
            count = b.binary("max", b.sub(count, b.i64(1)), b.i64(0))
        return b.cast(b.binary("div", total, b.cast(count, dtype)), data.dtype)

    return TensorExpr(tensor_type(out).shape, data.dtype, at, 1 << 20, costly=True)


register_compute("variance", _compute)
