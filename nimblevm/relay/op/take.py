"""take(data, indices, axis=None, batch_dims=0, mode="clip"): elements or slices of data by index.

    axis a:     out[b.., i.., k.., j..] = data[b.., i.., f(indices[b.., k..]), j..]     b: the first batch_dims axes
    axis None:  out[k..] = flattened data[f(indices[k..])]
    f for an axis of size n:  "clip" min(max(x, 0), n - 1);  "wrap" x mod n (floored);  "fast" x, checked

data: rank >= 1 (any with axis None), any dtype; indices: any integer dtype and shape. Result:
data.shape[:a] + indices.shape[batch_dims:] + data.shape[a + 1:], data's dtype. "fast" raises
IndexOutOfRange for an element that is read with x < 0 or x >= n. The axis must have an element unless there
are no indices. Attrs: batch_dims, axis, mode. Source: Relay's take.
Differs from numpy: clips by default, negative indices too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import IndexOutOfRange
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ALL,
    INTEGERS,
    Array,
    Attrs,
    axis_index,
    product,
    require_nonempty,
    require_same,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type

MODES = ("clip", "wrap", "fast")


@dataclass(frozen=True, slots=True)
class TakeAttrs(Attrs):
    """batch_dims: leading axes that data and indices share. axis: None = flattened. mode: clip, wrap or fast."""

    batch_dims: int = 0
    axis: int | None = None
    mode: str = "clip"


def _batch_dims(ctx: TypeContext, attrs: TakeAttrs, rank: int, axis: int) -> int:
    """batch_dims counted from the front of indices (rank `rank`)."""
    batch = attrs.batch_dims + (rank if attrs.batch_dims < 0 else 0)
    if not 0 <= batch <= min(rank, axis):
        raise ctx.fail(
            f"batch_dims {attrs.batch_dims} must lie in 0..min(rank of indices, axis)", 1
        )
    return batch


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: TakeAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    indices = tensor_of(ctx, arg_types, 1, INTEGERS)
    if attrs.mode not in MODES:
        raise ctx.fail(f"mode must be one of {', '.join(MODES)}, not {attrs.mode!r}")
    reads = product(indices.shape)
    if attrs.axis is None:
        if attrs.batch_dims:
            raise ctx.fail("batch_dims needs an axis")
        for at, size in enumerate(data.shape):
            require_nonempty(ctx, 0, at, size, "take", reads)
        return TensorType(indices.shape, data.dtype)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    batch = _batch_dims(ctx, attrs, len(indices.shape), axis)
    shape: list[Dim] = list(data.shape[:axis])
    for at in range(batch):
        shape[at] = require_same(ctx, (0, at, data.shape[at]), (1, at, indices.shape[at]))
    require_nonempty(ctx, 0, axis, data.shape[axis], "take", reads)
    return TensorType((*shape, *indices.shape[batch:], *data.shape[axis + 1 :]), data.dtype)


def _positions(indices: Array, size: int, mode: str) -> Array:
    """Indices as int64 positions within an axis of `size` elements."""
    if mode == "fast":
        wrong = (indices < 0) | (indices >= size)
        if np.any(wrong):
            raise IndexOutOfRange(
                f"take: index {indices[wrong].flat[0]} is outside an axis of size {size}"
            )
    if size == 0:
        if indices.size:
            raise IndexOutOfRange("take: an element of an empty axis was asked for")
        return indices.astype("int64")
    # uint64 is the one dtype that int64 does not hold.
    wide = indices if indices.dtype == np.uint64 else indices.astype("int64")
    if mode == "wrap":
        return np.asarray(np.mod(wide, wide.dtype.type(size))).astype("int64")
    return np.asarray(np.clip(wide, 0, size - 1)).astype("int64")


def _reference(inputs: tuple[Array, ...], attrs: TakeAttrs, result: Type) -> Array:
    data, indices = inputs
    if attrs.axis is None:
        return np.asarray(data.reshape(-1)[_positions(indices, data.size, attrs.mode)])
    axis = attrs.axis % data.ndim
    batch = attrs.batch_dims + (indices.ndim if attrs.batch_dims < 0 else 0)
    shape = data.shape[:axis] + indices.shape[batch:] + data.shape[axis + 1 :]
    if 0 in shape:
        return np.empty(shape, data.dtype)  # nothing is read, no index looked at
    positions = _positions(indices, data.shape[axis], attrs.mode)
    if batch == 0:
        return np.asarray(np.take(data, positions, axis=axis))
    out = np.empty(shape, data.dtype)
    for at in np.ndindex(*data.shape[:batch]):
        out[at] = np.take(data[at], positions[at], axis=axis - batch)
    return out


def _effect(arg_types: tuple[Type, ...], attrs: Any) -> Effect:
    return Effect.MAY_FAIL if attrs.mode == "fast" else Effect.TOTAL


register(
    Op(
        name="take",
        args=("data", "indices"),
        attrs=TakeAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=_effect,
        dtypes=(ALL, INTEGERS),
        doc=__doc__,
    )
)
