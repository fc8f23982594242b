"""nn.softmax(data, axis=-1): exponentials that sum to one along an axis.

    out = e / sum(e) over axis,   e = exp(data - max(data) over axis)

data: a float tensor of rank >= 1; result: the same shape and dtype. float16 is computed in float32; an
empty tensor gives an empty one. Attrs: axis (negative counts from the end). Source: Relay's nn.softmax.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    as_wide,
    axis_index,
    dtype_name,
    rounded,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type


@dataclass(frozen=True, slots=True)
class SoftmaxAttrs(Attrs):
    """axis: the axis that sums to one."""

    axis: int = -1


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SoftmaxAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    axis_index(ctx, attrs.axis, len(data.shape))
    return data


def _reference(inputs: tuple[Array, ...], attrs: SoftmaxAttrs, result: Type) -> Array:
    (data,) = inputs
    if data.size == 0:
        return data
    wide = as_wide(data)
    with np.errstate(all="ignore"):
        powers = np.exp(wide - np.max(wide, axis=attrs.axis, keepdims=True))
        return rounded(powers / np.sum(powers, axis=attrs.axis, keepdims=True), dtype_name(data))


register(
    Op(
        name="nn.softmax",
        args=("data",),
        attrs=SoftmaxAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS,),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
