"""Shapes taken from another tensor, and the sums that undo a broadcast.

    broadcast_to_like(data, broadcast_type)      out[i] = data[i, axes of size 1 at 0], shape of broadcast_type
    slice_like(data, shape_like, axes=None)      out[i] = data[i], sizes of shape_like on `axes` (None: all it has)
    reshape_like(data, shape_like, lhs_begin=0, lhs_end=None, rhs_begin=0, rhs_end=None)
        out = data in the shape data.shape[:lhs_begin] + shape_like.shape[rhs_begin:rhs_end] + data.shape[lhs_end:]
    full_like(data, fill_value)                  out[i] = fill_value, converted; data's shape and dtype
    collapse_sum_like(data, collapse_type), collapse_sum_to(data, shape)
        out[j] = sum of data[i] over all i that a broadcast of the result to data's shape would read from j

The first operand decides the dtype, the second only gives its shape. slice_like's sizes must not exceed
data's; reshape_like keeps the number of elements (negative bounds count from the end); the result of
collapse_sum_* must broadcast to data. Attrs: axes; lhs_begin, lhs_end, rhs_begin, rhs_end; shape (sizes, which
may be dim expressions of dims known there). Source: Relay's transform operators.
Differs from numpy: numpy has no such functions but full_like, whose dtype is data's here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.broadcast_to import require_stretch
from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import (
    ACCUMULATED,
    ALL,
    NUMERIC,
    Array,
    Attrs,
    as_wide,
    axis_list,
    dtype_name,
    product,
    rounded,
    set_axes,
    shape_attr,
    tensor_of,
)
from nimblevm.relay.op.full import concrete_shape
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.reshape import require_count
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class SliceLikeAttrs(Attrs):
    """axes: the axes that are cut; None or () for all that shape_like has."""

    axes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        set_axes(self, "axes")
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class ReshapeLikeAttrs(Attrs):
    """lhs_begin, lhs_end: the axes of data that are replaced. rhs_begin, rhs_end: the axes that replace them."""

    lhs_begin: int = 0
    lhs_end: int | None = None
    rhs_begin: int = 0
    rhs_end: int | None = None


@dataclass(frozen=True, slots=True)
class CollapseSumToAttrs(Attrs):
    """shape: the shape of the result."""

    shape: tuple[Dim, ...]

    def __post_init__(self) -> None:
        set_axes(self, "shape")
        Attrs.__post_init__(self)


def _broadcast(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: object) -> Type:
    data, like = tensor_of(ctx, arg_types, 0), tensor_of(ctx, arg_types, 1)
    require_stretch(ctx, data, like.shape)
    return TensorType(like.shape, data.dtype)


def _slice(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SliceLikeAttrs) -> Type:
    data, like = tensor_of(ctx, arg_types, 0), tensor_of(ctx, arg_types, 1)
    shape = list(data.shape)
    axes = axis_list(ctx, attrs.axes or range(len(like.shape)), len(shape))
    for axis in axes:
        if axis >= len(like.shape):
            raise ctx.fail(f"shape_like has no axis {axis}", 1)
        size = like.shape[axis]
        if size is not shape[axis]:
            ctx.require_dim(0, axis, dims.max_(shape[axis], size))
        shape[axis] = size
    return TensorType(shape, data.dtype)


def _part(ctx: TypeContext, begin: int, end: int | None, rank: int, arg: int) -> tuple[int, int]:
    """A range of axes with negative bounds resolved."""
    first = begin + (rank if begin < 0 else 0)
    last = rank if end is None else end + (rank if end < 0 else 0)
    if not 0 <= first <= last <= rank:
        raise ctx.fail(f"axes {begin}:{end} are no range of a tensor of rank {rank}", arg)
    return first, last


def _reshape(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ReshapeLikeAttrs) -> Type:
    data, like = tensor_of(ctx, arg_types, 0), tensor_of(ctx, arg_types, 1)
    first, last = _part(ctx, attrs.lhs_begin, attrs.lhs_end, len(data.shape), 0)
    start, stop = _part(ctx, attrs.rhs_begin, attrs.rhs_end, len(like.shape), 1)
    shape = (*data.shape[:first], *like.shape[start:stop], *data.shape[last:])
    have, want = product(data.shape), product(shape)
    unknown = [axis for axis in range(start, stop) if not isinstance(like.shape[axis], int)]
    if have is want or have == want:
        pass
    elif unknown and all(isinstance(size, int) for size in data.shape):
        # want == have, written as an equation for an axis of shape_like.
        size = like.shape[unknown[0]]
        ctx.require_dim(1, unknown[0], dims.add(size, dims.sub(want, have)))
    else:
        require_count(ctx, data, range(len(data.shape)), want)
    return TensorType(shape, data.dtype)


def _full(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: object) -> Type:
    data, value = tensor_of(ctx, arg_types, 0), tensor_of(ctx, arg_types, 1)
    if value.shape:
        raise ctx.fail(f"fill_value must be a scalar, not of rank {len(value.shape)}", 1)
    return data


def _collapsed(ctx: TypeContext, data: TensorType, shape: tuple[Dim, ...], arg: int) -> Type:
    """Demands, of argument `arg`, that `shape` broadcasts to data's shape."""
    first = len(data.shape) - len(shape)
    if first < 0:
        raise ctx.fail(f"the result has {len(shape)} axes, more than data's {len(data.shape)}", 0)
    for axis, target in enumerate(shape):
        size = data.shape[first + axis]
        if target == 1 or target is size:
            continue
        if isinstance(target, int):
            ctx.require_dim(0, first + axis, target)
            continue
        # "1 or the size" as one equation, since demands are equations between dims.
        excess = dims.mul(dims.sub(target, 1), dims.sub(target, size))
        if arg == 1:
            ctx.require_dim(1, axis, dims.add(target, excess))
        else:
            ctx.require_dim(0, first + axis, dims.add(size, excess))
    return TensorType(shape, data.dtype)


def _sum_like(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: object) -> Type:
    data, like = tensor_of(ctx, arg_types, 0, NUMERIC), tensor_of(ctx, arg_types, 1)
    return _collapsed(ctx, data, like.shape, 1)


def _sum_to(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: CollapseSumToAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, NUMERIC)
    return _collapsed(ctx, data, shape_attr(ctx, attrs.shape), 0)


def _broadcast_reference(inputs: tuple[Array, ...], attrs: object, result: Type) -> Array:
    try:
        return np.array(np.broadcast_to(inputs[0], inputs[1].shape))
    except ValueError:
        raise ShapeMismatch(
            f"broadcast_to_like: {inputs[0].shape} does not broadcast to {inputs[1].shape}"
        ) from None


def _slice_reference(inputs: tuple[Array, ...], attrs: SliceLikeAttrs, result: Type) -> Array:
    data, like = inputs
    index = [slice(None)] * data.ndim
    for axis in attrs.axes or range(like.ndim):
        at = axis % data.ndim
        if like.shape[at] > data.shape[at]:
            raise ShapeMismatch(f"slice_like: {data.shape} can't be cut to {like.shape}")
        index[at] = slice(like.shape[at])
    return np.array(data[tuple(index)])


def _reshape_reference(inputs: tuple[Array, ...], attrs: ReshapeLikeAttrs, result: Type) -> Array:
    data, like = inputs
    end = data.ndim if attrs.lhs_end is None else attrs.lhs_end % (data.ndim + (attrs.lhs_end >= 0))
    begin = attrs.lhs_begin + (data.ndim if attrs.lhs_begin < 0 else 0)
    middle = like.shape[attrs.rhs_begin : attrs.rhs_end]
    try:
        return data.reshape((*data.shape[:begin], *middle, *data.shape[end:]))
    except ValueError:
        raise ShapeMismatch(f"reshape_like: {data.shape} does not fit into {like.shape}") from None


def _full_reference(inputs: tuple[Array, ...], attrs: object, result: Type) -> Array:
    data, value = inputs
    return np.full(data.shape, convert(value, dtype_name(data)), data.dtype)


def _collapse(name: str, data: Array, shape: tuple[int, ...]) -> Array:
    first = data.ndim - len(shape)
    fits = first >= 0 and all(
        target in (1, size) for target, size in zip(shape, data.shape[first:], strict=True)
    )
    if not fits:
        raise ShapeMismatch(f"{name}: {shape} does not broadcast to {data.shape}")
    axes = tuple(range(first)) + tuple(first + a for a, size in enumerate(shape) if size == 1)
    with np.errstate(all="ignore"):
        total = np.sum(as_wide(data), axis=axes, keepdims=True)
    return rounded(total, dtype_name(data)).reshape(shape)


def _sum_like_reference(inputs: tuple[Array, ...], attrs: object, result: Type) -> Array:
    return _collapse("collapse_sum_like", inputs[0], inputs[1].shape)


def _sum_to_reference(inputs: tuple[Array, ...], attrs: CollapseSumToAttrs, result: Type) -> Array:
    return _collapse("collapse_sum_to", inputs[0], concrete_shape("collapse_sum_to", attrs.shape))


def _register(
    name: str,
    other: str,
    relation: Callable[..., Type],
    reference: Callable[..., Any],
    pattern: OpPattern,
    attrs: type | None = None,
) -> None:
    sums = name.startswith("collapse")
    first = NUMERIC if sums else ALL
    register(
        Op(
            name=name,
            args=("data", other) if other else ("data",),
            attrs=attrs,
            relation=relation,
            reference=reference,
            pattern=pattern,
            effect=Effect.TOTAL,
            dtypes=(first, ALL) if other else (first,),
            doc=__doc__ or "",
            views=name == "reshape_like",
            tolerance=ACCUMULATED if sums else {},
        )
    )


_register(
    "broadcast_to_like", "broadcast_type", _broadcast, _broadcast_reference, OpPattern.BROADCAST
)
_register("slice_like", "shape_like", _slice, _slice_reference, OpPattern.INJECTIVE, SliceLikeAttrs)
_register(
    "reshape_like",
    "shape_like",
    _reshape,
    _reshape_reference,
    OpPattern.INJECTIVE,
    ReshapeLikeAttrs,
)
_register("full_like", "fill_value", _full, _full_reference, OpPattern.BROADCAST)
_register(
    "collapse_sum_like", "collapse_type", _sum_like, _sum_like_reference, OpPattern.COMM_REDUCE
)
_register(
    "collapse_sum_to", "", _sum_to, _sum_to_reference, OpPattern.COMM_REDUCE, CollapseSumToAttrs
)
