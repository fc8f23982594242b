"""qnn.softmax(data, scale, zero_point, output_scale, output_zero_point): softmax in integers alone.

With x = data - max(data) over axis, which no zero point changes, and u = max(1, round(1 / scale)), the step of x that
stands for 1:

    y = x + floor(x / 2) - floor(x / 16)                    x * log2(e), so that e**(x / u) = 2**(y / u)
    q = floor(-y / u),  r = y + q u                         -u < r <= 0
    e = floor(2**(8 - q) * (floor(r / 2) + u))              256 u * 2**(y / u), nearly: 2**(r / u) by a line
    p = floor(floor(2**30 / sum(e) over axis) * e / 2**23)  128 times a softmax
    out = qnn.requantize(p, 1 / 128, 0, output_scale, output_zero_point)

all exact integers. data: int8 or uint8 of rank >= 1; the result has its type. Scales (float32) and zero points (int32)
are scalars. A result is off by up to 0.04 for scales of up to 0.1, and by more for coarser ones, as u is a whole
number; where sum(e) is above 2**30, all are 0. Attrs: axis; rounding and compute_dtype as qnn.requantize has them.
Source: Relay's qnn dialect; Z. Li and Q. Gu, "I-ViT", arXiv 2207.01405, algorithm 1. TVM takes int8 alone; its sums are
int32, and q above 8, as well as 1 / scale below 1/2, have no result there.
Differs from numpy: there is no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import BYTES, Array, Attrs, axis_index, tensor_of
from nimblevm.relay.op.qnn_common import (
    UNSET,
    RoundingAttrs,
    check_rounding,
    check_scalars,
    moved,
    saturated,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.unary import round_away
from nimblevm.relay.types import Type

BITS = 8
"""Of the fraction of an exponential."""
WHOLE, KEPT = 30, 7
"""Bits of 1 as the numerator of 1 / sum, and of 1 in what is requantized."""


@dataclass(frozen=True, slots=True)
class SoftmaxAttrs(Attrs):
    """axis: the axis that sums to one. rounding, compute_dtype: as in qnn.requantize."""

    axis: int = -1
    rounding: str = UNSET
    compute_dtype: str = UNSET


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SoftmaxAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, BYTES)
    axis_index(ctx, attrs.axis, len(data.shape))
    check_rounding(ctx, attrs.rounding, attrs.compute_dtype)
    check_scalars(ctx, arg_types, 1)
    return data


def _reference(inputs: tuple[Array, ...], attrs: SoftmaxAttrs, result: Type) -> Array:
    data, scale, _, out_scale, out_zero_point = inputs
    if data.size == 0:
        return data
    with np.errstate(all="ignore"):
        inverse = convert(np.asarray(round_away(np.float32(1) / scale)), "int32")
        unit = np.maximum(inverse, 1).astype("int64")
        x = data.astype("int64")
        x = x - x.max(attrs.axis, keepdims=True)
        y = x + (x >> 1) - (x >> 4)
        q = -y // unit
        line = ((y + q * unit) >> 1) + unit
        powers = (line << np.maximum(BITS - q, 0)) >> np.minimum(np.maximum(q - BITS, 0), 63)
        total = powers.sum(attrs.axis, keepdims=True)
        parts = ((1 << WHOLE) // total * powers) >> (WHOLE - KEPT)
        one = np.asarray(2.0**-KEPT, "float32")
        modes = RoundingAttrs(attrs.rounding, attrs.compute_dtype)
        found = moved(parts.astype("int32"), one, np.zeros((), "int32"), out_scale, modes)
        return saturated(found + out_zero_point, data.dtype.name)


register(
    Op(
        name="qnn.softmax",
        args=("data", "scale", "zero_point", "output_scale", "output_zero_point"),
        attrs=SoftmaxAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(BYTES, *(("float32",), ("int32",)) * 2),
        doc=__doc__,
    )
)
