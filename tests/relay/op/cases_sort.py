"""Cases of the operators that sort, search, select and suppress: ties, NaN, both orders, sizes 0 and 1."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nimblevm.relay.op import (
    get_valid_counts,
    non_max_suppression,
    searchsorted,
    sort,
    topk,
    unique,
    vm,
)
from tests.relay.op.draw import Case, Source, array, flag, pick, shape

AXES = (0, 1, 2, 5, 70)


def values(source: Source, dims: tuple[int, ...], dtype: str) -> np.ndarray:
    """Elements with many equals; floats perhaps with NaN, infinities and zeros of both signs."""
    made = array(source, dims, dtype)
    if flag(source) and dtype != "bool":
        made = (
            (made % np.asarray(3, dtype)).astype(dtype)
            if made.dtype.kind != "f"
            else np.round(made)
        )
    return np.asarray(made)


def _data(source: Source, dtype: str) -> tuple[np.ndarray, int]:
    dims = list(shape(source, 1, sizes=(0, 1, 2, 3)))
    axis = source.integer(-len(dims), len(dims) - 1)
    dims[axis] = pick(source, AXES)
    return values(source, tuple(dims), dtype), axis


def _sort(source: Source, dtype: str) -> Case:
    data, axis = _data(source, dtype)
    return Case((data,), sort.SortAttrs(axis, flag(source)))


def _argsort(source: Source, dtype: str) -> Case:
    data, axis = _data(source, dtype)
    return Case((data,), sort.ArgsortAttrs(axis, flag(source), pick(source, sort.INDEX_DTYPES)))


def _topk(source: Source, dtype: str) -> Case:
    data, axis = _data(source, dtype)
    attrs = topk.TopkAttrs(
        source.integer(min(0, data.shape[axis]), min(data.shape[axis], 9)),
        axis, pick(source, topk.RET_TYPES), flag(source), pick(source, sort.INDEX_DTYPES),
    )  # fmt: skip
    return Case((data,), attrs)


def _dyn_topk(source: Source, dtype: str) -> Case:
    data, axis = _data(source, dtype)
    attrs = topk.DynTopkAttrs(
        axis, pick(source, topk.RET_TYPES), flag(source), pick(source, sort.INDEX_DTYPES)
    )
    k = np.asarray(source.integer(0, min(data.shape[axis], 9)), pick(source, ("int64", "int32")))
    return Case((data, k.reshape((1,)) if flag(source) else k), attrs)


def _searchsorted(source: Source, dtype: str) -> Case:
    attrs = searchsorted.SearchSortedAttrs(flag(source), pick(source, sort.INDEX_DTYPES))
    axis = pick(source, AXES)
    if flag(source):
        rows, dims = values(source, (axis,), dtype), shape(source, 0, 2)
    else:
        lead = shape(source, 1, 2, sizes=(0, 1, 2, 3))
        rows, dims = values(source, (*lead, axis), dtype), (*lead, pick(source, (0, 1, 4)))
    return Case((np.sort(rows, axis=-1), values(source, dims, dtype)), attrs)


def _unique(source: Source, dtype: str) -> Case:
    attrs = unique.UniqueAttrs(flag(source), flag(source))
    return Case((values(source, (pick(source, AXES),), dtype),), attrs)


def _argwhere(source: Source, dtype: str) -> Case:
    return Case((values(source, shape(source), dtype),))


def boxes(source: Source, dtype: str, batch: int, count: int, fields: int) -> np.ndarray:
    """Boxes with class, score and corners in 2..5; some scores and classes negative, many overlaps."""
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    made = rng.integers(0, 6, (batch, count, fields)).astype("float64")
    made[..., 0] = rng.integers(-1, 3, (batch, count))
    made[..., 1] = rng.integers(-2, 20, (batch, count)) / 20
    return made.astype(dtype)


def _get_valid_counts(source: Source, dtype: str) -> Case:
    fields = pick(source, (2, 6))
    data = boxes(source, dtype, pick(source, (0, 1, 2)), pick(source, (0, 1, 5, 20)), fields)
    threshold = np.asarray(pick(source, (-1, 0, 0.5, 0.7)), "float32")
    attrs = get_valid_counts.GetValidCountsAttrs(pick(source, (0, -1)), 1)
    return Case((data, threshold.reshape((1,)) if flag(source) else threshold), attrs)


def _non_max_suppression(source: Source, dtype: str) -> Case:
    batch, count = pick(source, (1, 0, 2)), pick(source, (0, 1, 5, 20))
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    valid = rng.integers(0, count + 1, (batch,)).astype("int32")
    indices = rng.integers(-1, 50, (batch, count)).astype("int32")
    limit = np.asarray(pick(source, (-1, 0, 1, 3)), "int32")
    threshold = np.asarray(pick(source, (0.5, 0.1, 0, 1)), "float32")
    attrs = non_max_suppression.NonMaximumSuppressionAttrs(
        flag(source),
        pick(source, (-1, 0, 3)),
        2,
        1,
        pick(source, (0, -1)),
        flag(source),
        flag(source),
    )
    return Case((boxes(source, dtype, batch, count, 6), valid, indices, limit, threshold), attrs)


def _shrink(source: Source, dtype: str) -> Case:
    data = array(source, shape(source, 1), dtype)
    size = source.integer(0, data.shape[0])
    return Case((data,), vm.ShapeAttrs((size, *data.shape[1:])))


def _append(source: Source, dtype: str) -> Case:
    rank = source.integer(1, 4)
    axis = source.integer(0, rank - 1)
    whole = [*[1] * axis, *shape(source, rank - axis, rank - axis)]
    tail = list(whole)
    tail[axis] = source.integer(0, 4)
    return Case(
        (array(source, tuple(whole), dtype), array(source, tuple(tail), dtype)),
        vm.AppendAttrs(axis),
    )


def _rows(source: Source, dtype: str) -> Case:
    rest = shape(source, source.integer(0, 3))
    begin, count, behind = (source.integer(0, 3) for _ in range(3))
    data = array(source, (begin + count + behind, *rest), dtype)
    return Case((data, np.asarray(begin, "int32")), vm.ShapeAttrs((count, *rest)))


def _read_at(source: Source, dtype: str) -> Case:
    data = array(source, (source.integer(1, 5),), dtype)
    return Case((data, np.asarray(source.integer(0, len(data) - 1), "int64")), None)


CASES: dict[str, Callable[[Source, str], Case]] = {
    "sort": _sort, "argsort": _argsort, "topk": _topk, "dyn.topk": _dyn_topk, "searchsorted": _searchsorted,
    "unique": _unique, "argwhere": _argwhere, "vision.get_valid_counts": _get_valid_counts,
    "vision.non_max_suppression": _non_max_suppression, "vm.shrink": _shrink, "vm.append": _append,
    "vm.rows": _rows, "vm.read_at": _read_at,
}  # fmt: skip
