"""matrix_set_diag: a read of the diagonals, guarded by the distance of column and row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import guarded, tensor_type
from nimblevm.kernels.tensor_expr import (
    RECOMPUTE_LIMIT,
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, diagonal = (single(arg) for arg in args)
    rows, columns = data.shape[-2:]

    def at(index: Index) -> Steps:
        b = em.b
        *outer, i, j = index
        k = b.sub(j, i)
        other = yield data, index
        place = b.binary("min", i, j)
        if attrs.k1 == attrs.k2:
            where = (*outer, place)
        else:
            # The length of diagonal k: of the rows from max(-k, 0) on, and of the columns from max(k, 0) on.
            low, high = b.binary("min", k, b.i64(0)), b.binary("max", k, b.i64(0))
            count = b.binary("min", b.add(em.dim(rows), low), b.sub(em.dim(columns), high))
            shift = b.sub(em.dim(diagonal.shape[-1]), count)
            above, below = (
                shift if right else b.i64(0)
                for right in (attrs.super_diag_right_align, attrs.sub_diag_right_align)
            )  # fmt: skip
            shift = b.select(b.compare("ge", k, b.i64(0)), above, below)
            where = (*outer, b.sub(b.i64(attrs.k2), k), b.add(place, shift))
        within = [b.compare("ge", k, b.i64(attrs.k1)), b.compare("le", k, b.i64(attrs.k2))]
        return (yield from guarded(em, index, within, diagonal, where, other))

    cost = data.cost + diagonal.cost + RECOMPUTE_LIMIT + 1
    return TensorExpr(tensor_type(out).shape, data.dtype, at, cost)


register_compute("matrix_set_diag", _compute)
