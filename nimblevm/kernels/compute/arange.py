"""arange: start + i * step; the caller passes the size, which the shape function has found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type, widened
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
    start, _, step = (single(arg) for arg in args)
    dtype = tensor_type(out).dtype

    def at(index: Index) -> Steps:
        first = yield start, ()
        by = yield step, ()

        def body(x: Value, y: Value) -> Value:
            return em.b.add(x, em.b.mul(em.b.cast(index[0], x.dtype), y))

        return widened(em, dtype, body)(first, by)

    return TensorExpr(out.shape, dtype, at, 2)


register_compute("arange", _compute)
