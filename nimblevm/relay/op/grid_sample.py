"""image.affine_grid and image.grid_sample: places that an affine map gives, and an image sampled at given places.

    image.affine_grid(data, target_shape)
        out[n, k, i, j] = data[n, k, 0] * x + data[n, k, 1] * y + data[n, k, 2]
        x = -1 + j * (2 - 1e-7) / (columns - 1), y = -1 + i * (2 - 1e-7) / (rows - 1); -1 on an axis of size 1
    image.grid_sample(data, grid, method="bilinear", layout="NCHW", padding_mode="zeros", align_corners=True)
        x = (grid[n, 0, i, j] + 1) * (W - 1) / 2 if align_corners, else (grid[n, 0, i, j] + 1) * W / 2 - 0.5; y from
        grid[n, 1], H; with layout NCDHW z from grid[n, 2], D
        out[n, c, i, j] = data[n, c] at (y, x): of the two elements around it along each axis (bilinear), of the four by
        splines of -0.75 (bicubic, NCHW only), or the one at the rounded place, half to even (nearest)
        padding_mode, outside of data: 0 for its elements (zeros); the nearest element (border); the place, or for
        bicubic each element's, mirrored at the edges (at the middles of the edge's elements if align_corners),
        then the nearest (reflection)

data of affine_grid: float, (batch, 2, 3); result (batch, 2, rows, columns) of its dtype. data of grid_sample: float,
the axes behind C not empty; grid: of its dtype, (batch, 2, rows, columns) or (batch, 3, depth, rows, columns). Result:
data's batch and channels with grid's sizes. float16 is computed in float32. Attrs: target_shape (rows, columns);
method, layout, padding_mode, align_corners. Source: Relay's image.affine_grid and grid_sample (TOPI).
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    as_compute,
    dtype_name,
    require_nonempty,
    require_same,
    rounded,
    same_dtype,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.resize import cubic_weights, inside
from nimblevm.relay.op.windows import check_rank, numbers, per_axis
from nimblevm.relay.types import TensorType, Type

METHODS = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
LAYOUTS = ("NCHW", "NCDHW")
ALPHA = -0.75
SPAN = 2.0 - 1e-7
"""From the first place of a grid to its last, as TOPI has it."""


@dataclass(frozen=True, slots=True)
class AffineGridAttrs(Attrs):
    """target_shape: rows and columns of the grid."""

    target_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        set_axes(self, "target_shape")
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class GridSampleAttrs(Attrs):
    """method: bilinear, nearest or bicubic. layout: NCHW or NCDHW. padding_mode: zeros, border or reflection.
    align_corners: -1 and 1 are the middles of the elements at the edges, else the edges themselves.
    """

    method: str = "bilinear"
    layout: str = "NCHW"
    padding_mode: str = "zeros"
    align_corners: bool = True


def _affine(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: AffineGridAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    if len(data.shape) != 3:
        raise ctx.fail(f"data must be (batch, 2, 3), not of rank {len(data.shape)}", 0)
    ctx.require_dim(0, 1, 2)
    ctx.require_dim(0, 2, 3)
    sizes = numbers(ctx, "target_shape", attrs.target_shape, 2, 0)
    return TensorType((data.shape[0], 2, *sizes), data.dtype)


def _sample(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: GridSampleAttrs) -> Type:
    data, grid = (tensor_of(ctx, arg_types, index, FLOATS) for index in (0, 1))
    for name, known in (("method", METHODS), ("layout", LAYOUTS), ("padding_mode", PADDINGS)):
        if getattr(attrs, name) not in known:
            raise ctx.fail(
                f"{name} must be one of {', '.join(known)}, not {getattr(attrs, name)!r}"
            )
    if attrs.method == "bicubic" and attrs.layout != "NCHW":
        raise ctx.fail("bicubic samples images of layout NCHW; bilinear and nearest take NCDHW")
    check_rank(ctx, data, attrs.layout, 0)
    same_dtype(ctx, data, grid, 1)
    if len(grid.shape) != len(data.shape):
        raise ctx.fail(f"grid must have rank {len(data.shape)}, not {len(grid.shape)}", 1)
    ctx.require_dim(1, 1, len(data.shape) - 2)
    batch = require_same(ctx, (0, 0, data.shape[0]), (1, 0, grid.shape[0]))
    for axis, size in enumerate(data.shape[2:], 2):
        require_nonempty(ctx, 0, axis, size, "sampling")
    return TensorType((batch, data.shape[1], *grid.shape[2:]), data.dtype)


def _affine_reference(inputs: tuple[Array, ...], attrs: AffineGridAttrs, result: Type) -> Array:
    (data,) = inputs
    wide = as_compute(data)
    y, x = (
        np.arange(n).astype(wide.dtype) * wide.dtype.type(SPAN / max(n - 1, 1)) - wide.dtype.type(1)
        for n in per_axis(attrs.target_shape, 2)
    )
    parts = [wide[:, :, k, None, None] for k in range(3)]
    with np.errstate(all="ignore"):
        return rounded(parts[0] * x + parts[1] * y[:, None] + parts[2], dtype_name(data))


def _reflected(x: Array, size: int, align: bool) -> Array:
    """Places mirrored at the edges of an axis."""
    kind = x.dtype.type
    span, start = (kind(max(size - 1, 1)), kind(0)) if align else (kind(size), kind(-0.5))
    away = np.abs(start - x)
    times = np.trunc(away / span)
    more = away - times * span
    turned = np.where(np.mod(times, kind(2)) == 0, more + start, span - more + start)
    return np.where((x >= start) & (x <= span + start), x, turned)


def _bounded(x: Array, size: int, attrs: GridSampleAttrs) -> Array:
    """Places as the padding mode has them."""
    kind = x.dtype.type
    if attrs.padding_mode == "zeros":
        return x
    if attrs.padding_mode == "reflection":
        x = _reflected(x, size, attrs.align_corners)
    return np.asarray(np.minimum(np.maximum(x, kind(0)), kind(size - 1)))


def _points(grid: Array, size: int, attrs: GridSampleAttrs) -> list[tuple[Array, Any]]:
    """(place, weight or None for 1) of the elements that make each one of the result, along one axis."""
    kind = grid.dtype.type
    one, half = kind(1), kind(0.5)
    if attrs.align_corners:
        x = (grid + one) * kind(size - 1) * half
    else:
        x = (grid + one) * kind(size) * half - half
    if attrs.method == "bicubic":
        low = np.floor(x)
        weights = cubic_weights(x - low, kind(ALPHA), kind(2), kind(3), one)
        places = [_bounded(low + kind(k), size, attrs) for k in (-1, 0, 1, 2)]
        return list(zip(places, weights, strict=True))
    x = _bounded(x, size, attrs)
    low = np.floor(x)
    t = x - low
    if attrs.method == "bilinear":
        return [(low, one - t), (low + one, t)]
    up = (t > half) | ((t == half) & (np.mod(low, kind(2)) != 0))
    return [(low + np.where(up, one, kind(0)), None)]


def _sample_reference(inputs: tuple[Array, ...], attrs: GridSampleAttrs, result: Type) -> Array:
    data, grid = (as_compute(value) for value in inputs)
    space = data.shape[2:]
    out = np.zeros((*data.shape[:2], *grid.shape[2:]), data.dtype)
    with np.errstate(all="ignore"):
        # x is first in the grid and last in data.
        axes = [
            _points(grid[:, len(space) - 1 - axis], size, attrs) for axis, size in enumerate(space)
        ]
        for points in itertools.product(*axes):
            within = np.ones(grid.shape[:1] + grid.shape[2:], "bool")
            weight: Any = None
            index: list[Array] = []
            for (place, part), size in zip(points, space, strict=True):
                within &= (place >= 0) & (place <= size - 1)
                index.append(inside(place, size))
                if part is not None:
                    weight = part if weight is None else weight * part
            for n in range(len(data)):
                value = data[n][(slice(None), *(at[n] for at in index))]
                value = np.where(within[n], value, data.dtype.type(0))
                out[n] += value if weight is None else value * weight[n]
    return rounded(out, dtype_name(inputs[0]))


register(
    Op(
        name="image.affine_grid",
        args=("data",),
        attrs=AffineGridAttrs,
        relation=_affine,
        reference=_affine_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS,),
        doc=__doc__,
    )
)
register(
    Op(
        name="image.grid_sample",
        args=("data", "grid"),
        attrs=GridSampleAttrs,
        relation=_sample,
        reference=_sample_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS, FLOATS),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
