"""image.resize1d, image.resize2d, image.resize3d, nn.upsampling and nn.upsampling3d: images sampled at other places.

    in = place(out) along each axis, with scale = size of data / size of the result:
      half_pixel            (out + 0.5) * scale - 0.5          pytorch_half_pixel    the same; 0 for a result of size 1
      asymmetric            out * scale                        tf_half_pixel_for_nn  (out + 0.5) * scale
      align_corners         out * (size - 1) / (result - 1); 0 for a result of size 1
      tf_crop_and_resize    from roi's start to its end, times size - 1; extrapolation_value outside of data
    nearest_neighbor: the element at the rounded place: rounding_method round (half away from zero), floor (of in +
        1e-5), ceil (of in - 1e-5), round_prefer_floor, round_prefer_ceil; "": round for align_corners, else floor
    linear: of the two elements around it; cubic: of the four around it, by splines of cubic_alpha, without elements
        outside of data if cubic_exclude

Elements outside of data are the nearest ones inside. Computed in float32 (float64 for float64 data); integers are cut
towards zero. Result: out_dtype, or data's dtype if that is None or "". The axes must not be empty. Attrs: size
(integers, one an axis), roi (starts, then ends), layout, method, coordinate_transformation_mode, rounding_method,
cubic_alpha, cubic_exclude, extrapolation_value, out_dtype; upsampling: scale_h, scale_w (the result's sizes are
rounded), layout, method (nearest_neighbor, bilinear, bicubic, at asymmetric places), align_corners; upsampling3d:
scale_d, scale_h, scale_w, layout, method (nearest_neighbor, trilinear), coordinate_transformation_mode (half_pixel,
align_corners, asymmetric).
Source: Relay's image/_image.py and nn/nn.py. Differs from numpy: there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimExpr
from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    dtype_name,
    require_nonempty,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import (
    SPATIAL,
    arranged,
    check_rank,
    layout_of,
    numbers,
    per_axis,
    to_order,
)
from nimblevm.relay.types import TensorType, Type

DTYPES = ("int8", "uint8", "int32", *FLOATS)
METHODS = ("nearest_neighbor", "linear", "cubic")
MODES = (
    "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
ROUNDINGS = ("", "round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Resize1DAttrs(Attrs):
    """See the module's docstring."""

    size: tuple[int, ...]
    roi: tuple[float, ...] | None = None
    layout: str = "NCW"
    method: str = "linear"
    coordinate_transformation_mode: str = "half_pixel"
    rounding_method: str = ""
    cubic_alpha: float = -0.5
    cubic_exclude: int = 0
    extrapolation_value: float = 0.0
    out_dtype: str | None = None

    def __post_init__(self) -> None:
        set_axes(self, "size")
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class Resize2DAttrs(Attrs):
    """See the module's docstring."""

    size: tuple[Dim, ...]
    roi: tuple[float, ...] | None = None
    layout: str = "NCHW"
    method: str = "linear"
    coordinate_transformation_mode: str = "half_pixel"
    rounding_method: str = ""
    cubic_alpha: float = -0.5
    cubic_exclude: int = 0
    extrapolation_value: float = 0.0
    out_dtype: str | None = None

    def __post_init__(self) -> None:
        set_axes(self, "size")
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class Resize3DAttrs(Attrs):
    """See the module's docstring."""

    size: tuple[int, ...]
    roi: tuple[float, ...] | None = None
    layout: str = "NCDHW"
    method: str = "linear"
    coordinate_transformation_mode: str = "half_pixel"
    rounding_method: str = ""
    cubic_alpha: float = -0.5
    cubic_exclude: int = 0
    extrapolation_value: float = 0.0
    out_dtype: str | None = None

    def __post_init__(self) -> None:
        set_axes(self, "size")
        Attrs.__post_init__(self)


RESIZES: dict[str, tuple[int, type[Attrs]]] = {
    "image.resize1d": (1, Resize1DAttrs),
    "image.resize2d": (2, Resize2DAttrs),
    "image.resize3d": (3, Resize3DAttrs),
}
"""Name -> (axes that are sampled, attributes)."""
_RANKS = {cls: rank for rank, cls in RESIZES.values()}


@dataclass(frozen=True, slots=True)
class UpSamplingAttrs(Attrs):
    """See the module's docstring."""

    scale_h: float = 1.0
    scale_w: float = 1.0
    layout: str = "NCHW"
    method: str = "nearest_neighbor"
    align_corners: bool = False


@dataclass(frozen=True, slots=True)
class UpSampling3DAttrs(Attrs):
    """See the module's docstring."""

    scale_d: float = 1.0
    scale_h: float = 1.0
    scale_w: float = 1.0
    layout: str = "NCDHW"
    method: str = "nearest_neighbor"
    coordinate_transformation_mode: str = "half_pixel"


@dataclass(frozen=True, slots=True)
class Scales:
    """What an operator takes that multiplies sizes: names of the scales, methods, modes."""

    names: tuple[str, ...]
    methods: tuple[str, ...]
    modes: tuple[str, ...] = ()


UPSAMPLINGS: dict[str, type[Attrs]] = {
    "nn.upsampling": UpSamplingAttrs,
    "nn.upsampling3d": UpSampling3DAttrs,
}
_SCALES: dict[type, Scales] = {
    UpSamplingAttrs: Scales(("scale_h", "scale_w"), ("nearest_neighbor", "bilinear", "bicubic")),
    UpSampling3DAttrs: Scales(
        ("scale_d", "scale_h", "scale_w"), ("nearest_neighbor", "trilinear"), MODES[:3]
    ),
}


@dataclass(frozen=True, slots=True)
class Sampling:
    """What all operators are: sampling of `letters` axes of `layout`."""

    letters: str
    layout: str
    method: str
    mode: str
    rounding: str = ""
    alpha: float = -0.5
    exclude: bool = False
    extrapolation: float = 0.0
    roi: tuple[float, ...] = ()


def scaled(size: Dim, scale: float) -> Dim:
    """round(size * scale), half up; the scale to a precision of 1/4096 at least."""
    exact = Fraction(scale).limit_denominator(4096)
    double = dims.mul(size, 2 * exact.numerator)
    return dims.floordiv(dims.add(double, exact.denominator), 2 * exact.denominator)


def sampling(attrs: Any) -> Sampling:
    """The sampling that attributes mean."""
    if isinstance(attrs, UpSamplingAttrs):
        method = {"bilinear": "linear", "bicubic": "cubic"}.get(attrs.method, attrs.method)
        mode = "align_corners" if attrs.align_corners else "asymmetric"
        return Sampling("HW", attrs.layout, method, mode)
    if isinstance(attrs, UpSampling3DAttrs):
        method = "linear" if attrs.method == "trilinear" else attrs.method
        return Sampling("DHW", attrs.layout, method, attrs.coordinate_transformation_mode)
    letters = SPATIAL[_RANKS[type(attrs)]]
    rounding = attrs.rounding_method
    if not rounding:
        align = attrs.coordinate_transformation_mode == "align_corners"
        rounding = "round" if align else "floor"
    return Sampling(
        letters, attrs.layout, attrs.method, attrs.coordinate_transformation_mode, rounding,
        float(attrs.cubic_alpha), bool(attrs.cubic_exclude), float(attrs.extrapolation_value),
        tuple(float(v) for v in (attrs.roi if isinstance(attrs.roi, tuple) else ())),
    )  # fmt: skip


def rounding_of(spec: Sampling) -> str:
    """The rounding of places for nearest neighbours."""
    return spec.rounding or ("round" if spec.mode == "align_corners" else "floor")


def out_sizes(attrs: Any, sizes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The sizes of the result along the sampled axes."""
    if type(attrs) in _SCALES:
        scales = (getattr(attrs, name) for name in _SCALES[type(attrs)].names)
        return tuple(map(scaled, sizes, scales))
    return per_axis(attrs.size, len(sizes))


def result_name(attrs: Any, operand: str) -> str:
    """The result's dtype."""
    return getattr(attrs, "out_dtype", None) or operand


def _check_scales(ctx: TypeContext, attrs: Any, scales: Scales) -> None:
    """An operator that multiplies sizes."""
    known = {"method": scales.methods}
    if scales.modes:
        known["coordinate_transformation_mode"] = scales.modes
    for name, values in known.items():
        if getattr(attrs, name) not in values:
            raise ctx.fail(
                f"{name} must be one of {', '.join(values)}, not {getattr(attrs, name)!r}"
            )
    for name in scales.names:
        if not 0 < getattr(attrs, name) < 2**20:
            raise ctx.fail(f"{name} must be greater than 0, not {getattr(attrs, name)!r}")


def _check(ctx: TypeContext, attrs: Any, spec: Sampling) -> None:
    layout_of(ctx, "layout", attrs.layout, "NC" + spec.letters)
    if type(attrs) in _SCALES:
        _check_scales(ctx, attrs, _SCALES[type(attrs)])
        return
    # Passes write dims that they bound.
    known_sizes = tuple(1 if isinstance(n, DimExpr) else n for n in attrs.size)
    numbers(ctx, "size", known_sizes, len(spec.letters), 1)
    for name, value, known in (
        ("method", attrs.method, METHODS),
        ("coordinate_transformation_mode", attrs.coordinate_transformation_mode, MODES),
        ("rounding_method", attrs.rounding_method, ROUNDINGS),
    ):
        if value not in known:
            raise ctx.fail(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")
    count = 2 * len(spec.letters)
    if spec.mode == "tf_crop_and_resize" and len(spec.roi) != count:
        raise ctx.fail(f"tf_crop_and_resize needs a roi of {count} numbers, not {attrs.roi!r}")


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    data = tensor_of(ctx, arg_types, 0, DTYPES)
    spec = sampling(attrs)
    _check(ctx, attrs, spec)
    check_rank(ctx, data, spec.layout, 0)
    dtype = result_name(attrs, data.dtype)
    if dtype not in DTYPES:
        raise ctx.fail(f"out_dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    found = dict(zip(spec.layout, data.shape, strict=True))
    sizes = tuple(found[letter] for letter in spec.letters)
    for letter, size in zip(spec.letters, sizes, strict=True):
        require_nonempty(ctx, 0, spec.layout.index(letter), size, "sampling")
    found.update(zip(spec.letters, out_sizes(attrs, sizes), strict=True))
    return TensorType(arranged(spec.layout, found), dtype)


def _places(spec: Sampling, axis: int, size: int, out: int, dtype: Any) -> Array:
    """The place in data of each element of the result along an axis; the kernel computes the same, step by step."""
    kind = np.dtype(dtype).type
    x, half = np.arange(out).astype(dtype), kind(0.5)
    scale = kind(size) / kind(out) if out else kind(0)
    match spec.mode:
        case "align_corners":
            return np.asarray(x * (kind(size - 1) / kind(max(out - 1, 1))))
        case "asymmetric":
            return np.asarray(x * scale)
        case "tf_half_pixel_for_nn":
            return np.asarray((x + half) * scale)
        case "tf_crop_and_resize":
            start, end = kind(spec.roi[axis]), kind(spec.roi[axis + len(spec.letters)])
            last = kind(size - 1)
            if out <= 1:
                return np.full(out, half * (start + end) * last, dtype)
            return np.asarray(x * ((end - start) * last / kind(out - 1)) + start * last)
        case "pytorch_half_pixel" if out <= 1:
            return np.zeros(out, dtype)
        case _:
            return np.asarray((x + half) * scale - half)


def _nearest(spec: Sampling, x: Array) -> Array:
    kind = x.dtype.type
    match rounding_of(spec):
        case "round":
            whole = np.trunc(x)
            away = np.abs(x - whole) >= kind(0.5)
            return np.asarray(whole + np.where(away, np.sign(x), kind(0)))
        case "round_prefer_floor":
            return np.asarray(np.ceil(x - kind(0.5)))
        case "round_prefer_ceil":
            return np.asarray(np.floor(x + kind(0.5)))
        case "ceil":
            return np.asarray(np.ceil(x - kind(EPSILON)))
        case _:
            return np.asarray(np.floor(x + kind(EPSILON)))


def cubic_weights(t: Any, alpha: Any, two: Any, three: Any, one: Any) -> list[Any]:
    """Of the elements at -1, 0, 1, 2 for a place t behind element 0; written once for arrays and for kernels."""
    t2 = t * t
    t3 = t2 * t
    return [
        alpha * (t3 - two * t2 + t),
        (alpha + two) * t3 - (alpha + three) * t2 + one,
        (alpha + three + alpha) * t2 - (alpha + two) * t3 - alpha * t,
        alpha * t2 - alpha * t3,
    ]


def taps(spec: Sampling, x: Array, size: int) -> list[tuple[Array, Array | None]]:
    """(positions, weights or None for 1) of the elements that make each one of the result."""
    kind = x.dtype.type
    if spec.method == "nearest_neighbor":
        return [(inside(_nearest(spec, x), size), None)]
    low = np.floor(x)
    t = x - low
    if spec.method == "linear":
        return [(inside(low, size), kind(1) - t), (inside(low + kind(1), size), t)]
    weights = cubic_weights(t, *map(kind, (spec.alpha, 2, 3, 1)))
    places = [low + kind(k) for k in (-1, 0, 1, 2)]
    if spec.exclude:
        weights = [
            np.where((p < 0) | (p > kind(size - 1)), kind(0), w)
            for p, w in zip(places, weights, strict=True)
        ]
        total = weights[0] + weights[1] + weights[2] + weights[3]
        weights = [w / total for w in weights]
    return [(inside(p, size), w) for p, w in zip(places, weights, strict=True)]


def inside(places: Array, size: int) -> Array:
    """The elements of an axis that are nearest to places, which are whole numbers; 0 for a NaN."""
    return np.clip(convert(places, "int64"), 0, size - 1)


def along(data: Array, axis: int, found: list[tuple[Array, Array | None]]) -> Array:
    """data sampled along an axis, from what `taps` gives."""
    total: Array | None = None
    for places, weights in found:
        part = np.take(data, places, axis)
        if weights is not None:
            part = part * weights.reshape(-1, *(1,) * (data.ndim - 1 - axis))
        total = part if total is None else total + part
    assert total is not None
    return total


def _reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
    (given,) = inputs
    spec = sampling(attrs)
    dtype = result_name(attrs, dtype_name(given))
    data = to_order(given, spec.layout, "NC" + spec.letters)
    calc = "float64" if given.dtype == np.dtype("float64") else "float32"
    sizes = data.shape[2:]
    if 0 in sizes:
        raise ShapeMismatch(f"sampling: the axes {sizes} must not be empty")
    outs = [int(n) for n in out_sizes(attrs, sizes)]  # type: ignore[arg-type]
    places = [
        _places(spec, axis, size, out, calc)
        for axis, (size, out) in enumerate(zip(sizes, outs, strict=True))
    ]
    if spec.method != "nearest_neighbor":
        data = data.astype(calc)
    with np.errstate(all="ignore"):
        # The last axis first, as the kernel does.
        for axis in reversed(range(len(sizes))):
            data = along(data, 2 + axis, taps(spec, places[axis], sizes[axis]))
        if spec.mode == "tf_crop_and_resize":
            outside = np.zeros(outs, "bool")
            for axis, (x, size) in enumerate(zip(places, sizes, strict=True)):
                shape = [-1 if a == axis else 1 for a in range(len(sizes))]
                outside = outside | ((x < 0) | (x > size - 1)).reshape(shape)
            fill = np.asarray(spec.extrapolation).astype(calc)
            data = np.where(outside, convert(np.asarray(fill), dtype_name(data)), data)
        out = to_order(data, "NC" + spec.letters, spec.layout)
        return np.ascontiguousarray(convert(np.asarray(out), dtype))


OPERATORS: dict[str, type[Attrs]] = {n: cls for n, (_, cls) in RESIZES.items()} | UPSAMPLINGS

for _name, _attrs in OPERATORS.items():
    register(
        Op(
            name=_name,
            args=("data",),
            attrs=_attrs,
            relation=_relation,
            reference=_reference,
            pattern=OpPattern.INJECTIVE,
            effect=Effect.TOTAL,
            dtypes=(DTYPES,),
            doc=__doc__ or "",
            tolerance=ACCUMULATED,
        )
    )
