"""nn.matmul: a dot product an element; schedule/ tiles it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import known, tensor_type, wide
from nimblevm.kernels.compute.dense import product
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
    a, b = (single(arg) for arg in args)
    dtype = tensor_type(out).dtype
    depth = known(a.shape[-2 if attrs.transpose_a else -1], b.shape[int(attrs.transpose_b)])

    def at(index: Index) -> Steps:
        yield from em.cheap(a)
        yield from em.cheap(b)
        *outer, column = index

        def term(inner: Index) -> Steps:
            row = (*outer[:-1], *inner, outer[-1]) if attrs.transpose_a else (*outer, *inner)
            x = yield a, row
            y = yield b, (column, *inner) if attrs.transpose_b else (*inner, column)
            return product(em, x, y, dtype)

        total = yield from em.accumulate("add", em.b.const(0, wide(dtype)), index, (depth,), term)
        return em.b.cast(total, dtype)

    return TensorExpr(out.shape, dtype, at, 1 << 20, costly=True)


register_compute("nn.matmul", _compute)
