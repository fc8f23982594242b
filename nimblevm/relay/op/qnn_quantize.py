"""Between real numbers and quantized tensors, and from one scale to another.

    qnn.quantize(data, output_scale, output_zero_point)
        out = round(data / output_scale + output_zero_point)          half away from zero, saturated; NaN gives 0
    qnn.dequantize(data, input_scale, input_zero_point)
        out = (data - input_zero_point) * input_scale                 the difference in int32, the product in float32
    qnn.requantize(data, input_scale, input_zero_point, output_scale, output_zero_point)
        out = round((data - input_zero_point) * (input_scale / output_scale)) + output_zero_point         saturated

Scales are float32 and zero points int32: scalars, or vectors along `axis`. Attrs: axis, out_dtype; of requantize also
rounding ("UPWARD": a half goes up, the default, also called "None"; "TONEAREST": half away from zero) and
compute_dtype: "int64" (the default, "None") multiplies by a fraction of 31 bits and a power of two, exactly as TVM;
"float32" and "float64" multiply by the factor in that dtype. quantize takes float16 and float32 and gives integers,
dequantize the reverse, requantize takes and gives integers; the result has data's shape.
A scale must be positive and finite; another one gives some result and no error. Infinities saturate.
Source: Relay's qnn dialect.
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nimblevm.relay.op.common import Array, Attrs, rounded, tensor_of
from nimblevm.relay.op.qnn_common import (
    QUANTIZED,
    UNSET,
    RoundingAttrs,
    along,
    check_out_dtype,
    check_parameters,
    check_rounding,
    dequantized,
    moved,
    quantized,
    saturated,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type

REALS = ("float16", "float32")


@dataclass(frozen=True, slots=True)
class QuantizeAttrs(Attrs):
    """out_dtype: int8, uint8, int16, uint16 or int32. axis: of vectors of scales and zero points."""

    out_dtype: str = "int8"
    axis: int = -1


@dataclass(frozen=True, slots=True)
class DequantizeAttrs(Attrs):
    """axis: of vectors of scales and zero points. out_dtype: float16 or float32."""

    axis: int = -1
    out_dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class RequantizeAttrs(Attrs):
    """axis: of vectors of scales and zero points. rounding, compute_dtype, out_dtype: see the module's docstring."""

    axis: int = -1
    rounding: str = UNSET
    compute_dtype: str = UNSET
    out_dtype: str = "int8"


def _quantize_relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: QuantizeAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, REALS)
    check_parameters(ctx, arg_types, 1, 0, attrs.axis)
    check_out_dtype(ctx, attrs.out_dtype)
    return TensorType(data.shape, attrs.out_dtype)


def _quantize(inputs: tuple[Array, ...], attrs: QuantizeAttrs, result: Type) -> Array:
    data, scale, zero_point = inputs
    scale, zero_point = (along(v, data.ndim, attrs.axis) for v in (scale, zero_point))
    return quantized(data, scale, zero_point, attrs.out_dtype)


def _dequantize_relation(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DequantizeAttrs
) -> Type:
    data = tensor_of(ctx, arg_types, 0, QUANTIZED)
    check_parameters(ctx, arg_types, 1, 0, attrs.axis)
    check_out_dtype(ctx, attrs.out_dtype, REALS)
    return TensorType(data.shape, attrs.out_dtype)


def _dequantize(inputs: tuple[Array, ...], attrs: DequantizeAttrs, result: Type) -> Array:
    data, scale, zero_point = inputs
    scale, zero_point = (along(v, data.ndim, attrs.axis) for v in (scale, zero_point))
    return rounded(dequantized(data, scale, zero_point), attrs.out_dtype)


def _requantize_relation(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: RequantizeAttrs
) -> Type:
    data = tensor_of(ctx, arg_types, 0, QUANTIZED)
    check_parameters(ctx, arg_types, 1, 0, attrs.axis)
    check_parameters(ctx, arg_types, 3, 0, attrs.axis)
    check_rounding(ctx, attrs.rounding, attrs.compute_dtype)
    check_out_dtype(ctx, attrs.out_dtype)
    return TensorType(data.shape, attrs.out_dtype)


def _requantize(inputs: tuple[Array, ...], attrs: RequantizeAttrs, result: Type) -> Array:
    data, *parameters = inputs
    scale, zero, out_scale, out_zero = (along(v, data.ndim, attrs.axis) for v in parameters)
    modes = RoundingAttrs(attrs.rounding, attrs.compute_dtype)
    return saturated(moved(data, scale, zero, out_scale, modes) + out_zero, attrs.out_dtype)


def _record(name: str, args: str, dtypes: tuple[str, ...], **given: Any) -> None:
    register(
        Op(
            name=name,
            args=tuple(args.split()),
            pattern=OpPattern.ELEMWISE,
            effect=Effect.TOTAL,
            dtypes=(dtypes, *(("float32",), ("int32",)) * (len(args.split()) // 2)),
            doc=__doc__ or "",
            **given,
        )
    )


_record(
    "qnn.quantize", "data output_scale output_zero_point", REALS,
    attrs=QuantizeAttrs, relation=_quantize_relation, reference=_quantize,
)  # fmt: skip
_record(
    "qnn.dequantize", "data input_scale input_zero_point", QUANTIZED,
    attrs=DequantizeAttrs, relation=_dequantize_relation, reference=_dequantize,
)  # fmt: skip
_record(
    "qnn.requantize", "data input_scale input_zero_point output_scale output_zero_point", QUANTIZED,
    attrs=RequantizeAttrs, relation=_requantize_relation, reference=_requantize,
)  # fmt: skip
