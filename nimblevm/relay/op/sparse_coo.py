"""sparse_reshape and sparse_fill_empty_rows: tensors of few elements, each with its place as a row of indices.

    sparse_reshape(sparse_indices, prev_shape, new_shape)
        a tuple: indices out[i, :], the place in new_shape of the element that is at sparse_indices[i, :] of prev_shape,
        in row-major order; new_shape, in which -1 has become what is left of prev_shape's elements
        out[i, k] = floor(flat position / (new_shape[k + 1] * new_shape[k + 2] * ..)) mod new_shape[k]; k = 0: no mod
    sparse_fill_empty_rows(sparse_indices, sparse_values, dense_shape, default_value)
        a tuple: indices out[m, :] and values[m], the elements in order and, in each row r < dense_shape[0] without one,
        default_value at (r, 0, 0, ..);  empty[r], 1 where a row had no element, else 0

sparse_indices: (elements, axes); prev_shape: (axes,), new_shape: (new axes,), vectors of known length; all int32 or all
int64. Result: (elements, new axes) and (new axes,) of that dtype; sizes and positions wrap as integers do.
sparse_indices: (elements, axes), rows ascending, axes >= 1, and dense_shape: (axes,), both int32 or both int64;
sparse_values: (elements,), int32 or int64; default_value: one element of its dtype, rank 0 or 1. Result: int64 (m,
axes), (m,) and (dense_shape[0],), m depends on data. Errors: DivisionByZero where a size of new_shape that is divided
by is 0; IndexOutOfRange for a row that is outside of dense_shape or less than the one before; DimOverflow for
dense_shape[0] < 0. Source: Relay's sparse_reshape and sparse_fill_empty_rows (TensorFlow's).
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.errors import DimOverflow, DivisionByZero, IndexOutOfRange, ShapeMismatch
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    Array,
    require_nonempty,
    require_same,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, TupleType, Type

INDICES = ("int32", "int64")


def _places(ctx: TypeContext, arg_types: tuple[Type, ...]) -> TensorType:
    indices = tensor_of(ctx, arg_types, 0, INDICES)
    if len(indices.shape) != 2:
        raise ctx.fail(
            f"sparse_indices must be (elements, axes), not of rank {len(indices.shape)}", 0
        )
    return indices


def _vector(ctx: TypeContext, arg_types: tuple[Type, ...], index: int, like: TensorType) -> Dim:
    """The length of a shape that is given as a tensor of sparse_indices' dtype."""
    found = tensor_of(ctx, arg_types, index, INDICES)
    same_dtype(ctx, like, found, index)
    if len(found.shape) != 1:
        raise ctx.fail(f"argument {index} must have rank 1, not {len(found.shape)}", index)
    return found.shape[0]


def _reshape(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    indices = _places(ctx, arg_types)
    lengths = [_vector(ctx, arg_types, index, indices) for index in (1, 2)]
    for index, length in zip((1, 2), lengths, strict=True):
        if not isinstance(length, int):
            raise ctx.fail(f"argument {index} must have a known length", index)
    ctx.require_dim(0, 1, lengths[0])
    made = TensorType((indices.shape[0], lengths[1]), indices.dtype)
    return TupleType((made, TensorType((lengths[1],), indices.dtype)))


def _fill(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    indices = _places(ctx, arg_types)
    values = tensor_of(ctx, arg_types, 1, INDICES)
    default = tensor_of(ctx, arg_types, 3, INDICES)
    same_dtype(ctx, values, default, 3)
    length = _vector(ctx, arg_types, 2, indices)
    if len(values.shape) != 1:
        raise ctx.fail(f"sparse_values must have rank 1, not {len(values.shape)}", 1)
    if len(default.shape) > 1:
        raise ctx.fail(f"default_value must be one element, not of rank {len(default.shape)}", 3)
    if default.shape:
        ctx.require_dim(3, 0, 1)
    require_same(ctx, (0, 0, indices.shape[0]), (1, 0, values.shape[0]))
    axes = require_same(ctx, (0, 1, indices.shape[1]), (2, 0, length))
    require_nonempty(ctx, 0, 1, axes, "a place")
    shape, rows = ctx.constant(2), None
    if shape is not None and shape.size and shape.flat[0] >= 0:
        rows = int(shape.flat[0])
    count = ctx.fresh_dim()
    empty = ctx.fresh_dim() if rows is None else rows
    kinds = ((count, axes), (count,), (empty,))
    return TupleType(tuple(TensorType(kind, "int64") for kind in kinds))


def _reshape_reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> tuple[Array, ...]:
    indices, before, after = inputs
    if indices.shape[1] != len(before):
        raise ShapeMismatch(f"sparse_reshape: indices {indices.shape} of {len(before)} axes")
    kind = indices.dtype.type
    with np.errstate(all="ignore"):
        known = np.prod(after[after != -1], dtype=kind)
        if (after == -1).any():
            if known == 0:
                raise DivisionByZero("sparse_reshape: -1 beside a size of 0")
            # To zero, as integers divide; wrapped.
            total = int(np.prod(before, dtype=kind))
            left = abs(total) // abs(int(known)) * (1 if (total < 0) == (known < 0) else -1)
            after = np.where(after == -1, np.asarray(left).astype(kind), after)
        flat = np.zeros(len(indices), kind)
        for column, size in zip(indices.T, before, strict=True):
            flat = flat * size + column
        out = np.zeros((len(indices), len(after)), kind)
        if (after[1:] == 0).any() and out.size:
            raise DivisionByZero(f"sparse_reshape: a size is 0 in {after.tolist()}")
        for axis in range(len(after) - 1, 0, -1):
            out[:, axis] = flat % after[axis]
            flat = flat // after[axis]
        if len(after):
            out[:, 0] = flat
    return out, after


def _fill_reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> tuple[Array, ...]:
    indices, values, shape, default = inputs
    if len(indices) != len(values) or indices.shape[1] != len(shape):
        raise ShapeMismatch(
            f"sparse_fill_empty_rows: indices {indices.shape}, {len(values)} values, {len(shape)} axes"
        )
    count, rows = int(shape[0]), indices[:, 0]
    if count < 0:
        raise DimOverflow(f"sparse_fill_empty_rows: dense_shape has {count} rows")
    if len(rows) and (rows[0] < 0 or (np.diff(rows) < 0).any() or rows[-1] >= count):
        raise IndexOutOfRange(f"sparse_fill_empty_rows: rows do not ascend within 0..{count - 1}")
    empty = ~np.isin(np.arange(count), rows)
    added = np.zeros((int(empty.sum()), indices.shape[1]), "int64")
    added[:, 0] = np.flatnonzero(empty)
    places = np.concatenate((indices.astype("int64"), added))
    order = np.argsort(places[:, 0], kind="stable")
    filled = np.full(len(added), default.reshape(()), "int64")
    both = np.concatenate((values.astype("int64"), filled))
    return places[order], both[order], empty.astype("int64")


register(
    Op(
        name="sparse_reshape",
        args=("sparse_indices", "prev_shape", "new_shape"),
        relation=_reshape,
        reference=_reshape_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(INDICES, INDICES, INDICES),
        doc=__doc__,
    )
)
register(
    Op(
        name="sparse_fill_empty_rows",
        args=("sparse_indices", "sparse_values", "dense_shape", "default_value"),
        relation=_fill,
        reference=_fill_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(INDICES, INDICES, INDICES, INDICES),
        doc=__doc__,
        shape_values=(0, 2),
    )
)
