"""nn.depth_to_space, nn.space_to_depth, nn.space_to_batch_nd, nn.batch_to_space_nd: blocks of space moved.

    nn.depth_to_space(data, block_size, layout="NCHW", mode="DCR")      b = block_size, k a channel of the result
        "DCR"  out[n, k, y, x] = data[n, ((y mod b) * b + x mod b) * channels + k, y div b, x div b]
        "CRD"  out[n, k, y, x] = data[n, (k * b + y mod b) * b + x mod b, y div b, x div b]
    nn.space_to_depth(data, block_size, layout="NCHW")                  undoes "DCR"
        out[n, (i * b + j) * channels + k, y, x] = data[n, k, y * b + i, x * b + j]
    nn.space_to_batch_nd(data, block_shape, paddings, pad_value=0)      axes 1, 2, .. as block_shape has entries
        out[(i * b1 + j) * batch + n, y, x, ..] = padded[n, y * b0 + i, x * b1 + j, ..]
    nn.batch_to_space_nd(data, block_shape, crops)                      undoes it, and cuts the crops off

data: any dtype; depth_to_space and space_to_depth: rank 4, N, C, H and W in the order that layout says. A size must be
a multiple of what divides it: channels of b * b, height and width of b, the padded axes of block_shape, the batch of
block_shape's product. Result: data's dtype. Attrs: block_size, layout, mode; block_shape, paddings ((before, after) an
axis), pad_value (converted to data's dtype); block_shape, crops. Source: Relay's nn.py (TOPI).
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import (
    ALL,
    Array,
    Attrs,
    dtype_name,
    require_multiple,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import (
    arranged,
    check_rank,
    layout_of,
    numbers,
    require_at_least,
    to_order,
)
from nimblevm.relay.types import TensorType, Type

MODES = ("DCR", "CRD")
LARGEST = 2**15
"""Blocks are smaller, so that their product is no number that overflows."""


@dataclass(frozen=True, slots=True)
class DepthToSpaceAttrs(Attrs):
    """block_size: of the square. layout: of data and the result. mode: DCR or CRD, the order of the channels."""

    block_size: int
    layout: str = "NCHW"
    mode: str = "DCR"


@dataclass(frozen=True, slots=True)
class SpaceToDepthAttrs(Attrs):
    """block_size: of the square. layout: of data and the result."""

    block_size: int
    layout: str = "NCHW"


@dataclass(frozen=True, slots=True)
class SpaceToBatchNDAttrs(Attrs):
    """block_shape: one size an axis behind the batch. paddings: (before, after) for each. pad_value: what is padded."""

    block_shape: tuple[int, ...]
    paddings: tuple[tuple[int, int], ...]
    pad_value: float = 0.0

    def __post_init__(self) -> None:
        set_axes(self, "block_shape")
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class BatchToSpaceNDAttrs(Attrs):
    """block_shape: one size an axis behind the batch. crops: (before, after) for each."""

    block_shape: tuple[int, ...]
    crops: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        set_axes(self, "block_shape")
        Attrs.__post_init__(self)


def _square(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any
) -> tuple[TensorType, dict[str, Dim]]:
    """Data of an operator with a block_size, and its sizes by letter."""
    data = tensor_of(ctx, arg_types, 0)
    layout_of(ctx, "layout", attrs.layout, "NCHW")
    check_rank(ctx, data, attrs.layout, 0)
    if not 1 <= attrs.block_size < LARGEST:
        raise ctx.fail(f"block_size must be in 1..{LARGEST - 1}, not {attrs.block_size}")
    return data, dict(zip(attrs.layout, data.shape, strict=True))


def _depth_to_space(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DepthToSpaceAttrs
) -> Type:
    data, found = _square(ctx, arg_types, attrs)
    if attrs.mode not in MODES:
        raise ctx.fail(f"mode must be one of {', '.join(MODES)}, not {attrs.mode!r}")
    block = attrs.block_size
    at = attrs.layout.index("C")
    found["C"] = require_multiple(ctx, 0, at, found["C"], block * block, "blocks of channels")
    for letter in "HW":
        found[letter] = dims.mul(found[letter], block)
    return TensorType(arranged(attrs.layout, found), data.dtype)


def _space_to_depth(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SpaceToDepthAttrs
) -> Type:
    data, found = _square(ctx, arg_types, attrs)
    block = attrs.block_size
    for letter in "HW":
        at = attrs.layout.index(letter)
        found[letter] = require_multiple(ctx, 0, at, found[letter], block, "blocks")
    found["C"] = dims.mul(found["C"], block * block)
    return TensorType(arranged(attrs.layout, found), data.dtype)


def _blocks(
    ctx: TypeContext, data: TensorType, shape: tuple[int, ...], name: str, pairs: Any
) -> tuple[tuple[int, int], ...]:
    """The pairs of paddings or crops, checked; and block_shape."""
    numbers(ctx, "block_shape", shape, len(shape), 1)
    if not shape or math.prod(shape) >= LARGEST**2:
        raise ctx.fail(f"block_shape must hold sizes of a product < {LARGEST**2}, not {shape!r}")
    if len(data.shape) <= len(shape):
        raise ctx.fail(
            f"data must have a batch axis and {len(shape)} more, but its rank is {len(data.shape)}",
            0,
        )
    rows = pairs if isinstance(pairs, tuple) else ()
    ok = all(
        isinstance(row, tuple) and len(row) == 2 and min(row) >= 0 and max(row) < 2**31
        for row in rows
    )
    if len(rows) != len(shape) or not ok:
        raise ctx.fail(
            f"{name} must have a pair (before, after) >= 0 for each block, not {pairs!r}"
        )
    return rows


def _space_to_batch(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SpaceToBatchNDAttrs
) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    shape = attrs.block_shape
    sizes = list(data.shape)
    pairs = _blocks(ctx, data, shape, "paddings", attrs.paddings)
    for axis, (block, pads) in enumerate(zip(shape, pairs, strict=True), 1):
        sizes[axis] = require_multiple(ctx, 0, axis, sizes[axis], block, "blocks", sum(pads))
    sizes[0] = dims.mul(sizes[0], math.prod(shape))
    return TensorType(sizes, data.dtype)


def _batch_to_space(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: BatchToSpaceNDAttrs
) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    shape = attrs.block_shape
    sizes = list(data.shape)
    pairs = _blocks(ctx, data, shape, "crops", attrs.crops)
    for axis, (block, crops) in enumerate(zip(shape, pairs, strict=True), 1):
        least = -(-sum(crops) // block)
        require_at_least(ctx, 0, axis, sizes[axis], least, "the crops are larger than the axis")
        sizes[axis] = dims.sub(dims.mul(sizes[axis], block), sum(crops))
    sizes[0] = require_multiple(ctx, 0, 0, sizes[0], math.prod(shape), "blocks of the batch")
    return TensorType(sizes, data.dtype)


def _divided(op: str, size: int, factor: int) -> int:
    if size % factor:
        raise ShapeMismatch(f"{op}: {size} is no multiple of {factor}")
    return size // factor


def _depth_reference(inputs: tuple[Array, ...], attrs: DepthToSpaceAttrs, result: Type) -> Array:
    block = attrs.block_size
    data = to_order(inputs[0], attrs.layout, "NCHW")
    n, c, h, w = data.shape
    part = _divided("nn.depth_to_space", c, block * block)
    if attrs.mode == "DCR":
        split = data.reshape(n, block, block, part, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        split = data.reshape(n, part, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    out = split.reshape(n, part, h * block, w * block)
    return np.ascontiguousarray(to_order(out, "NCHW", attrs.layout))


def _space_reference(inputs: tuple[Array, ...], attrs: SpaceToDepthAttrs, result: Type) -> Array:
    block = attrs.block_size
    data = to_order(inputs[0], attrs.layout, "NCHW")
    n, c, h, w = data.shape
    rows, columns = (_divided("nn.space_to_depth", size, block) for size in (h, w))
    split = data.reshape(n, c, rows, block, columns, block).transpose(0, 3, 5, 1, 2, 4)
    out = split.reshape(n, c * block * block, rows, columns)
    return np.ascontiguousarray(to_order(out, "NCHW", attrs.layout))


def _to_batch_reference(
    inputs: tuple[Array, ...], attrs: SpaceToBatchNDAttrs, result: Type
) -> Array:
    (data,) = inputs
    count = len(attrs.block_shape)
    width = [(0, 0), *attrs.paddings, *[(0, 0)] * (data.ndim - 1 - count)]
    fill = convert(np.asarray(attrs.pad_value), dtype_name(data))
    padded = np.pad(data, width, constant_values=fill)
    batch, *sizes = padded.shape
    split: list[int] = [batch]
    for size, block in zip(sizes, attrs.block_shape, strict=False):
        split += [_divided("nn.space_to_batch_nd", size, block), block]
    rest = sizes[count:]
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2)]
    order += range(2 * count + 1, 2 * count + 1 + len(rest))
    moved = padded.reshape(*split, *rest).transpose(order)
    out = (batch * math.prod(attrs.block_shape), *split[1::2], *rest)
    return np.ascontiguousarray(moved.reshape(out))


def _from_batch_reference(
    inputs: tuple[Array, ...], attrs: BatchToSpaceNDAttrs, result: Type
) -> Array:
    (data,) = inputs
    count, shape = len(attrs.block_shape), attrs.block_shape
    batch = _divided("nn.batch_to_space_nd", data.shape[0], math.prod(shape))
    split = data.reshape(*shape, batch, *data.shape[1:])
    order = [count]
    for axis in range(count):
        order += [count + 1 + axis, axis]
    order += range(2 * count + 1, split.ndim)
    whole = [n * b for n, b in zip(data.shape[1:], shape, strict=False)]
    out = split.transpose(order).reshape(batch, *whole, *data.shape[1 + count :])
    for n, crops in zip(whole, attrs.crops, strict=True):
        if n < sum(crops):
            raise ShapeMismatch(f"nn.batch_to_space_nd: crops {crops} of {n} elements")
    cut = [slice(a, n - b) for n, (a, b) in zip(whole, attrs.crops, strict=True)]
    return np.ascontiguousarray(out[(slice(None), *cut)])


for _name, _attrs, _relation, _reference in (
    ("nn.depth_to_space", DepthToSpaceAttrs, _depth_to_space, _depth_reference),
    ("nn.space_to_depth", SpaceToDepthAttrs, _space_to_depth, _space_reference),
    ("nn.space_to_batch_nd", SpaceToBatchNDAttrs, _space_to_batch, _to_batch_reference),
    ("nn.batch_to_space_nd", BatchToSpaceNDAttrs, _batch_to_space, _from_batch_reference),
):
    register(
        Op(
            name=_name,
            args=("data",),
            attrs=_attrs,
            relation=_relation,
            reference=_reference,
            pattern=OpPattern.INJECTIVE,
            effect=Effect.TOTAL,
            dtypes=(ALL,),
            doc=__doc__ or "",
        )
    )
