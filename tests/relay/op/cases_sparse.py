"""Cases of sparse matrices and of sparse tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nimblevm.relay.op import sparse
from tests.relay.op.draw import Case, Source, array, flag, pick


def _index_dtype(source: Source) -> str:
    return pick(source, ("int32", "int64"))


def _rows(source: Source, rows: int, columns: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """indices and indptr; columns may occur twice in a row."""
    counts = [source.integer(0, 3) if columns else 0 for _ in range(rows)]
    indices = [source.integer(0, columns - 1) for _ in range(sum(counts))]
    return np.asarray(indices, dtype), np.cumsum([0, *counts]).astype(dtype)


def _sparse_dense(source: Source, dtype: str) -> Case:
    rows, columns, count = (pick(source, sizes) for sizes in ((0, 1, 3), (0, 1, 4), (0, 1, 2, 5)))
    indices, indptr = _rows(source, rows, columns, _index_dtype(source))
    shape: tuple[int, ...] = (len(indices),)
    if flag(source):
        height, width = source.integer(1, 3), source.integer(1, 3)
        shape, columns = (*shape, height, width), columns * width + source.integer(0, width - 1)
    dense = array(source, (count, columns), dtype, special=False)
    data = array(source, shape, dtype, special=False)
    return Case((dense, data, indices, indptr), sparse.SparseDenseAttrs(flag(source)))


def _sparse_add(source: Source, dtype: str) -> Case:
    rows, columns = (pick(source, (0, 1, 3)) for _ in range(2))
    indices, indptr = _rows(source, rows, columns, _index_dtype(source))
    dense = array(source, (rows, columns), dtype)
    return Case((dense, array(source, (len(indices),), dtype), indices, indptr))


def _sparse_transpose(source: Source, dtype: str) -> Case:
    size = pick(source, (0, 1, 2, 5))
    indices, indptr = _rows(source, size, size, _index_dtype(source))
    return Case((array(source, (len(indices),), dtype), indices, indptr))


def _sparse_reshape(source: Source, dtype: str) -> Case:
    before = [pick(source, (1, 2, 3, 4)) for _ in range(source.integer(1, 3))]
    total = int(np.prod(before))
    first = pick(source, [n for n in range(1, total + 1) if total % n == 0])
    after = [first, total // first, *[1] * source.integer(0, 1)]
    if flag(source):
        after[source.integer(0, 1)] = -1
    count = pick(source, (0, 1, 4))
    places = [[source.integer(0, size - 1) for size in before] for _ in range(count)]
    indices = np.asarray(places, dtype).reshape(count, len(before))
    return Case((indices, np.asarray(before, dtype), np.asarray(after, dtype)))


def _sparse_fill_empty_rows(source: Source, dtype: str) -> Case:
    rows, axes = pick(source, (0, 1, 3, 6)), source.integer(1, 3)
    count = pick(source, (0, 1, 4)) if rows else 0
    indices = np.asarray([source.integer(0, 8) for _ in range(count * axes)]).reshape(count, axes)
    indices[:, 0] = sorted(source.integer(0, rows - 1) for _ in range(count))
    kind = _index_dtype(source)
    default = array(source, pick(source, ((), (1,))), kind)
    inputs = (
        indices.astype(dtype),
        array(source, (count,), kind),
        np.full(axes, rows, dtype),
        default,
    )
    return Case(inputs)


CASES: dict[str, Callable[[Source, str], Case]] = {
    "nn.sparse_dense": _sparse_dense, "nn.sparse_add": _sparse_add, "nn.sparse_transpose": _sparse_transpose,
    "sparse_reshape": _sparse_reshape, "sparse_fill_empty_rows": _sparse_fill_empty_rows,
}  # fmt: skip
