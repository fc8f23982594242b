"""shape_of: the sizes, chosen by position. The VM has an instruction for it; this form is for fused groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
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
    data = single(args[0])
    dtype = tensor_type(out).dtype

    def at(index: Index) -> Steps:
        found = em.b.i64(0)
        for axis, dim in enumerate(data.shape):
            here = em.b.compare("eq", index[0], em.b.i64(axis))
            found = em.b.select(here, em.dim(dim), found)
        return em.b.cast(found, dtype)
        yield

    return TensorExpr(out.shape, dtype, at)


register_compute("shape_of", _compute)
