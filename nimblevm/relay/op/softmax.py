"""nn.softmax, nn.fast_softmax, nn.log_softmax(data, axis=-1): exponentials that sum to one along an axis.

    softmax, fast_softmax:  out = e / sum(e) over axis,   e = exp(data - max(data) over axis)
    log_softmax:            out = log(softmax(data)) = data - max(data) - log(sum(e))

data: a float tensor of rank >= 1; result: the same shape and dtype. float16 is computed in float32; an
empty tensor gives an empty one. Attrs: axis (negative counts from the end). fast_softmax is softmax here, at its
accuracy. Source: Relay's nn.softmax, nn.log_softmax.
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


def _reference(inputs: tuple[Array, ...], attrs: SoftmaxAttrs, log: bool) -> Array:
    (data,) = inputs
    if data.size == 0:
        return data
    wide = as_wide(data)
    with np.errstate(all="ignore"):
        shifted = wide - np.max(wide, axis=attrs.axis, keepdims=True)
        powers = np.exp(shifted)
        total = np.sum(powers, axis=attrs.axis, keepdims=True)
        return rounded(shifted - np.log(total) if log else powers / total, dtype_name(data))


for _name in ("nn.softmax", "nn.fast_softmax", "nn.log_softmax"):
    register(
        Op(
            name=_name,
            args=("data",),
            attrs=SoftmaxAttrs,
            relation=_relation,
            reference=lambda inputs, attrs, result, log=_name == "nn.log_softmax": _reference(
                inputs, attrs, log
            ),
            pattern=OpPattern.OPAQUE,
            effect=Effect.TOTAL,
            dtypes=(FLOATS,),
            doc=__doc__,
            tolerance=ACCUMULATED,
        )
    )
