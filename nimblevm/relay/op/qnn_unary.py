"""Functions of quantized tensors: one table, and leaky_relu.

    qnn.exp(x, scale, zero_point, output_scale, output_zero_point) and kin:
        out = qnn.quantize(f(qnn.dequantize(x, scale, zero_point)), output_scale, output_zero_point)
    qnn.leaky_relu, with q = qnn.requantize of x to int32 with output_scale and z = output_zero_point:
        out = saturated(q if x >= zero_point else fixed(q, alpha) + fixed(z, 1 - alpha))
        where fixed(v, a) is fixed_point_multiply by a as a fraction of 31 bits and a power of two

f: tanh, exp, sqrt, rsqrt, erf, abs, sigmoid, log, hardswish (x * min(max(x + 3, 0), 6) / 6), computed in float64 and
rounded to float32, so that all paths have one result (TVM: in float32, by numpy). x: int8 or uint8, any shape; the
result has its type. Scales (float32) and zero points (int32) are scalars. Where they are constants, f is a table of 256
elements. Where f has no value (NaN) the result is the number 0; infinities saturate.
Attrs: none; of leaky_relu alpha, and rounding and compute_dtype as qnn.requantize has them.
Source: Relay's qnn dialect.
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay.op.common import BYTES, Array, Attrs, tensor_of
from nimblevm.relay.op.qnn_common import (
    UNSET,
    RoundingAttrs,
    check_rounding,
    check_scalars,
    dequantized,
    fixed_point,
    moved,
    quantized,
    saturated,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.unary import ROWS as REALS
from nimblevm.relay.types import Type

ARGS = ("x", "scale", "zero_point", "output_scale", "output_zero_point")
NAMES = ("tanh", "exp", "sqrt", "rsqrt", "erf", "abs", "sigmoid", "log", "hardswish")
LARGEST = 2.0**30


@dataclass(frozen=True, slots=True)
class LeakyReluAttrs(Attrs):
    """alpha: the slope below 0. rounding, compute_dtype: as in qnn.requantize."""

    alpha: float = 0.01
    rounding: str = UNSET
    compute_dtype: str = UNSET

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", float(self.alpha))


def function(name: str, x: Array) -> Array:
    """f of float32, rounded once."""
    wide = x.astype("float64")
    with np.errstate(all="ignore"):
        if name == "hardswish":
            found = wide * np.clip(wide + 3, 0, 6) / 6
        else:
            found = REALS[name].function(wide)
        return np.asarray(found).astype("float32")


def mapped(name: str, x: Array, parameters: tuple[Array, ...]) -> Array:
    """A quantized function of a quantized tensor."""
    scale, zero_point, out_scale, out_zero_point = parameters
    value = function(name, dequantized(x, scale, zero_point))
    return quantized(value, out_scale, out_zero_point, x.dtype.name)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    data = tensor_of(ctx, arg_types, 0, BYTES)
    check_scalars(ctx, arg_types, 1)
    return data


def _reference(name: str) -> Callable[[tuple[Array, ...], Any, Type], Array]:
    return lambda inputs, attrs, result: mapped(name, inputs[0], inputs[1:])


def _leaky_relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: LeakyReluAttrs) -> Type:
    if not abs(attrs.alpha) < LARGEST or math.isnan(attrs.alpha):
        raise ctx.fail(f"alpha must be a number of a magnitude below 2**30, not {attrs.alpha!r}")
    check_rounding(ctx, attrs.rounding, attrs.compute_dtype)
    return _relation(ctx, arg_types, attrs)


def _fixed(value: Array, number: float) -> Array:
    """fixed_point_multiply, which wraps in 32 bits."""
    multiplier, shift = fixed_point(number)
    wide, right = value.astype("int64") << max(shift, 0), 31 + max(-shift, 0)
    return np.asarray((wide * multiplier + (np.int64(1) << (right - 1))) >> right).astype("int32")


def _leaky_relu(inputs: tuple[Array, ...], attrs: LeakyReluAttrs, result: Type) -> Array:
    x, scale, zero_point, out_scale, out_zero_point = inputs
    modes = RoundingAttrs(attrs.rounding, attrs.compute_dtype)
    with np.errstate(all="ignore"):
        q = saturated(moved(x, scale, zero_point, out_scale, modes) + out_zero_point, "int32")
        small = _fixed(q, attrs.alpha) + _fixed(out_zero_point, 1 - attrs.alpha)
    return saturated(np.where(x.astype("int32") < zero_point, small, q), x.dtype.name)


for _name in NAMES:
    register(
        Op(
            name=f"qnn.{_name}",
            args=ARGS,
            relation=_relation,
            reference=_reference(_name),
            pattern=OpPattern.ELEMWISE,
            effect=Effect.TOTAL,
            dtypes=(BYTES, *(("float32",), ("int32",)) * 2),
            doc=__doc__ or "",
        )
    )
register(
    Op(
        name="qnn.leaky_relu",
        args=ARGS,
        attrs=LeakyReluAttrs,
        relation=_leaky_relation,
        reference=_leaky_relu,
        pattern=OpPattern.ELEMWISE,
        effect=Effect.TOTAL,
        dtypes=(BYTES, *(("float32",), ("int32",)) * 2),
        doc=__doc__ or "",
    )
)
