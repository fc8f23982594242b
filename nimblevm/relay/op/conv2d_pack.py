"""nn.contrib_conv2d_pack(data, weight): nn.conv2d with a weight in panels of channels, result in NHWC.

    out[n, y, x, o] = sum over r, s, i of weight[o // 16, (r * S + s) * I + i, o % 16]
                          * data[n, y * stride - before + r * dilation, x * stride - before + s * dilation, i]

data (N, H, W, I) or, with data_layout "NCHW", (N, I, H, W), float32 or float64; weight (P, R * S * I, 16) of that
dtype, where (R, S) is kernel_size; result (N, H', W', channels). Elements outside of data count as 0. Attrs: strides,
padding (1 value, one an axis, or all befores and then all afters), dilation, channels (16 (P - 1) < channels <= 16 P),
kernel_size, data_layout, weight_layout ("NC16n": 16 channels of a panel lie side by side, for each element of the
window in turn). A window must fit the padded data. The compiler makes it of nn.conv2d with a constant weight
(compiler/passes/pack_convolutions.py). Source: as nn.conv2d, with the layout of nn.contrib_dense_pack.
Differs from numpy: there is no such function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ACCUMULATED,
    Array,
    Attrs,
    dtype_name,
    rounded,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.dense_pack import DTYPES, LANES, NARROW, panels_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import (
    Window,
    check_rank,
    layout_of,
    numbers,
    padding_of,
    padding_pairs,
    per_axis,
    require_fits,
)
from nimblevm.relay.types import TensorType, Type

LAYOUTS = ("NHWC", "NCHW")


@dataclass(frozen=True, slots=True)
class Conv2DPackAttrs(Attrs):
    """strides, padding, dilation, channels, kernel_size, data_layout ("NHWC" or "NCHW"), weight_layout ("NC16n")."""

    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    channels: int = 1
    kernel_size: tuple[int, ...] = (1, 1)
    data_layout: str = "NHWC"
    weight_layout: str = NARROW


def packed_kernel(weight: Array, layout: str) -> Array:
    """A weight of a convolution over two axes, in a layout of the letters O, I, H, W, as panels (P, H * W * I, 16)."""
    rows = np.transpose(weight, [layout.index(letter) for letter in "OHWI"])
    return panels_of(np.ascontiguousarray(rows.reshape(rows.shape[0], -1)))


def windows(attrs: Conv2DPackAttrs, sizes: tuple[Dim, ...]) -> list[Window]:
    """The windows along height and width, of attributes that are right."""
    two = (per_axis(v, 2) for v in (attrs.kernel_size, attrs.strides, attrs.dilation))
    return [
        Window(size, kernel, stride, dilation, before, after)
        for size, kernel, stride, dilation, (before, after) in zip(
            sizes, *two, padding_pairs(attrs.padding, 2), strict=True
        )
    ]


def operands(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any
) -> tuple[TensorType, TensorType, str]:
    """Data, weight and data_layout, where dtypes, the data's rank, channels, padding and layout are right: what forms
    of convolutions with packed weights have in common.
    """
    data, weight = (tensor_of(ctx, arg_types, index, DTYPES) for index in range(2))
    same_dtype(ctx, data, weight, 1)
    layout = layout_of(ctx, "data_layout", attrs.data_layout, "NCHW")
    if layout not in LAYOUTS:
        raise ctx.fail(f'data_layout must be "NHWC" or "NCHW", not "{layout}"')
    numbers(ctx, "channels", attrs.channels, 1, 0)
    padding_of(ctx, attrs.padding, 2)
    check_rank(ctx, data, layout, 0)
    return data, weight, layout


def image_type(
    ctx: TypeContext, data: TensorType, layout: str, channels: int, found: Sequence[Window]
) -> TensorType:
    """The result (N, H', W', channels), where the windows along height and width fit."""
    for letter, window in zip("HW", found, strict=True):
        require_fits(ctx, 0, layout.index(letter), window)
    return TensorType((data.shape[0], *(w.out for w in found), channels), data.dtype)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Conv2DPackAttrs) -> Type:
    data, weight, layout = operands(ctx, arg_types, attrs)
    if attrs.weight_layout != NARROW:
        raise ctx.fail(f'weight_layout must be "{NARROW}", not "{attrs.weight_layout}"')
    for name in ("strides", "dilation", "kernel_size"):
        numbers(ctx, name, getattr(attrs, name), 2, 1)
    if len(weight.shape) != 3:
        raise ctx.fail(f"weight must have rank 3 (panels, elements of a window, {LANES})", 1)
    ctx.require_dim(1, 2, LANES)
    ctx.require_dim(1, 0, -(-attrs.channels // LANES))
    height, width = per_axis(attrs.kernel_size, 2)
    depth, inner = weight.shape[1], data.shape[layout.index("C")]
    if isinstance(depth, int):
        if depth % (height * width):
            raise ctx.fail(f"axis 1 of size {depth} is no multiple of {height} x {width}", 1)
        each = depth // (height * width)
        ctx.require_dim(0, layout.index("C"), each)
    else:
        ctx.require_dim(1, 1, dims.mul(inner, height * width))
    found = windows(attrs, tuple(data.shape[layout.index(letter)] for letter in "HW"))
    return image_type(ctx, data, layout, attrs.channels, found)


def _reference(inputs: tuple[Array, ...], attrs: Conv2DPackAttrs, result: Type) -> Array:
    data, weight = inputs
    dtype = dtype_name(data)
    if attrs.data_layout == "NCHW":
        data = data.transpose(0, 2, 3, 1)
    found = windows(attrs, data.shape[1:3])
    if any(w.padded < w.reach for w in found):  # type: ignore[operator]
        raise ShapeMismatch(f"nn.contrib_conv2d_pack: the kernel does not fit {data.shape[1:3]}")
    if weight.shape[1] != math.prod(per_axis(attrs.kernel_size, 2)) * data.shape[3]:
        raise ShapeMismatch(
            f"nn.contrib_conv2d_pack: data {data.shape} and weight {weight.shape} differ in the channels"
        )
    padded = np.pad(data, [(0, 0), *((w.before, w.after) for w in found), (0, 0)])
    places = []
    for window in found:
        starts = np.arange(int(window.out)) * window.stride  # type: ignore[arg-type]
        inside = np.arange(int(window.kernel)) * window.dilation  # type: ignore[arg-type]
        places.append(starts[:, None] + inside)
    down, along = places
    parts = padded[:, down[:, None, :, None], along[None, :, None, :]]
    flat = parts.reshape(*parts.shape[:3], weight.shape[1])
    columns = weight.transpose(1, 0, 2).reshape(weight.shape[1], weight.shape[0] * LANES)
    matrix = columns[:, : attrs.channels]
    with np.errstate(all="ignore"):
        return rounded(np.matmul(flat, matrix), dtype)


register(
    Op(
        name="nn.contrib_conv2d_pack",
        args=("data", "weight"),
        attrs=Conv2DPackAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.TOTAL,
        dtypes=(DTYPES,),
        doc=__doc__ or "",
        tolerance=ACCUMULATED,
    )
)
