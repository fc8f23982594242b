"""sparse_to_dense(sparse_indices, sparse_values, default_value, output_shape): values at places of a tensor.

    out[sparse_indices[i, :]] = sparse_values[i], or sparse_values if that is a scalar    of equal places the last wins
    out = default_value elsewhere

sparse_indices: int32 or int64 of rank 2, a row a place; of rank 1, places of a vector; or a scalar, one place of a
vector. Places outside of the result are left out. sparse_values: a vector as long, or a scalar, any dtype;
default_value: a scalar, converted to it. Result: output_shape (which may hold dim expressions), sparse_values' dtype.
Attrs: output_shape. Source: Relay's sparse_to_dense. The builder takes output_shape second, as TVM's does.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.dims import Dim
from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import (
    ALL,
    Array,
    Attrs,
    dtype_name,
    require_same,
    set_axes,
    shape_attr,
    tensor_of,
)
from nimblevm.relay.op.full import concrete_shape
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type

INDICES = ("int32", "int64")


@dataclass(frozen=True, slots=True)
class SparseToDenseAttrs(Attrs):
    """output_shape: the result's."""

    output_shape: tuple[Dim, ...]

    def __post_init__(self) -> None:
        set_axes(self, "output_shape")
        Attrs.__post_init__(self)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SparseToDenseAttrs) -> Type:
    indices = tensor_of(ctx, arg_types, 0, INDICES)
    values = tensor_of(ctx, arg_types, 1)
    if tensor_of(ctx, arg_types, 2).shape:
        raise ctx.fail("default_value must be a scalar", 2)
    shape = shape_attr(ctx, attrs.output_shape)
    rank = len(indices.shape)
    if rank > 2:
        raise ctx.fail(f"sparse_indices must have rank 0, 1 or 2, not {rank}", 0)
    if rank == 2:
        ctx.require_dim(0, 1, len(shape))
    elif len(shape) != 1:
        raise ctx.fail(f"sparse_indices of rank {rank} are of a vector, not of {shape!r}", 0)
    if len(values.shape) > min(rank, 1):
        raise ctx.fail(
            f"sparse_values must be a scalar{' or a vector' * bool(rank)}, not of rank "
            f"{len(values.shape)}", 1,
        )  # fmt: skip
    if values.shape:
        require_same(ctx, (0, 0, indices.shape[0]), (1, 0, values.shape[0]))
    return TensorType(shape, values.dtype)


def _reference(inputs: tuple[Array, ...], attrs: SparseToDenseAttrs, result: Type) -> Array:
    indices, values, default = inputs
    shape = concrete_shape("sparse_to_dense", attrs.output_shape)
    out = np.full(shape, convert(default, dtype_name(values)), values.dtype)
    rows = indices.reshape(-1, 1) if indices.ndim < 2 else indices
    for row, value in zip(rows.tolist(), np.broadcast_to(values, len(rows)), strict=True):
        if all(0 <= place < size for place, size in zip(row, shape, strict=True)):
            out[tuple(row)] = value
    return out


register(
    Op(
        name="sparse_to_dense",
        args=("sparse_indices", "sparse_values", "default_value"),
        attrs=SparseToDenseAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(INDICES, ALL, ALL),
        doc=__doc__,
    )
)
