"""relay.nn: matrices of few elements, with TVM's argument order and defaults."""

from __future__ import annotations

from typing import Any

from nimblevm.relay import ir, op
from nimblevm.relay.call import Operand, TupleWrapper, call_op

_NAMES = ("data", "indices", "indptr")


def _parts(matrix: Any) -> tuple[Operand, Operand, Operand]:
    """data, indices and indptr of a named tuple, a scipy matrix or a sequence of three."""
    named = all(hasattr(matrix, name) for name in _NAMES)
    try:
        data, indices, indptr = [getattr(matrix, n) for n in _NAMES] if named else matrix
    except (TypeError, ValueError):
        raise TypeError(
            f"a sparse matrix is (data, indices, indptr), or something with these, not {matrix!r}"
        ) from None
    return data, indices, indptr


def sparse_dense(dense_mat: Operand, sparse_mat: Any, sparse_lhs: bool = False) -> ir.Call:
    """dense_mat @ sparse_mat^T, or sparse_mat @ dense_mat^T with sparse_lhs; sparse_mat: rows, or rows of blocks."""
    attrs = op.sparse.SparseDenseAttrs(sparse_lhs)
    return call_op("nn.sparse_dense", dense_mat, *_parts(sparse_mat), attrs=attrs)


def sparse_add(dense_mat: Operand, sparse_mat: Any) -> ir.Call:
    """dense_mat + sparse_mat."""
    return call_op("nn.sparse_add", dense_mat, *_parts(sparse_mat))


def sparse_transpose(x: Any) -> TupleWrapper:
    """(data, indices, indptr) of a square sparse matrix with rows for columns."""
    return TupleWrapper(call_op("nn.sparse_transpose", *_parts(x)), 3)


__all__ = ["sparse_add", "sparse_dense", "sparse_transpose"]
