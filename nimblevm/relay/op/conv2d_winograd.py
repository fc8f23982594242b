"""nn.contrib_conv2d_winograd_pack(data, weight): 3 x 3 convolutions by Winograd's F(2 x 2, 3 x 3).

    d = the 4 x 4 elements of padded data from (2 ty, 2 tx) on, of one channel;   v = B' d B,   B' = 1  0 -1  0
                                                                                                0  1  1  0
    m[p, o] = sum over i of v[p, i] * weight[p, o // 16, i, o % 16],  p < 16                    0 -1  1  0
    out[n, 2 ty + (0, 1), 2 tx + (0, 1), o] = A' m[.., o] A,   A' = 1  1  1  0                  0  1  0 -1
                                                                    0  1 -1 -1

data (N, H, W, I) or, with data_layout "NCHW", (N, I, H, W), float32 or float64; weight (16, P, I, 16) of that dtype,
the kernel's transforms G w G' in panels of 16 channels (`transformed`); result (N, H', W', channels). 16 products take
the place of 36. Attrs: padding (1 value, one an axis, or all befores and then all afters), channels
(16 (P - 1) < channels <= 16 P), data_layout. Strides and dilation are 1. The compiler makes it of
nn.contrib_conv2d_pack (compiler/passes/winograd.py). Source: Lavin and Gray 2015 (arXiv 1509.09308).
Differs from numpy: there is no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import Array, Attrs, dtype_name, rounded
from nimblevm.relay.op.conv2d_pack import image_type, operands
from nimblevm.relay.op.dense_pack import DTYPES, LANES
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import Window, padding_pairs
from nimblevm.relay.types import Type

TILE, TERMS = 2, 16
"""Outputs along a side of a tile, and products of a tile."""
OF_DATA = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
OF_KERNEL = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
OF_SUMS = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])


@dataclass(frozen=True, slots=True)
class WinogradAttrs(Attrs):
    """padding, channels, data_layout ("NHWC" or "NCHW")."""

    padding: tuple[int, ...] = (0, 0)
    channels: int = 1
    data_layout: str = "NHWC"


def transformed(panels: Array) -> Array:
    """The weight of this operator from that of nn.contrib_conv2d_pack with a 3 x 3 kernel."""
    count, depth, lanes = panels.shape
    kernel = panels.reshape(count, 3, 3, depth // 9, lanes).astype("float64")
    found = np.einsum("ar,bs,prsil->abpil", OF_KERNEL, OF_KERNEL, kernel)
    return np.ascontiguousarray(found.reshape(TERMS, count, depth // 9, lanes).astype(panels.dtype))


def windows(attrs: WinogradAttrs, sizes: tuple[Dim, ...]) -> list[Window]:
    """The windows along height and width, of attributes that are right."""
    pairs = padding_pairs(attrs.padding, 2)
    return [
        Window(s, 3, 1, 1, before, after) for s, (before, after) in zip(sizes, pairs, strict=True)
    ]


def tiles(window: Window) -> Dim:
    """Tiles along an axis."""
    return dims.floordiv(dims.add(window.out, TILE - 1), TILE)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: WinogradAttrs) -> Type:
    data, weight, layout = operands(ctx, arg_types, attrs)
    if len(weight.shape) != 4:
        raise ctx.fail(f"weight must have rank 4 ({TERMS}, panels, input channels, {LANES})", 1)
    ctx.require_dim(1, 0, TERMS)
    ctx.require_dim(1, 3, LANES)
    ctx.require_dim(1, 1, -(-attrs.channels // LANES))
    inner = data.shape[layout.index("C")]
    if isinstance(weight.shape[2], int):
        ctx.require_dim(0, layout.index("C"), weight.shape[2])
    else:
        ctx.require_dim(1, 2, inner)
    found = windows(attrs, tuple(data.shape[layout.index(letter)] for letter in "HW"))
    return image_type(ctx, data, layout, attrs.channels, found)


def _reference(inputs: tuple[Array, ...], attrs: WinogradAttrs, result: Type) -> Array:
    data, weight = inputs
    dtype = dtype_name(data)
    if attrs.data_layout == "NCHW":
        data = data.transpose(0, 2, 3, 1)
    found = windows(attrs, data.shape[1:3])
    if any(w.padded < 3 for w in found):  # type: ignore[operator]
        raise ShapeMismatch(f"{_NAME}: the kernel does not fit {data.shape[1:3]}")
    if data.shape[3] != weight.shape[2]:
        raise ShapeMismatch(
            f"{_NAME}: data {data.shape} and weight {weight.shape} differ in the channels"
        )
    counts = [int(tiles(w)) for w in found]  # type: ignore[arg-type]
    pads = [
        (w.before, TILE * count + 2 - int(w.size) - w.before)  # type: ignore[arg-type]
        for w, count in zip(found, counts, strict=True)
    ]
    padded = np.pad(data.astype("float64"), [(0, 0), *pads, (0, 0)])
    rows, columns = (np.arange(c)[:, None] * TILE + np.arange(4) for c in counts)
    parts = padded[:, rows[:, None, :, None], columns[None, :, None, :]]
    with np.errstate(all="ignore"):
        v = np.einsum("ar,bs,nyxrsi->abnyxi", OF_DATA, OF_DATA, parts)
        shape = (4, 4, *weight.shape[1:])
        m = np.einsum("abnyxi,abpil->abnyxpl", v, weight.reshape(shape).astype("float64"))
        out = np.einsum("ka,lb,abnyxpt->nykxlpt", OF_SUMS, OF_SUMS, m)
    n, ty, _, tx, _, panels, _ = out.shape
    whole = out.reshape(n, TILE * ty, TILE * tx, panels * LANES)
    sizes = [int(w.out) for w in found]  # type: ignore[arg-type]
    cut = whole[:, : sizes[0], : sizes[1], : attrs.channels]
    return rounded(np.ascontiguousarray(cut), dtype)


TOLERANCE = {"float32": (1e-4, 1e-3), "float64": (1e-10, 1e-12)}
"""Sums and differences of sums: an element's error is one of the largest elements around it."""
_NAME = "nn.contrib_conv2d_winograd_pack"

register(
    Op(
        name=_NAME,
        args=("data", "weight"),
        attrs=WinogradAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.TOTAL,
        dtypes=(DTYPES,),
        doc=__doc__ or "",
        tolerance=TOLERANCE,
    )
)
