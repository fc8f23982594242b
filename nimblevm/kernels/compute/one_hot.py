"""one_hot: the place on the new axis against the index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.cast import convert
from nimblevm.kernels.compute.common import axis_of, tensor_type
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
    indices, on, off = (single(arg) for arg in args)
    dtype = tensor_type(out).dtype
    axis = axis_of(attrs.axis, indices.rank + 1)

    def at(index: Index) -> Steps:
        b = em.b
        wanted = yield indices, (*index[:axis], *index[axis + 1 :])
        high = yield on, ()
        low = yield off, ()
        # A uint64 beyond int64 turns negative and matches nothing.
        hit = b.compare("eq", b.cast(wanted, INDEX), index[axis])
        return b.select(hit, convert(em, high, dtype), convert(em, low, dtype))

    cost = indices.cost + on.cost + off.cost + 1
    return TensorExpr(tensor_type(out).shape, dtype, at, cost)


register_compute("one_hot", _compute)
