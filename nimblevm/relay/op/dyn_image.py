"""dyn.image.resize2d and dyn.nn.upsampling: images sampled to sizes that the program computes.

    dyn.image.resize2d(data, size, roi, ...)         as image.resize2d; size: a vector of two, roi: one of four
    dyn.nn.upsampling(data, scale_h, scale_w, ...)   as image.resize2d at asymmetric (or align_corners) places to the
                                                     sizes floor(n * scale + 0.5), in float64

out = the sampled image. data: what image.resize2d takes; size: int32 or int64; roi: float32, read where the mode is
tf_crop_and_resize (compiled programs need a constant there); scale_h, scale_w: float scalars. Result: data's rank.
Attrs: those of image.resize2d but size and roi; those of nn.upsampling but the scales. Errors: ShapeMismatch for
sizes < 1. Source: Relay's dyn operators.
Differs from numpy: there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import FLOATS, Array, Attrs, tensor_of
from nimblevm.relay.op.concrete import ConcreteContext, concrete_type
from nimblevm.relay.op.dyn import SIZES
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, get, register
from nimblevm.relay.op.resize import DTYPES, Resize2DAttrs
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class DynResizeAttrs(Attrs):
    """As image.resize2d's: layout, method, coordinate_transformation_mode, rounding_method, cubic_alpha, cubic_exclude,
    extrapolation_value, out_dtype."""

    layout: str = "NCHW"
    method: str = "linear"
    coordinate_transformation_mode: str = "half_pixel"
    rounding_method: str = ""
    cubic_alpha: float = -0.5
    cubic_exclude: int = 0
    extrapolation_value: float = 0.0
    out_dtype: str | None = None


@dataclass(frozen=True, slots=True)
class DynUpSamplingAttrs(Attrs):
    """layout; method: nearest_neighbor, bilinear or bicubic; align_corners."""

    layout: str = "NCHW"
    method: str = "nearest_neighbor"
    align_corners: bool = False


def static_attrs(attrs: Any, size: tuple[Dim, ...], roi: tuple[float, ...] | None) -> Resize2DAttrs:
    """The attributes of image.resize2d for a dyn operator whose sizes are known."""
    if isinstance(attrs, DynUpSamplingAttrs):
        method = {"bilinear": "linear", "bicubic": "cubic"}.get(attrs.method, attrs.method)
        mode = "align_corners" if attrs.align_corners else "asymmetric"
        return Resize2DAttrs(size, None, attrs.layout, method, mode)
    mode = attrs.coordinate_transformation_mode
    return Resize2DAttrs(
        size, roi if mode == "tf_crop_and_resize" else None, attrs.layout, attrs.method, mode,
        attrs.rounding_method, attrs.cubic_alpha, attrs.cubic_exclude, attrs.extrapolation_value,
        attrs.out_dtype,
    )  # fmt: skip


def roi_of(roi: Array) -> tuple[float, ...]:
    """The numbers of a roi."""
    return tuple(float(v) for v in roi.reshape(-1))


def _sampled(
    ctx: TypeContext, data: TensorType, attrs: Any, size: tuple[Dim, ...], roi: Array | None
) -> Type:
    static = static_attrs(attrs, size, None if roi is None else roi_of(roi))
    return get("image.resize2d").relation(ctx, (data,), static)


def _resize(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DynResizeAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, DTYPES)
    size, roi = tensor_of(ctx, arg_types, 1, SIZES), tensor_of(ctx, arg_types, 2, ("float32",))
    if size.shape != (2,) or len(roi.shape) != 1:
        raise ctx.fail("size must be a vector of 2 numbers, roi one of 4", 1)
    given, bounds = ctx.constant(1), ctx.constant(2)
    if bounds is None:
        bounds = np.zeros(4, "float32")  # its values don't matter for the type
    if given is not None:
        found: tuple[Dim, ...] = tuple(int(v) for v in given)
    else:
        found = (ctx.fresh_dim(), ctx.fresh_dim())
    return _sampled(ctx, data, attrs, found, bounds)


def scaled(size: int, scale: Array) -> int:
    """floor(size * scale + 0.5); ShapeMismatch unless that is a size."""
    found = size * float(scale) + 0.5
    if not 1 <= found < 2**62:
        raise ShapeMismatch(f"dyn.nn.upsampling: an axis of size {size} can't be scaled by {scale}")
    return math.floor(found)


def _upsampling(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DynUpSamplingAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, DTYPES)
    for index in (1, 2):
        if tensor_of(ctx, arg_types, index, FLOATS).shape:
            raise ctx.fail("scale_h and scale_w must be scalars", index)
    if attrs.method not in ("nearest_neighbor", "bilinear", "bicubic"):
        raise ctx.fail(
            f"method must be nearest_neighbor, bilinear or bicubic, not {attrs.method!r}"
        )
    if len(data.shape) != 4 or sorted(attrs.layout) != sorted("NCHW"):
        raise ctx.fail(f"data must have rank 4 and a layout of N, C, H, W, not {attrs.layout!r}", 0)
    size: list[Dim] = []
    for index, letter in ((1, "H"), (2, "W")):
        scale, axis = ctx.constant(index), data.shape[attrs.layout.index(letter)]
        if scale is None or not isinstance(axis, int):
            size.append(ctx.fresh_dim())
            continue
        try:
            size.append(scaled(axis, scale))
        except ShapeMismatch as error:
            raise ctx.fail(str(error), index) from None
    return _sampled(ctx, data, attrs, tuple(size), None)


def _run(data: Array, static: Resize2DAttrs) -> Array:
    op, types = get("image.resize2d"), (concrete_type(data),)
    found = op.relation(ConcreteContext(op, types), types, static)  # type: ignore[arg-type]
    return np.asarray(op.reference((data,), static, found))


def _resize_reference(inputs: tuple[Array, ...], attrs: DynResizeAttrs, result: Type) -> Array:
    data, size, roi = inputs
    if np.any(size < 1):
        raise ShapeMismatch(f"dyn.image.resize2d: {size} is no size")
    return _run(data, static_attrs(attrs, tuple(int(v) for v in size), roi_of(roi)))


def _upsampling_reference(
    inputs: tuple[Array, ...], attrs: DynUpSamplingAttrs, result: Type
) -> Array:
    data, *scales = inputs
    axes = (attrs.layout.index("H"), attrs.layout.index("W"))
    size = tuple(scaled(data.shape[a], s) for a, s in zip(axes, scales, strict=True))
    return _run(data, static_attrs(attrs, size, None))


register(
    Op(
        name="dyn.image.resize2d",
        args=("data", "size", "roi"),
        attrs=DynResizeAttrs,
        relation=_resize,
        reference=_resize_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(DTYPES, SIZES, ("float32",)),
        doc=__doc__,
        shape_values=(1, 2),
        tolerance=get("image.resize2d").tolerance,
    )
)
register(
    Op(
        name="dyn.nn.upsampling",
        args=("data", "scale_h", "scale_w"),
        attrs=DynUpSamplingAttrs,
        relation=_upsampling,
        reference=_upsampling_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(DTYPES, FLOATS, FLOATS),
        doc=__doc__,
        shape_values=(1, 2),
        tolerance=get("image.resize2d").tolerance,
    )
)
