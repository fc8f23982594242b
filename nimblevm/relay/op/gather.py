"""gather and gather_nd: elements or slices of data chosen by a tensor of indices, every index checked.

    gather(data, axis, indices)
        out[i.., k, j..] = data[i.., indices[i.., k, j..], j..]                       k along `axis`
    gather_nd(data, indices, batch_dims=0, index_rank=None)        B = batch_dims, M = indices.shape[0]
        out[y.., x..] = data[y[:B].., indices[0, y..], ..., indices[M - 1, y..], x..]

data: any dtype; indices: any integer dtype, of data's rank and sizes but for `axis` (gather), or of shape
(M, y..) with M <= rank of data - B and y[:B] data's first B sizes (gather_nd). Negative indices count from
the end. Result: indices' shape, or y.. and what is left of data's; data's dtype. IndexOutOfRange for an
index outside -n..n - 1. Attrs: axis; batch_dims, index_rank (M, where indices.shape[0] is unknown).
Source: Relay's gather and gather_nd.
Differs from numpy: gather_nd's indices run along the first axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import IndexOutOfRange
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ALL,
    INTEGERS,
    Array,
    Attrs,
    axis_index,
    require_same,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class GatherAttrs(Attrs):
    """axis: the axis of data that indices are about."""

    axis: int


@dataclass(frozen=True, slots=True)
class GatherNDAttrs(Attrs):
    """batch_dims: leading axes that data and the rest of indices share. index_rank: size of indices' first axis."""

    batch_dims: int = 0
    index_rank: int | None = None


def positions(op: str, indices: Array, size: int) -> Array:
    """Indices into an axis of `size` elements as int64 positions; IndexOutOfRange for others."""
    wrong = indices >= size
    if indices.dtype.kind == "i":
        wrong |= indices < -size
    if np.any(wrong):
        raise IndexOutOfRange(
            f"{op}: index {indices[wrong].flat[0]} is outside an axis of size {size}"
        )
    wide = indices.astype("int64")
    return np.asarray(np.where(wide < 0, wide + size, wide))


def tuple_rank(ctx: TypeContext, indices: TensorType, rank: int, named: int | None = None) -> int:
    """The size of indices' first axis: how many leading axes (of `rank`) an index tuple names."""
    if not indices.shape:
        raise ctx.fail("indices must have rank 1 or more", 1)
    found: Dim | None = indices.shape[0] if named is None else named
    if not isinstance(found, int):
        raise ctx.fail("the first axis of indices must be known; give its size as index_rank", 1)
    ctx.require_dim(1, 0, found)
    if not 0 <= found <= rank:
        raise ctx.fail(f"indices name {found} axes, but data has {rank} for them", 1)
    return found


def _gather(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: GatherAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    indices = tensor_of(ctx, arg_types, 1, INTEGERS)
    rank = len(data.shape)
    axis = axis_index(ctx, attrs.axis, rank)
    if len(indices.shape) != rank:
        raise ctx.fail(f"indices must have data's rank {rank}, not {len(indices.shape)}", 1)
    shape = list(indices.shape)
    for at in range(rank):
        if at != axis:
            shape[at] = require_same(ctx, (0, at, data.shape[at]), (1, at, indices.shape[at]))
    return TensorType(shape, data.dtype)


def _gather_nd(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: GatherNDAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    indices = tensor_of(ctx, arg_types, 1, INTEGERS)
    batch = attrs.batch_dims
    if not 0 <= batch <= min(len(data.shape), len(indices.shape) - 1):
        raise ctx.fail(f"batch_dims {batch} must lie in 0..min(rank of data, rank of indices - 1)")
    named = tuple_rank(ctx, indices, len(data.shape) - batch, attrs.index_rank)
    shape = list(indices.shape[1:])
    for at in range(batch):
        shape[at] = require_same(ctx, (0, at, data.shape[at]), (1, at + 1, indices.shape[at + 1]))
    return TensorType((*shape, *data.shape[batch + named :]), data.dtype)


def _gather_reference(inputs: tuple[Array, ...], attrs: GatherAttrs, result: Type) -> Array:
    data, indices = inputs
    axis = attrs.axis % data.ndim
    return np.take_along_axis(data, positions("gather", indices, data.shape[axis]), axis)


def _gather_nd_reference(inputs: tuple[Array, ...], attrs: GatherNDAttrs, result: Type) -> Array:
    data, indices = inputs
    batch, rest = attrs.batch_dims, indices.shape[1:]
    left = data.shape[batch + len(indices) :]
    if 0 in (*rest, *left):
        # An index that no element of the result reads is not looked at.
        return np.empty((*rest, *left), data.dtype)
    places: list[Array] = list(np.indices(rest, sparse=True)[:batch])
    for number, part in enumerate(indices):
        places.append(positions("gather_nd", part, data.shape[batch + number]))
    if not places:
        return np.array(np.broadcast_to(data, (*rest, *data.shape)))
    return np.array(data[tuple(np.broadcast_to(p, rest) for p in places)])


register(
    Op(
        name="gather",
        args=("data", "indices"),
        attrs=GatherAttrs,
        relation=_gather,
        reference=_gather_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.MAY_FAIL,
        dtypes=(ALL, INTEGERS),
        doc=__doc__,
    )
)
register(
    Op(
        name="gather_nd",
        args=("data", "indices"),
        attrs=GatherNDAttrs,
        relation=_gather_nd,
        reference=_gather_nd_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.MAY_FAIL,
        dtypes=(ALL, INTEGERS),
        doc=__doc__,
    )
)
