"""nn.sparse_dense, nn.sparse_add, nn.sparse_transpose: matrices of few elements, by rows (CSR) or rows of blocks (BSR).

    row r of the matrix: for j = indptr[r] .. indptr[r + 1] - 1 the element sparse_data[j] in column indices[j]
    or, where sparse_data has rank 3, the block sparse_data[j] in columns indices[j] * width and on, of rows r * height
    and on; columns that occur twice are added; a row whose end is not behind its start has no elements

    nn.sparse_dense(dense_data, sparse_data, indices, indptr, sparse_lhs=False)
        out = D @ S^T, or with sparse_lhs S @ D^T       D dense, S the matrix
    nn.sparse_add(dense_data, sparse_data, indices, indptr)
        out = D + S                                     of rows of elements
    nn.sparse_transpose(sparse_data, indices, indptr)
        a tuple: data out, indices, indptr of S^T, the elements of each row by their columns; S is square

dense_data: (rows, columns), a number; sparse_data: (elements,) or (blocks, height, width) of its dtype; indices:
(elements,) and indptr: (rows + 1,), int32 or int64 (nn.sparse_transpose: one dtype; sparse_data any dtype). float16 is
computed in float32. Errors: IndexOutOfRange for a start or end outside of 0..elements, a column outside of the matrix,
and in nn.sparse_transpose for an indptr that does not ascend from 0 to the number of elements. Attrs: sparse_lhs.
Source: Relay's nn.sparse_dense, nn.sparse_add and nn.sparse_transpose.
Differs from numpy: scipy has such matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import IndexOutOfRange, ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ACCUMULATED,
    ALL,
    NUMERIC,
    Array,
    Attrs,
    as_compute,
    as_wide,
    dtype_name,
    require_nonempty,
    require_same,
    rounded,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, TupleType, Type

INDICES = ("int32", "int64")


@dataclass(frozen=True, slots=True)
class SparseDenseAttrs(Attrs):
    """sparse_lhs: the sparse matrix stands left."""

    sparse_lhs: bool = False


def _matrix(
    ctx: TypeContext, arg_types: tuple[Type, ...], first: int, ranks: tuple[int, ...]
) -> tuple[TensorType, TensorType, TensorType]:
    """The types of data, indices and indptr, which are the arguments from `first` on."""
    data = tensor_of(ctx, arg_types, first)
    indices, indptr = (tensor_of(ctx, arg_types, first + n, INDICES) for n in (1, 2))
    if len(data.shape) not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise ctx.fail(f"sparse_data must have rank {wanted}, not {len(data.shape)}", first)
    for n, found in ((1, indices), (2, indptr)):
        if len(found.shape) != 1:
            raise ctx.fail(
                f"argument {first + n} must have rank 1, not {len(found.shape)}", first + n
            )
    require_same(ctx, (first, 0, data.shape[0]), (first + 1, 0, indices.shape[0]))
    return data, indices, indptr


def _dense_of(
    ctx: TypeContext, arg_types: tuple[Type, ...], ranks: tuple[int, ...]
) -> tuple[TensorType, TensorType, TensorType]:
    """The types of the dense matrix, of sparse_data and of indptr."""
    dense = tensor_of(ctx, arg_types, 0, NUMERIC)
    if len(dense.shape) != 2:
        raise ctx.fail(f"dense_data must be (rows, columns), not of rank {len(dense.shape)}", 0)
    data, _, indptr = _matrix(ctx, arg_types, 1, ranks)
    same_dtype(ctx, dense, data, 1)
    return dense, data, indptr


def _product(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SparseDenseAttrs) -> Type:
    dense, data, indptr = _dense_of(ctx, arg_types, (1, 3))
    require_nonempty(ctx, 3, 0, indptr.shape[0], "indptr of no rows")
    rows: Dim = dims.sub(indptr.shape[0], 1)
    if len(data.shape) == 3:
        rows = dims.mul(rows, data.shape[1])
        for axis in (1, 2):
            require_nonempty(ctx, 1, axis, data.shape[axis], "a block")
    shape = (rows, dense.shape[0]) if attrs.sparse_lhs else (dense.shape[0], rows)
    return TensorType(shape, dense.dtype)


def _sum(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    dense, _, _ = _dense_of(ctx, arg_types, (1,))
    ctx.require_dim(3, 0, dims.add(dense.shape[0], 1))
    return dense


def _transposed(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    data, indices, indptr = _matrix(ctx, arg_types, 0, (1,))
    if indices.dtype != indptr.dtype:
        raise ctx.fail(f"dtypes differ: {indices.dtype} and {indptr.dtype}; cast one of them", 2)
    require_nonempty(ctx, 2, 0, indptr.shape[0], "indptr of no rows")
    return TupleType((data, TensorType(data.shape, indices.dtype), indptr))


def _check(op: str, what: str, values: Array, size: int) -> None:
    outside = (values < 0) | (values >= size)
    if outside.any():
        raise IndexOutOfRange(f"{op}: {what} {values[outside][0]} is outside of 0..{size - 1}")


def _elements(
    op: str, data: Array, indices: Array, indptr: Array, columns: int
) -> tuple[Array, Array, Array]:
    """(rows, columns, numbers of the elements or blocks) of a matrix with `columns` columns (of blocks)."""
    if len(data) != len(indices):
        raise ShapeMismatch(f"{op}: {len(data)} elements, {len(indices)} indices")
    _check(op, "end of a row", indptr, len(data) + 1)
    spans = [range(a, b) for a, b in zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)]
    numbers = np.asarray([j for span in spans for j in span], "int64")
    rows = np.repeat(np.arange(len(spans)), [len(span) for span in spans])
    _check(op, "column", indices[numbers], columns)
    return rows, indices[numbers].astype("int64"), numbers


def _product_reference(inputs: tuple[Array, ...], attrs: SparseDenseAttrs, result: Type) -> Array:
    dense, data, indices, indptr = inputs
    height, width = data.shape[1:] if data.ndim == 3 else (1, 1)
    out = np.zeros((len(dense), (len(indptr) - 1) * height), as_wide(dense).dtype)
    with np.errstate(all="ignore"):
        if out.size:
            found = _elements("nn.sparse_dense", data, indices, indptr, dense.shape[1] // width)
            blocks = as_wide(data.reshape(-1, height, width))
            for row, column, number in zip(*found, strict=True):
                taken = as_wide(dense[:, column * width : (column + 1) * width])
                out[:, row * height : (row + 1) * height] += taken @ blocks[number].T
        return rounded(np.ascontiguousarray(out.T if attrs.sparse_lhs else out), dtype_name(dense))


def _sum_reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
    dense, data, indices, indptr = inputs
    if len(indptr) != len(dense) + 1:
        raise ShapeMismatch(f"nn.sparse_add: {len(indptr)} ends of {len(dense)} rows")
    out = dense.copy()
    found = _elements("nn.sparse_add", data, indices, indptr, dense.shape[1])
    with np.errstate(all="ignore"):
        for row, column, number in zip(*found, strict=True):
            total = as_compute(out[row, column]) + as_compute(data[number])
            out[row, column] = rounded(total, dtype_name(dense))
    return out


def _transpose_reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> tuple[Array, ...]:
    data, indices, indptr = inputs
    op, size = "nn.sparse_transpose", len(indptr) - 1
    if size < 0 or indptr[0] != 0 or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
        raise IndexOutOfRange(f"{op}: indptr does not ascend from 0 to {len(data)}")
    rows, columns, numbers = _elements(op, data, indices, indptr, size)
    order = np.argsort(columns, kind="stable")
    ends = np.concatenate(([0], np.cumsum(np.bincount(columns, minlength=size))))
    made = (rows[order].astype(indices.dtype), ends[: size + 1].astype(indptr.dtype))
    return (data[numbers[order]], *made)


_ARGS = ("sparse_data", "sparse_indices", "sparse_indptr")
register(
    Op(
        name="nn.sparse_dense",
        args=("dense_data", *_ARGS),
        attrs=SparseDenseAttrs,
        relation=_product,
        reference=_product_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.MAY_FAIL,
        dtypes=(NUMERIC, NUMERIC, INDICES, INDICES),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
register(
    Op(
        name="nn.sparse_add",
        args=("dense_data", *_ARGS),
        relation=_sum,
        reference=_sum_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(NUMERIC, NUMERIC, INDICES, INDICES),
        doc=__doc__,
    )
)
register(
    Op(
        name="nn.sparse_transpose",
        args=_ARGS,
        relation=_transposed,
        reference=_transpose_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(ALL, INDICES, INDICES),
        doc=__doc__,
    )
)
