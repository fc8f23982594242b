"""ndarray_size: the product of the sizes. simplify makes it an integer; this form is for what it leaves."""

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
    data, dtype = single(args[0]), tensor_type(out).dtype

    def at(index: Index) -> Steps:
        return em.b.cast(em.size(data.shape), dtype)
        yield

    return TensorExpr((), dtype, at)


register_compute("ndarray_size", _compute)
