"""Quantization as it would be, in floats: what a calibration runs before it decides on dtypes.

    qnn.simulated_quantize(data, out_dtype, output_scale, output_zero_point)
        out = min(max(round(data / output_scale) + output_zero_point, least), greatest)          half away from zero
    qnn.simulated_dequantize(data, in_dtype, input_scale, input_zero_point)
        out = (data - input_zero_point) * input_scale

out_dtype, in_dtype: a scalar of int32, which may be the run's: 1 means int8, 2 uint8, 3 int32, and every other number
(TVM: 0, "disable") that data passes as it is; least and greatest are those of the dtype. data: float32, any shape; the
result has its type. Scales (float32) and zero points (int32) are scalars or vectors along `axis`. NaN stays NaN.
Attrs: axis. Source: Relay's qnn dialect.
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import Array, Attrs, tensor_of
from nimblevm.relay.op.qnn_common import along, check_parameters, check_scalar
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.unary import round_away
from nimblevm.relay.types import Type

CODES = {"disable": 0, "int8": 1, "uint8": 2, "int32": 3}
"""TVM's numbers of dtypes."""


@dataclass(frozen=True, slots=True)
class SimulatedAttrs(Attrs):
    """axis: of vectors of scales and zero points."""

    axis: int = -1


def limits(code: int) -> tuple[np.float32, np.float32]:
    """The least and the greatest number of the dtype that `code` means."""
    name = next(name for name, number in CODES.items() if number == code)
    info = np.iinfo(name)
    return np.float32(info.min), np.float32(info.max)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SimulatedAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, ("float32",))
    check_scalar(ctx, arg_types, 1, "int32")
    check_parameters(ctx, arg_types, 2, 0, attrs.axis)
    return data


def _parameters(inputs: tuple[Array, ...], attrs: SimulatedAttrs) -> tuple[Array, Array]:
    scale, zero_point = (along(v, inputs[0].ndim, attrs.axis) for v in inputs[2:])
    return scale, zero_point.astype("float32")


def _quantize(inputs: tuple[Array, ...], attrs: SimulatedAttrs, result: Type) -> Array:
    data, code = inputs[0], int(inputs[1])
    if code not in (1, 2, 3):
        return data
    scale, zero_point = _parameters(inputs, attrs)
    least, greatest = limits(code)
    with np.errstate(all="ignore"):
        value = round_away(np.asarray(data / scale)) + zero_point
        return np.asarray(np.maximum(np.minimum(value, greatest), least))


def _dequantize(inputs: tuple[Array, ...], attrs: SimulatedAttrs, result: Type) -> Array:
    data, code = inputs[0], int(inputs[1])
    if code not in (1, 2, 3):
        return data
    scale, zero_point = _parameters(inputs, attrs)
    with np.errstate(all="ignore"):
        return np.asarray((data - zero_point) * scale)


for _name, _args, _reference in (
    ("quantize", ("data", "out_dtype", "output_scale", "output_zero_point"), _quantize),
    ("dequantize", ("data", "in_dtype", "input_scale", "input_zero_point"), _dequantize),
):
    register(
        Op(
            name=f"qnn.simulated_{_name}",
            args=_args,
            attrs=SimulatedAttrs,
            relation=_relation,
            reference=_reference,
            pattern=OpPattern.ELEMWISE,
            effect=Effect.TOTAL,
            dtypes=(("float32",), ("int32",), ("float32",), ("int32",)),
            doc=__doc__ or "",
        )
    )
