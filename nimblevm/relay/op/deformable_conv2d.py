"""nn.deformable_conv2d(data, offset, weight, ...): nn.conv2d whose kernel's places are moved by offsets.

    out[n, o, y, x] = sum over i, r, s of
        weight[o, i, r, s] * v(n, g * I + i, y * stride - before + r * dilation + dy, x likewise)
    (dy, dx) = offset[n, ((d * R + r) * S + s) * 2 + (0, 1), y, x]        d: the deformable group of the channel
    v: linear between the elements around a place, those outside of data being 0; 0 where the place is < 0

data, offset, weight: float, of one dtype, with the rank and axes of nn.conv2d; offset in data's layout, with the
result's height and width and 2 * R * S * deformable_groups channels, R and S being the kernel's sizes, which must be
known (by weight's type or kernel_size). Height and width of data must not be empty. deformable_groups divide data's
channels. Result and everything else: as nn.conv2d. v is found in float32 at least, and rounded to data's dtype. Attrs:
strides, padding, dilation, deformable_groups, groups, channels, kernel_size, data_layout, kernel_layout, out_layout,
out_dtype. Source: Relay's nn.deformable_conv2d.
Differs from numpy: there is none.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.dims import Dim
from nimblevm.relay.op import conv
from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    as_compute,
    require_multiple,
    require_nonempty,
    same_dtype,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.other_context import OtherContext
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, get, register
from nimblevm.relay.op.resize import inside
from nimblevm.relay.op.windows import Window, check_rank, numbers, per_axis, to_order
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class DeformableConv2DAttrs(Attrs):
    """strides, padding, dilation, groups, channels, kernel_size, data_layout, kernel_layout, out_layout, out_dtype: as
    of nn.conv2d. deformable_groups: channels that share offsets.
    """

    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    deformable_groups: int = 1
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = ""

    def __post_init__(self) -> None:
        for name in ("strides", "padding", "dilation", "kernel_size"):
            set_axes(self, name)
        Attrs.__post_init__(self)


def plain(attrs: DeformableConv2DAttrs, **changed: Any) -> Any:
    """The attributes as those of nn.conv2d."""
    named = {
        "strides": attrs.strides, "padding": attrs.padding, "dilation": attrs.dilation, "groups": attrs.groups,
        "channels": attrs.channels, "kernel_size": attrs.kernel_size, "data_layout": attrs.data_layout,
        "kernel_layout": attrs.kernel_layout, "out_layout": attrs.out_layout, "out_dtype": attrs.out_dtype,
    }  # fmt: skip
    return conv.ATTRS["nn.conv2d"](**named | changed)


def kernel_of(attrs: DeformableConv2DAttrs, weight: tuple[Dim, ...]) -> tuple[Dim, Dim]:
    """The kernel's height and width."""
    if attrs.kernel_size is not None:
        height, width = per_axis(attrs.kernel_size, 2)
        return height, width
    found = dict(zip(attrs.kernel_layout, weight, strict=True))
    return found["H"], found["W"]


def windows(
    attrs: DeformableConv2DAttrs, data: tuple[Dim, ...], kernel: tuple[Dim, Dim]
) -> list[Window]:
    """The windows along height and width of data, whose places the offsets move."""
    found = dict(zip(attrs.data_layout, data, strict=True))
    return conv.windows(conv.ROWS["nn.conv2d"], plain(attrs), (found["H"], found["W"]), kernel)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DeformableConv2DAttrs) -> Type:
    data, offset, weight = (tensor_of(ctx, arg_types, index, FLOATS) for index in range(3))
    for index, found in ((1, offset), (2, weight)):
        same_dtype(ctx, data, found, index)
    seen = OtherContext(ctx, lambda arg: 2 if arg == 1 else arg)
    out = get("nn.conv2d").relation(seen, (data, weight), plain(attrs))
    assert isinstance(out, TensorType)
    layout = attrs.data_layout
    check_rank(ctx, offset, layout, 1)
    (groups,) = numbers(ctx, "deformable_groups", attrs.deformable_groups, 1, 1)
    sizes = dict(zip(layout, data.shape, strict=True))
    require_multiple(ctx, 0, layout.index("C"), sizes["C"], groups, "deformable groups")
    for letter in "HW":
        require_nonempty(ctx, 0, layout.index(letter), sizes[letter], "sampling")
    kernel = kernel_of(attrs, weight.shape)
    if not isinstance(kernel[0], int) or not isinstance(kernel[1], int):
        raise ctx.fail("the kernel's height and width must be known: give kernel_size", 2)
    wanted = dict(zip(attrs.out_layout or layout, out.shape, strict=True))
    wanted["C"] = 2 * kernel[0] * kernel[1] * groups
    for axis, letter in enumerate(layout):
        ctx.require_dim(1, axis, wanted[letter])
    return out


def _sampled(data: Array, offset: Array, found: list[Window], groups: int) -> Array:
    """(N, C, H, W) -> (N, C, R, S, rows, columns): what each place of the kernel reads."""
    kind = data.dtype.type
    channels, *space = data.shape[1:]
    rows, columns = offset.shape[2:]
    (r, s), each = (int(w.kernel) for w in found), channels // groups  # type: ignore[arg-type]
    out = np.zeros((*data.shape[:2], r, s, rows, columns), data.dtype)
    for d, i, j in itertools.product(range(groups), range(r), range(s)):
        at = ((d * r + i) * s + j) * 2
        taps, within = [], np.ones((len(data), rows, columns), "bool")
        for k, (w, place, count, size) in enumerate(
            zip(found, (i, j), (rows, columns), space, strict=True)
        ):
            start = np.arange(count) * w.stride + (place * w.dilation - w.before)
            start = start.astype(kind).reshape((-1, 1) if k == 0 else (1, -1))
            x = offset[:, at + k] + start
            within &= ~((x < 0) | (x >= size))
            low = np.floor(x)
            t = x - low
            taps.append(
                [
                    (
                        inside(low + kind(m), size),
                        weight,
                        low + kind(m) < size,
                    )
                    for m, weight in ((0, kind(1) - t), (1, t))
                ]
            )
        for n in range(len(data)):
            image = data[n, d * each : (d + 1) * each]
            value = sum(
                np.where(above[n] & left[n], image[:, y[n], x[n]], kind(0)) * (u[n] * v[n])
                for (y, u, above), (x, v, left) in itertools.product(*taps)
            )
            out[n, d * each : (d + 1) * each, i, j] = np.where(within[n], value, kind(0))
    return out


def _reference(inputs: tuple[Array, ...], attrs: DeformableConv2DAttrs, result: Type) -> Array:
    data, offset = (as_compute(to_order(v, attrs.data_layout, "NCHW")) for v in inputs[:2])
    found = windows(attrs, inputs[0].shape, kernel_of(attrs, inputs[2].shape))
    outs = tuple(w.out for w in found)
    if outs != offset.shape[2:]:
        raise ShapeMismatch(f"nn.deformable_conv2d: offset is for {offset.shape[2:]}, not {outs}")
    with np.errstate(all="ignore"):
        sampled = _sampled(data, offset, found, attrs.deformable_groups)
    n, c, r, s, rows, columns = sampled.shape
    # A convolution without overlap: a window for each place of the result.
    image = sampled.transpose(0, 1, 4, 2, 5, 3).reshape(n, c, rows * r, columns * s)
    other = plain(
        attrs, strides=(r, s), padding=(0, 0), dilation=(1, 1), data_layout="NCHW",
        out_layout=attrs.out_layout or attrs.data_layout,
    )  # fmt: skip
    given = (image.astype(inputs[0].dtype), inputs[2])
    return np.asarray(get("nn.conv2d").reference(given, other, result))


register(
    Op(
        name="nn.deformable_conv2d",
        args=("data", "offset", "weight"),
        attrs=DeformableConv2DAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS, FLOATS, FLOATS),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
