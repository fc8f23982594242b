"""What the operators of quantized tensors (qnn.*) share: scales, zero points, rounding from one scale to another.

A quantized tensor q with a scale s and a zero point z stands for the real numbers s * (q - z). Scales are float32, zero
points int32; each is a scalar, or a vector with an element for each index of one axis. They may be values that only the
run knows. A scale is positive and finite; others give some result, the same one on every path, and no error.

Rounding from scale s to scale t, with a factor s / t that is computed in float64 and kept as a fraction of 31 bits
and a power of two, as TVM does:

    m * 2**(e - 31) = s / t,   2**30 <= m < 2**31          (m = 0 if s / t is not positive or less than 2**-32)
    rescaled(x) = floor(x * m * 2**(e - 31) + 1/2)          "UPWARD"; "TONEAREST": half away from zero

The product is exact in 64 bits; with a compute_dtype of float32 or float64 it is one of that dtype. Factors from 2**30
on count as ones of that magnitude: nothing but saturation is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import Array, Attrs, axis_index, require_same, tensor_of
from nimblevm.relay.op.registry import TypeContext
from nimblevm.relay.op.unary import round_away
from nimblevm.relay.types import TensorType, Type

QUANTIZED: tuple[str, ...] = ("int8", "uint8", "int16", "uint16", "int32")
ROUNDINGS = ("UPWARD", "TONEAREST")
COMPUTE_DTYPES = ("int64", "float32", "float64")
UNSET = "None"
"""TVM's word for the default of `rounding` ("UPWARD") and `compute_dtype` ("int64")."""

FRACTION = 31
LEAST, MOST = -FRACTION, FRACTION - 1
"""The exponents e that matter: below, everything rounds to 0; above, everything but 0 saturates."""


@dataclass(frozen=True, slots=True)
class RoundingAttrs(Attrs):
    """rounding: UPWARD (also "None") or TONEAREST. compute_dtype: int64 (also "None"), float32 or float64."""

    rounding: str = UNSET
    compute_dtype: str = UNSET


# --- relations ----------------------------------------------------------------------------------


def check_rounding(ctx: TypeContext, rounding: str, compute_dtype: str) -> None:
    """Located errors for modes that there are not."""
    if rounding not in (UNSET, *ROUNDINGS):
        raise ctx.fail(f"rounding must be one of {', '.join(ROUNDINGS)}, not {rounding!r}")
    if compute_dtype not in (UNSET, *COMPUTE_DTYPES):
        names = ", ".join(COMPUTE_DTYPES)
        raise ctx.fail(f"compute_dtype must be one of {names}, not {compute_dtype!r}")


def check_out_dtype(ctx: TypeContext, dtype: str, allowed: Sequence[str] = QUANTIZED) -> None:
    """A located error for another dtype of the result."""
    if dtype not in allowed:
        raise ctx.fail(f"out_dtype must be one of {', '.join(allowed)}, not {dtype!r}")


def check_scalar(ctx: TypeContext, arg_types: tuple[Type, ...], index: int, dtype: str) -> None:
    """A located error unless argument `index` is a scalar of the dtype."""
    found = tensor_of(ctx, arg_types, index, (dtype,))
    if found.shape:
        raise ctx.fail(
            f"argument {index} must be a scalar, but it has rank {len(found.shape)}", index
        )


def check_scalars(ctx: TypeContext, arg_types: tuple[Type, ...], first: int) -> None:
    """The arguments from `first` on are scalars: scales and zero points in turns."""
    for index in range(first, len(arg_types)):
        check_scalar(ctx, arg_types, index, "int32" if (index - first) % 2 else "float32")


def check_along(
    ctx: TypeContext, arg_types: tuple[Type, ...], index: int, dtype: str, data: int, axis: int
) -> None:
    """A located error unless argument `index` is a scalar of the dtype or as long as axis `axis` of argument `data`."""
    found = tensor_of(ctx, arg_types, index, (dtype,))
    if not found.shape:
        return
    of = arg_types[data]
    if len(found.shape) > 1 or not isinstance(of, TensorType) or not of.shape:
        raise ctx.fail(
            f"argument {index} must be a scalar or have one element for each index of an axis of argument {data}",
            index,
        )
    require_same(ctx, (data, axis, of.shape[axis]), (index, 0, found.shape[0]))


def check_parameters(
    ctx: TypeContext, arg_types: tuple[Type, ...], first: int, data: int, axis: int
) -> None:
    """Arguments `first` and `first + 1` are a scale and a zero point of argument `data`, scalars or along the axis."""
    of, given = arg_types[data], arg_types[first : first + 2]
    rank = len(of.shape) if isinstance(of, TensorType) else 0
    scalars = all(isinstance(type_, TensorType) and not type_.shape for type_ in given)
    # A scalar has no axis, and scalar parameters are along none: whatever the attribute says means nothing then.
    place = axis_index(ctx, axis, rank) if rank and not scalars else 0
    check_along(ctx, arg_types, first, "float32", data, place)
    check_along(ctx, arg_types, first + 1, "int32", data, place)


# --- references ---------------------------------------------------------------------------------


def along(vector: Array, rank: int, axis: int) -> Array:
    """A vector of an axis, shaped to be broadcast with tensors of the rank; a scalar as it is."""
    return vector if vector.ndim == 0 else vector.reshape(-1, *(1,) * (rank - axis % rank - 1))


def factor(scale: Array, out_scale: Array) -> tuple[Array, Array]:
    """(m, e) of scale / out_scale, int64: see the module's docstring."""
    with np.errstate(all="ignore"):
        quotient = np.asarray(scale.astype("float64") / out_scale.astype("float64"))
    bits = np.where(quotient > 0, quotient, 0).view("int64")
    mantissa = (bits & (2**52 - 1)) | 2**52
    fraction = (mantissa + 2**21) >> 22
    carry = fraction >> FRACTION
    exponent = (bits >> 52) - 1022 + carry
    fraction = np.where(exponent < LEAST, 0, fraction >> carry)
    return np.asarray(fraction), np.asarray(np.clip(exponent, LEAST, MOST))


def rescaled(
    data: Array, scale: Array, out_scale: Array, rounding: str, compute_dtype: str
) -> Array:
    """int32 `data` of one scale as numbers of another one, rounded: int64."""
    if compute_dtype in ("float32", "float64"):
        ratio = np.asarray(scale.astype("float64") / out_scale.astype("float64"))
        value = np.asarray(data.astype(compute_dtype) * ratio.astype(compute_dtype))
        if rounding == "TONEAREST":
            whole = round_away(value)
        else:
            whole = np.floor(value + value.dtype.type(0.5))
        return convert(np.asarray(whole), "int32").astype("int64")
    fraction, exponent = factor(scale, out_scale)
    right = FRACTION - exponent
    half = np.int64(1) << (right - 1)
    wide = data.astype("int64")
    if rounding == "TONEAREST":
        half = half - (wide < 0)
    return np.asarray((wide * fraction + half) >> right)


def fixed_point(number: float) -> tuple[int, int]:
    """(multiplier, shift) of fixed_point_multiply for a number of a magnitude below 2**31; what is too small is 0."""
    fraction, shift = math.frexp(number)
    multiplier = int(round_away(np.asarray(fraction * 2.0**FRACTION)))
    if abs(multiplier) == 1 << FRACTION:
        multiplier, shift = multiplier // 2, shift + 1
    return (multiplier, shift) if shift >= -FRACTION else (0, 0)


def shifted(data: Array, zero_point: Array) -> Array:
    """data - zero_point, int32, which wraps."""
    with np.errstate(all="ignore"):
        return np.asarray(data.astype("int32") - zero_point.astype("int32"))


def saturated(value: Array, dtype: str) -> Array:
    """Integers in a narrower dtype, at the ends of its range where they do not fit."""
    info = np.iinfo(dtype)
    return np.asarray(np.clip(value, info.min, info.max)).astype(dtype)


def moved(
    data: Array, scale: Array, zero_point: Array, out_scale: Array, modes: RoundingAttrs
) -> Array:
    """A quantized tensor with another scale and the zero point 0, int64; all are shaped to be broadcast."""
    with np.errstate(all="ignore"):
        plain = shifted(data, zero_point)
        return rescaled(plain, scale, out_scale, modes.rounding, modes.compute_dtype)


def quantized(data: Array, scale: Array, zero_point: Array, dtype: str) -> Array:
    """Real numbers (float32) as a quantized tensor: half away from zero, saturated; NaN gives the number 0."""
    with np.errstate(all="ignore"):
        value = np.asarray(data.astype("float32") / scale + zero_point.astype("float32"))
        return convert(np.asarray(round_away(value)), dtype)


def dequantized(data: Array, scale: Array, zero_point: Array) -> Array:
    """The real numbers of a quantized tensor, float32."""
    with np.errstate(all="ignore"):
        return np.asarray(shifted(data, zero_point).astype("float32") * scale)


__all__ = [
    "COMPUTE_DTYPES", "FRACTION", "LEAST", "MOST", "QUANTIZED", "ROUNDINGS", "UNSET", "RoundingAttrs", "along",
    "check_along", "check_out_dtype", "check_parameters", "check_rounding", "check_scalar", "check_scalars",
    "dequantized", "factor", "fixed_point", "moved", "quantized", "rescaled", "saturated", "shifted",
]  # fmt: skip
