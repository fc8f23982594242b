"""image.crop_and_resize(data, boxes, box_indices, crop_size, layout, method="bilinear", ...): parts of images, resized.

    y of row i = y1 * (H - 1) + i * (y2 - y1) * (H - 1) / (rows - 1), 0.5 * (y1 + y2) * (H - 1) for one row; x likewise
    out[b, i, j, c] = data[box_indices[b], y, x, c]: linear between the elements around it (bilinear), or the element at
        the rounded place, half away from zero (nearest_neighbor); extrapolation_value for a place outside of data

data: rank 4, N, C, H and W as layout says, H and W not empty; boxes: (boxes, 4) of float32, each (y1, x1, y2, x2) as
parts of the size; box_indices: int32 (boxes,). Computed in float32 (float64 for float64 data); integers are cut towards
zero. Result: (boxes, crop_size, C) in the order of layout, of out_dtype or data's dtype. Errors: IndexOutOfRange for an
index outside of the batch. Attrs: crop_size (height, width), layout, method, extrapolation_value, out_dtype. Source:
Relay's image.crop_and_resize.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import IndexOutOfRange
from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import (
    ACCUMULATED,
    Array,
    Attrs,
    dtype_name,
    require_nonempty,
    require_same,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.resize import DTYPES, Sampling, along, result_name, taps
from nimblevm.relay.op.windows import (
    arranged,
    check_rank,
    layout_of,
    numbers,
    per_axis,
    to_order,
)
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class CropAndResizeAttrs(Attrs):
    """crop_size: height and width of the parts. layout: of data. method: bilinear or nearest_neighbor.
    extrapolation_value: outside of data. out_dtype: of the result, or none.
    """

    crop_size: tuple[int, ...]
    layout: str
    method: str = "bilinear"
    extrapolation_value: float = 0.0
    out_dtype: str | None = None

    def __post_init__(self) -> None:
        set_axes(self, "crop_size")
        Attrs.__post_init__(self)


def sampling(attrs: CropAndResizeAttrs) -> Sampling:
    """How a part is sampled."""
    method = "linear" if attrs.method == "bilinear" else attrs.method
    return Sampling("HW", attrs.layout, method, "tf_crop_and_resize", "round")


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: CropAndResizeAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, DTYPES)
    boxes = tensor_of(ctx, arg_types, 1, ("float32",))
    indices = tensor_of(ctx, arg_types, 2, ("int32",))
    layout = layout_of(ctx, "layout", attrs.layout, "NCHW")
    check_rank(ctx, data, layout, 0)
    for index, (found, rank) in enumerate(((boxes, 2), (indices, 1)), 1):
        if len(found.shape) != rank:
            raise ctx.fail(f"argument {index} must have rank {rank}, not {len(found.shape)}", index)
    ctx.require_dim(1, 1, 4)
    require_same(ctx, (1, 0, boxes.shape[0]), (2, 0, indices.shape[0]))
    height, width = numbers(ctx, "crop_size", attrs.crop_size, 2, 1)
    if attrs.method not in ("bilinear", "nearest_neighbor"):
        raise ctx.fail(f"method must be bilinear or nearest_neighbor, not {attrs.method!r}")
    dtype = result_name(attrs, data.dtype)
    if dtype not in DTYPES:
        raise ctx.fail(f"out_dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    found_sizes = dict(zip(layout, data.shape, strict=True))
    for letter in "HW":
        require_nonempty(ctx, 0, layout.index(letter), found_sizes[letter], "sampling")
    sizes = {"N": boxes.shape[0], "C": found_sizes["C"], "H": height, "W": width}
    return TensorType(arranged(layout, sizes), dtype)


def _places(low: Array, high: Array, size: int, count: int) -> Array:
    kind = low.dtype.type
    last = kind(size - 1)
    if count == 1:
        return np.full(1, kind(0.5) * (low + high) * last)
    step = (high - low) * last / kind(count - 1)
    return np.asarray(np.arange(count).astype(kind) * step + low * last)


def _reference(inputs: tuple[Array, ...], attrs: CropAndResizeAttrs, result: Type) -> Array:
    data, boxes, indices = inputs
    calc = "float64" if data.dtype == np.dtype("float64") else "float32"
    images = to_order(data, attrs.layout, "NCHW")
    count, channels, *space = images.shape
    sizes = per_axis(attrs.crop_size, 2)
    out = np.zeros((len(boxes), channels, *sizes), calc)
    spec = sampling(attrs)
    exact = spec.method == "nearest_neighbor"
    if exact:
        out = out.astype(data.dtype)
    for b, box in enumerate(boxes.astype(calc)) if out.size else ():
        number = int(indices[b])
        if not 0 <= number < count:
            raise IndexOutOfRange(
                f"image.crop_and_resize: image {number} is outside 0..{count - 1}"
            )
        with np.errstate(all="ignore"):
            part = images[number] if exact else images[number].astype(calc)
            outside = np.zeros(sizes, "bool")
            for axis in (1, 0):
                x = _places(box[axis], box[axis + 2], space[axis], sizes[axis])
                part = along(part, 1 + axis, taps(spec, x, space[axis]))
                shape = (-1, 1) if axis == 0 else (1, -1)
                outside = outside | ~((x >= 0) & (x <= space[axis] - 1)).reshape(shape)
            fill = convert(np.asarray(attrs.extrapolation_value).astype(calc), dtype_name(out))
            out[b] = np.where(outside, fill, part)
    moved = to_order(out, "NCHW", attrs.layout)
    return np.ascontiguousarray(convert(moved, result_name(attrs, dtype_name(data))))


register(
    Op(
        name="image.crop_and_resize",
        args=("data", "boxes", "box_indices"),
        attrs=CropAndResizeAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(DTYPES, ("float32",), ("int32",)),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
