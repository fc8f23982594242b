"""trilu: the distance of column and row against k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.expr import INDEX
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
    data, k = (single(arg) for arg in args)

    def at(index: Index) -> Steps:
        b = em.b
        diagonal = yield k, ()
        value = yield data, index
        distance = b.sub(index[-1], index[-2])
        kept = b.compare("ge" if attrs.upper else "le", distance, b.cast(diagonal, INDEX))
        return b.select(kept, value, b.const(0, data.dtype))

    return TensorExpr(tensor_type(out).shape, data.dtype, at, data.cost + k.cost + 1)


register_compute("trilu", _compute)
