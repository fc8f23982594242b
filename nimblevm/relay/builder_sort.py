"""Building programs in Python: operators that sort, search and select, with TVM's argument order and defaults."""

from __future__ import annotations

from nimblevm.relay import ir, op
from nimblevm.relay.call import Operand, TupleWrapper, call_op, plain


def sort(data: Operand, axis: int = -1, is_ascend: bool | int = 1) -> ir.Call:
    """data with one axis in order, stable."""
    return call_op("sort", data, attrs=op.sort.SortAttrs(axis, bool(is_ascend)))


def argsort(
    data: Operand, axis: int = -1, is_ascend: bool | int = 1, dtype: str = "int32"
) -> ir.Call:
    """The places of one axis in order, stable."""
    return call_op("argsort", data, attrs=op.sort.ArgsortAttrs(axis, bool(is_ascend), dtype))


def topk(
    data: Operand,
    k: int | Operand = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int32",
) -> ir.Call | TupleWrapper:
    """The first k elements in order and their places; k may be an expression. "both" gives a pair."""
    if isinstance(k, ir.Constant):
        k = int(k.data.item())
    k = plain(k)
    if isinstance(k, int):
        attrs = op.topk.TopkAttrs(k, axis, ret_type, is_ascend, dtype)
        call = call_op("topk", data, attrs=attrs)
    else:
        dynamic = op.topk.DynTopkAttrs(axis, ret_type, is_ascend, dtype)
        call = call_op("dyn.topk", data, k, attrs=dynamic)
    return TupleWrapper(call, 2) if ret_type == "both" else call


def searchsorted(
    sorted_sequence: Operand, values: Operand, right: bool = False, dtype: str = "int32"
) -> ir.Call:
    """Where values belong in sorted rows."""
    attrs = op.searchsorted.SearchSortedAttrs(right, dtype)
    return call_op("searchsorted", sorted_sequence, values, attrs=attrs)


def unique(data: Operand, is_sorted: bool = True, return_counts: bool = False) -> TupleWrapper:
    """(unique, indices, inverse_indices, num_unique) of a vector, with return_counts also counts."""
    attrs = op.unique.UniqueAttrs(is_sorted, return_counts)
    return TupleWrapper(call_op("unique", data, attrs=attrs), 5 if return_counts else 4)


def argwhere(condition: Operand) -> ir.Call:
    """The coordinates of the elements that are not zero."""
    return call_op("argwhere", condition)


__all__ = ["argsort", "argwhere", "searchsorted", "sort", "topk", "unique"]
