"""Sums, differences, products and joins of quantized tensors of different scales.

    qnn.add, qnn.subtract:  out = L + R + output_zero_point, L - R + output_zero_point              saturated
        with L and R the operands requantized to output_scale and the zero point 0, in 64 bits
    qnn.mul:                out = qnn.requantize of (lhs - lhs_zero_point) * (rhs - rhs_zero_point) in int32, which
        has the scale lhs_scale * rhs_scale (in float32) and the zero point 0
    qnn.concatenate:        out = the fields of data, each requantized, one after the other along `axis`

lhs and rhs have one dtype, which is the result's, and shapes that broadcast. Their scales (float32) and zero points
(int32) are scalars or vectors along lhs_axis and rhs_axis; those of the result, and those of concatenate's fields, are
scalars. data, input_scales and input_zero_points are tuples of one length. Attrs: lhs_axis, rhs_axis or axis; rounding
and compute_dtype as qnn.requantize has them (TVM takes these two from requantize_config only).
Source: Relay's qnn dialect.
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay.op.common import Array, Attrs, same_dtype, tensor_fields, tensor_of
from nimblevm.relay.op.qnn_common import (
    QUANTIZED,
    UNSET,
    RoundingAttrs,
    along,
    check_parameters,
    check_rounding,
    check_scalars,
    moved,
    saturated,
    shifted,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, get, register
from nimblevm.relay.types import TensorType, TupleType, Type

ARGS = """lhs rhs lhs_scale lhs_zero_point rhs_scale rhs_zero_point output_scale output_zero_point""".split()
ZERO = np.asarray(0, "int32")


@dataclass(frozen=True, slots=True)
class BroadcastAttrs(Attrs):
    """lhs_axis, rhs_axis: of vectors of scales and zero points. rounding, compute_dtype: as in qnn.requantize."""

    lhs_axis: int = -1
    rhs_axis: int = -1
    rounding: str = UNSET
    compute_dtype: str = UNSET


@dataclass(frozen=True, slots=True)
class ConcatenateAttrs(Attrs):
    """axis: where to join. rounding, compute_dtype: as in qnn.requantize."""

    axis: int = 0
    rounding: str = UNSET
    compute_dtype: str = UNSET


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: BroadcastAttrs) -> Type:
    lhs, rhs = (tensor_of(ctx, arg_types, index, QUANTIZED) for index in range(2))
    same_dtype(ctx, lhs, rhs, 1)
    check_parameters(ctx, arg_types, 2, 0, attrs.lhs_axis)
    check_parameters(ctx, arg_types, 4, 1, attrs.rhs_axis)
    check_scalars(ctx, arg_types, 6)
    check_rounding(ctx, attrs.rounding, attrs.compute_dtype)
    return TensorType(ctx.broadcast(((0, lhs.shape), (1, rhs.shape))), lhs.dtype)


def _operands(inputs: tuple[Array, ...], attrs: BroadcastAttrs) -> list[tuple[Array, Array, Array]]:
    """(tensor, scale, zero point) of both sides, shaped to be broadcast."""
    sides = ((inputs[0], inputs[2:4], attrs.lhs_axis), (inputs[1], inputs[4:6], attrs.rhs_axis))
    return [(q, *(along(v, q.ndim, axis) for v in given)) for q, given, axis in sides]  # type: ignore[misc]


def _sum(sign: int) -> Callable[[tuple[Array, ...], BroadcastAttrs, Type], Array]:
    def reference(inputs: tuple[Array, ...], attrs: BroadcastAttrs, result: Type) -> Array:
        scale, zero = inputs[6:]
        modes = RoundingAttrs(attrs.rounding, attrs.compute_dtype)
        lhs, rhs = (moved(*side, scale, modes) for side in _operands(inputs, attrs))
        return saturated(np.asarray(lhs + sign * rhs + zero), inputs[0].dtype.name)

    return reference


def _product(inputs: tuple[Array, ...], attrs: BroadcastAttrs, result: Type) -> Array:
    (lhs, lhs_scale, lhs_zero), (rhs, rhs_scale, rhs_zero) = _operands(inputs, attrs)
    modes = RoundingAttrs(attrs.rounding, attrs.compute_dtype)
    with np.errstate(all="ignore"):
        product = np.asarray(shifted(lhs, lhs_zero) * shifted(rhs, rhs_zero))
        scale = np.asarray(lhs_scale * rhs_scale)
    found = moved(product, scale, ZERO, inputs[6], modes)
    return saturated(np.asarray(found + inputs[7]), inputs[0].dtype.name)


def _concatenate_relation(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ConcatenateAttrs
) -> Type:
    parts = tensor_fields(ctx, arg_types)
    if parts[0].dtype not in QUANTIZED:
        raise ctx.fail(f"argument 0 must have tensors of {', '.join(QUANTIZED)}", 0)
    for index, dtype in ((1, "float32"), (2, "int32")):
        found = arg_types[index]
        if not isinstance(found, TupleType) or len(found.fields) != len(parts):
            raise ctx.fail(
                f"argument {index} must be a tuple of {len(parts)} scalars, one a tensor", index
            )
        if any(field is not TensorType((), dtype) for field in found.fields):
            raise ctx.fail(f"argument {index} must be a tuple of scalars of {dtype}", index)
    check_scalars(ctx, arg_types, 3)
    check_rounding(ctx, attrs.rounding, attrs.compute_dtype)
    joined = get("concatenate")
    return joined.relation(ctx, arg_types[:1], joined.attrs(attrs.axis) if joined.attrs else None)


def _concatenate(inputs: tuple[Any, ...], attrs: ConcatenateAttrs, result: Type) -> Array:
    data, scales, zeros, scale, zero = inputs
    modes = RoundingAttrs(attrs.rounding, attrs.compute_dtype)
    parts = [
        saturated(np.asarray(moved(q, s, z, scale, modes) + zero), q.dtype.name)
        for q, s, z in zip(data, scales, zeros, strict=True)
    ]
    return np.concatenate(parts, axis=attrs.axis)


for _name, _reference in (("add", _sum(1)), ("subtract", _sum(-1)), ("mul", _product)):
    register(
        Op(
            name=f"qnn.{_name}",
            args=tuple(ARGS),
            attrs=BroadcastAttrs,
            relation=_relation,
            reference=_reference,
            pattern=OpPattern.BROADCAST,
            effect=Effect.TOTAL,
            dtypes=(QUANTIZED, QUANTIZED, *(("float32",), ("int32",)) * 3),
            doc=__doc__ or "",
        )
    )
register(
    Op(
        name="qnn.concatenate",
        args=("data", "input_scales", "input_zero_points", "output_scale", "output_zero_point"),
        attrs=ConcatenateAttrs,
        relation=_concatenate_relation,
        reference=_concatenate,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(QUANTIZED, *(("float32",), ("int32",)) * 2),
        doc=__doc__ or "",
    )
)
