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
from nimblevm.relay.nn_conv import Sizes, sizes


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


__all__ = ["resize1d", "resize2d", "resize3d"]
