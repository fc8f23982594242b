"""relay.image: the functions of images, with TVM's argument order and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nimblevm.arguments import shown
from nimblevm.errors import InvalidInputType
from nimblevm.relay import ir, op
from nimblevm.relay.builder_sizes import given, is_computed, vector
from nimblevm.relay.call import Operand, call_op
from nimblevm.relay.nn_conv import Sizes, pads, sizes


def resize1d(
    data: Operand,
    size: Sizes,
    roi: Sequence[float] | None = None,
    layout: str = "NCW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> ir.Call:
    """data sampled at other places along one axis."""
    attrs = op.resize.Resize1DAttrs(
        sizes(size, 1) or (), None if roi is None else tuple(roi), layout, method, coordinate_transformation_mode,
        rounding_method, cubic_alpha, cubic_exclude, extrapolation_value, out_dtype,
    )  # fmt: skip
    return call_op("image.resize1d", data, attrs=attrs)


def resize2d(
    data: Operand,
    size: Any,
    roi: Any = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> ir.Call:
    """data sampled at other places along two axes; the size may be an expression."""
    if is_computed(size) or isinstance(roi, ir.Expr):
        bounds = roi if isinstance(roi, ir.Expr) else _bounds(roi)
        made = op.dyn_image.DynResizeAttrs(
            layout, method, coordinate_transformation_mode, rounding_method, cubic_alpha, cubic_exclude,
            extrapolation_value, out_dtype,
        )  # fmt: skip
        return call_op("dyn.image.resize2d", data, vector(size), bounds, attrs=made)
    size = given(size)
    attrs = op.resize.Resize2DAttrs(
        sizes(size, 2) or (), None if roi is None else tuple(roi), layout, method, coordinate_transformation_mode,
        rounding_method, cubic_alpha, cubic_exclude, extrapolation_value, out_dtype,
    )  # fmt: skip
    return call_op("image.resize2d", data, attrs=attrs)


def resize3d(
    data: Operand,
    size: Sizes,
    roi: Sequence[float] | None = None,
    layout: str = "NCDHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> ir.Call:
    """data sampled at other places along three axes."""
    attrs = op.resize.Resize3DAttrs(
        sizes(size, 3) or (), None if roi is None else tuple(roi), layout, method, coordinate_transformation_mode,
        rounding_method, cubic_alpha, cubic_exclude, extrapolation_value, out_dtype,
    )  # fmt: skip
    return call_op("image.resize3d", data, attrs=attrs)


def _bounds(roi: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray((0,) * 4 if roi is None else roi, "float32")
    except (TypeError, ValueError):
        raise InvalidInputType(
            f"resize2d: roi must be numbers or an expression, not {shown(roi)}"
        ) from None


def crop_and_resize(
    data: Operand,
    boxes: Operand,
    box_indices: Operand,
    crop_size: Sizes,
    layout: str,
    method: str = "bilinear",
    extrapolation_value: float = 0,
    out_dtype: str | None = None,
) -> ir.Call:
    """Parts of images, resized to crop_size."""
    attrs = op.crop_and_resize.CropAndResizeAttrs(
        sizes(crop_size, 2) or (), layout, method, float(extrapolation_value), out_dtype
    )
    return call_op("image.crop_and_resize", data, boxes, box_indices, attrs=attrs)


def dilation2d(
    data: Operand,
    weight: Operand,
    strides: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    dilations: Sizes = (1, 1),
    data_layout: str = "NCHW",
    kernel_layout: str = "IHW",
    out_dtype: str = "",
) -> ir.Call:
    """The greatest of data plus weight in each window."""
    attrs = op.dilation2d.Dilation2DAttrs(
        sizes(strides, 2) or (), pads(padding, 2), sizes(dilations, 2) or (), data_layout, kernel_layout, out_dtype,
    )  # fmt: skip
    return call_op("image.dilation2d", data, weight, attrs=attrs)


def affine_grid(data: Operand, target_shape: Sizes | None = None) -> ir.Call:
    """The places to which affine maps move a grid of target_shape."""
    if target_shape is None:
        raise InvalidInputType("affine_grid: target_shape must be given")
    attrs = op.grid_sample.AffineGridAttrs(sizes(target_shape, 2) or ())
    return call_op("image.affine_grid", data, attrs=attrs)


def grid_sample(
    data: Operand,
    grid: Operand,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> ir.Call:
    """data at the places of grid."""
    attrs = op.grid_sample.GridSampleAttrs(method, layout, padding_mode, align_corners)
    return call_op("image.grid_sample", data, grid, attrs=attrs)


__all__ = [
    "affine_grid", "crop_and_resize", "dilation2d", "grid_sample", "resize1d", "resize2d", "resize3d",
]  # fmt: skip
