"""searchsorted(sorted_sequence, values, right=False, dtype="int32"): where values belong in sorted rows.

    out[i.., j] = the number of elements of row i.. that are less than values[i.., j], with right: not greater

sorted_sequence: rank >= 1, any dtype, ascending along its last axis in the order of op/sort.py (NaN last). values:
the same dtype; the same rank and leading axes, or any shape if sorted_sequence has rank 1. Result: values' shape,
dtype int32 or int64. Attrs: right, dtype. In a row that is not sorted, where the search by halves ends. Source:
Relay's searchsorted.
Differs from numpy: rows of several sequences; int32 by default.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import (
    ALL,
    Array,
    Attrs,
    require_same,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.sort import check_index_dtype
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class SearchSortedAttrs(Attrs):
    """right: behind equal elements instead of before them. dtype: of the result, int32 or int64."""

    right: bool = False
    dtype: str = "int32"


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SearchSortedAttrs) -> Type:
    rows = tensor_of(ctx, arg_types, 0)
    values = tensor_of(ctx, arg_types, 1)
    same_dtype(ctx, rows, values, 1)
    rank = len(rows.shape)
    if rank == 0:
        raise ctx.fail("sorted_sequence must have an axis", 0)
    if rank > 1:
        if len(values.shape) != rank:
            raise ctx.fail(f"values must have rank {rank}, as sorted_sequence has", 1)
        for axis in range(rank - 1):
            require_same(ctx, (0, axis, rows.shape[axis]), (1, axis, values.shape[axis]))
    return TensorType(values.shape, check_index_dtype(ctx, attrs.dtype))


def _less(a: Array, b: Array) -> Array:
    """a < b, where NaN is the greatest."""
    if a.dtype.kind != "f":
        return np.asarray(a < b)
    return np.asarray((a < b) | (np.isnan(b) & ~np.isnan(a)))


def _reference(inputs: tuple[Array, ...], attrs: SearchSortedAttrs, result: Type) -> Array:
    rows, values = inputs
    low, high = np.zeros(values.shape, "int64"), np.full(values.shape, rows.shape[-1])
    while np.any(
        open_ := low < high
    ):  # numpy's own search ends elsewhere in rows that are not sorted
        middle = np.where(open_, low + (high - low) // 2, 0)
        at = rows[middle] if rows.ndim == 1 else np.take_along_axis(rows, middle, -1)
        behind = ~_less(values, at) if attrs.right else _less(at, values)
        low, high = (
            np.where(open_ & behind, middle + 1, low),
            np.where(open_ & ~behind, middle, high),
        )
    return low.astype(attrs.dtype)


register(
    Op(
        name="searchsorted",
        args=("sorted_sequence", "values"),
        attrs=SearchSortedAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
