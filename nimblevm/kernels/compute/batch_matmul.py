"""nn.batch_matmul: a dot product an element, per batch element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import known, tensor_type, wide
from nimblevm.kernels.compute.dense import product
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Product,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    a, b = (single(arg) for arg in args)
    shape, dtype = tensor_type(out).shape, out.dtype
    depth = known(a.shape[1 if attrs.transpose_a else 2], b.shape[2 if attrs.transpose_b else 1])

    def left_index(index: Index, inner: Value) -> Index:
        first = em.broadcast((a.shape[0],), shape[:1], index[:1])
        return (*first, inner, index[1]) if attrs.transpose_a else (*first, index[1], inner)

    def right_index(index: Index, inner: Value) -> Index:
        first = em.broadcast((b.shape[0],), shape[:1], index[:1])
        return (*first, index[2], inner) if attrs.transpose_b else (*first, inner, index[2])

    def at(index: Index) -> Steps:
        yield from em.cheap(a)
        yield from em.cheap(b)

        def term(inner: Index) -> Steps:
            x = yield a, left_index(index, inner[0])
            y = yield b, right_index(index, inner[0])
            return product(em, x, y, dtype)

        total = yield from em.accumulate("add", em.b.const(0, wide(dtype)), index, (depth,), term)
        return em.b.cast(total, dtype)

    straight = not attrs.transpose_a and a.shape[0] == shape[0]
    role = Product(a, b, depth, left_index, right_index, straight)
    return TensorExpr(shape, dtype, at, 1 << 20, costly=True, role=role)


register_compute("nn.batch_matmul", _compute)
