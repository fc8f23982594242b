"""vision.roi_align and vision.roi_pool: a grid of values for each region of an image.

    vision.roi_align(data, rois, pooled_size, spatial_scale, sample_ratio=-1, layout="NCHW", mode="avg")
        a region: from (x1, y1) to (x2, y2), times spatial_scale, at least 1 long and wide; bins of size / pooled_size
        out[r, c, i, j] = mean ("avg") or greatest ("max") of n * n places in bin (i, j), data's linear value at
            (y1 + (i + (k + 0.5) / n) * bin, x likewise), 0 where that is below -1 or above the size of the axis
        n: sample_ratio, or the least integer >= the bin's size where sample_ratio <= 0, along each axis
    vision.roi_pool(data, rois, pooled_size, spatial_scale, layout="NCHW")
        a region: corners times spatial_scale, rounded, the last row and column included, at least one of each
        out[r, c, i, j] = greatest element of bin (i, j), from floor to ceil of its edges within data; 0 if it has none

data: float, rank 4, N, C, H and W as layout says; H and W not empty. rois: (regions, 5) of data's dtype, each (number
in the batch, x1, y1, x2, y2). Result: (regions, C, pooled sizes) in the order of layout, data's dtype. float16 is
computed in float32. Errors: IndexOutOfRange for a number outside of the batch, and for n >= 16,384. Attrs: pooled_size
(height, width), spatial_scale, sample_ratio, layout, mode. Source: Relay's vision.roi_align and roi_pool (TOPI).
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import IndexOutOfRange
from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    as_compute,
    dtype_name,
    require_nonempty,
    rounded,
    same_dtype,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import (
    arranged,
    check_rank,
    layout_of,
    numbers,
    per_axis,
    to_order,
)
from nimblevm.relay.types import TensorType, Type

MOST_SAMPLES = 2**14
"""A bin has fewer places along an axis: no region makes a kernel that does not end."""
EPSILON = 1e-5
"""What edges of bins are moved inwards by before they are rounded, as TOPI does."""


@dataclass(frozen=True, slots=True)
class ROIAlignAttrs(Attrs):
    """pooled_size: bins along H and W. spatial_scale: of the corners. sample_ratio: places a bin along each axis, <= 0:
    as many as it has elements. layout: data's. mode: avg or max.
    """

    pooled_size: tuple[int, ...]
    spatial_scale: float
    sample_ratio: int = -1
    layout: str = "NCHW"
    mode: str = "avg"

    def __post_init__(self) -> None:
        set_axes(self, "pooled_size")
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class ROIPoolAttrs(Attrs):
    """pooled_size: bins along H and W. spatial_scale: of the corners. layout: data's."""

    pooled_size: tuple[int, ...]
    spatial_scale: float
    layout: str = "NCHW"

    def __post_init__(self) -> None:
        set_axes(self, "pooled_size")
        Attrs.__post_init__(self)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    data, rois = (tensor_of(ctx, arg_types, index, FLOATS) for index in (0, 1))
    layout = layout_of(ctx, "layout", attrs.layout, "NCHW")
    check_rank(ctx, data, layout, 0)
    same_dtype(ctx, data, rois, 1)
    if len(rois.shape) != 2:
        raise ctx.fail(f"rois must be (regions, 5), not of rank {len(rois.shape)}", 1)
    ctx.require_dim(1, 1, 5)
    height, width = numbers(ctx, "pooled_size", attrs.pooled_size, 2, 1)
    if isinstance(attrs, ROIAlignAttrs):
        if attrs.mode not in ("avg", "max"):
            raise ctx.fail(f"mode must be avg or max, not {attrs.mode!r}")
        if attrs.sample_ratio >= MOST_SAMPLES:
            raise ctx.fail(f"sample_ratio must be < {MOST_SAMPLES}, not {attrs.sample_ratio}")
    found = dict(zip(layout, data.shape, strict=True))
    for letter in "HW":
        require_nonempty(ctx, 0, layout.index(letter), found[letter], "a region of data")
    sizes = {"N": rois.shape[0], "C": found["C"], "H": height, "W": width}
    return TensorType(arranged(layout, sizes), data.dtype)


def _image(op: str, data: Array, roi: Array) -> Array:
    """The (C, H, W) that a region is of."""
    number = int(convert(roi[0], "int64"))
    if not 0 <= number < data.shape[0]:
        raise IndexOutOfRange(f"{op}: image {number} of a region is outside 0..{data.shape[0] - 1}")
    return np.asarray(data[number])


def _linear(image: Array, axis: int, place: Array) -> Array:
    """image at fractional places along an axis, 0 far outside."""
    size = image.shape[axis]
    kind = place.dtype.type
    shape = [-1 if a == axis else 1 for a in range(image.ndim)]
    x = np.minimum(np.maximum(place, kind(0)), kind(size - 1))
    low = convert(np.floor(x), "int64")
    t = (x - np.floor(x)).reshape(shape)
    near = np.take(image, np.clip(low, 0, size - 1), axis)
    far = np.take(image, np.clip(low + 1, 0, size - 1), axis)
    value = near * (kind(1) - t) + far * t
    outside = ((place < kind(-1)) | (place > kind(size))).reshape(shape)
    return np.asarray(np.where(outside, kind(0), value))


def _align(image: Array, roi: Array, attrs: ROIAlignAttrs) -> Array:
    kind = roi.dtype.type
    value, counts = image, []
    x1, y1, x2, y2 = roi[1:] * kind(attrs.spatial_scale)
    for axis, bins, start, end in zip(
        (1, 2), per_axis(attrs.pooled_size, 2), (y1, x1), (y2, x2), strict=True
    ):
        size = np.maximum(end - start, kind(1)) / kind(bins)
        count = attrs.sample_ratio
        if count <= 0:
            count = int(convert(np.ceil(size), "int64"))
        if not 0 <= count < MOST_SAMPLES:
            raise IndexOutOfRange(f"vision.roi_align: {count} places in a bin, < {MOST_SAMPLES} go")
        offset = (np.arange(count).astype(kind) + kind(0.5)) * size / kind(count)
        first = start + np.arange(bins).astype(kind) * size
        value = _linear(value, axis, (first[:, None] + offset).reshape(-1))
        counts.append(count)
    rows, columns = per_axis(attrs.pooled_size, 2)
    # A bin of a region that is not a number has no places: -1 would not say how many channels.
    wide = value.reshape(len(image), rows, counts[0], columns, counts[1]).astype("float64")
    if attrs.mode == "max":
        return np.asarray(wide.max((2, 4), initial=-np.inf))
    return np.asarray(wide.sum((2, 4)) / np.float64(counts[0] * counts[1]))


def _max_pool(image: Array, roi: Array, attrs: ROIPoolAttrs) -> Array:
    kind, (rows, columns) = roi.dtype.type, per_axis(attrs.pooled_size, 2)
    scaled = roi[1:] * kind(attrs.spatial_scale)
    away = np.trunc(scaled) + np.where(
        np.abs(scaled - np.trunc(scaled)) >= kind(0.5), np.sign(scaled), kind(0)
    )
    x1, y1, x2, y2 = convert(np.asarray(away), "int64")
    edges = []
    for start, end, bins, size in (
        (y1, y2, rows, image.shape[1]),
        (x1, x2, columns, image.shape[2]),
    ):
        step = kind(max(end - start + 1, 1)) / kind(bins)
        turns = np.arange(bins + 1).astype(kind)
        low = convert(np.floor(turns[:-1] * step + kind(EPSILON)), "int64") + start
        high = convert(np.ceil(turns[1:] * step - kind(EPSILON)), "int64") + start
        edges.append((np.clip(low, 0, size), np.clip(high, 0, size)))
    out = np.zeros((image.shape[0], rows, columns), image.dtype)
    for i, j in np.ndindex(rows, columns):
        (top, bottom), (left, right) = (
            (e[0][at], e[1][at]) for e, at in zip(edges, (i, j), strict=True)
        )
        if top < bottom and left < right:
            out[:, i, j] = image[:, top:bottom, left:right].max((1, 2))
    return out


def _reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
    data, rois = inputs
    align = isinstance(attrs, ROIAlignAttrs)
    name = "vision.roi_align" if align else "vision.roi_pool"
    images = to_order(data, attrs.layout, "NCHW")
    images = as_compute(images) if align else images
    out = np.zeros((len(rois), images.shape[1], *per_axis(attrs.pooled_size, 2)), images.dtype)
    with np.errstate(all="ignore"):
        for r, roi in enumerate(as_compute(rois)) if out.size else ():
            image = _image(name, images, roi)
            out[r] = _align(image, roi, attrs) if align else _max_pool(image, roi, attrs)
    return rounded(np.ascontiguousarray(to_order(out, "NCHW", attrs.layout)), dtype_name(data))


for _name, _attrs in (("vision.roi_align", ROIAlignAttrs), ("vision.roi_pool", ROIPoolAttrs)):
    register(
        Op(
            name=_name,
            args=("data", "rois"),
            attrs=_attrs,
            relation=_relation,
            reference=_reference,
            pattern=OpPattern.OPAQUE,
            effect=Effect.MAY_FAIL,
            dtypes=(FLOATS, FLOATS),
            doc=__doc__ or "",
            tolerance=ACCUMULATED,
        )
    )
