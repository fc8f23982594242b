"""nn.dense: a dot product an element; schedule/dense.py tiles it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import known, tensor_type, wide
from nimblevm.kernels.loop_ir import Value
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
    data, weight = (single(arg) for arg in args)
    dtype = tensor_type(out).dtype
    depth = known(data.shape[-1], weight.shape[1])

    def at(index: Index) -> Steps:
        yield from em.cheap(data)
        yield from em.cheap(weight)

        def term(inner: Index) -> Steps:
            x = yield data, (*index[:-1], *inner)
            w = yield weight, (index[-1], *inner)
            return product(em, x, w, dtype)

        total = yield from em.accumulate("add", em.b.const(0, wide(dtype)), index, (depth,), term)
        return em.b.cast(total, dtype)

    return TensorExpr(out.shape, dtype, at, 1 << 20, costly=True)


def product(em: Emitter, x: Value, y: Value, dtype: str) -> Value:
    """x * y, both rounded to the result's dtype first, in the dtype that accumulates."""
    b = em.b
    return b.mul(b.cast(b.cast(x, dtype), wide(dtype)), b.cast(b.cast(y, dtype), wide(dtype)))


register_compute("nn.dense", _compute)
