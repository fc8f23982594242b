"""nn.prelu(data, alpha, axis=1): leaky_relu with a slope for each position on an axis.

    out[..., i, ...] = d if d > 0 else d * alpha[i],   d = data[..., i, ...]      i on `axis`; NaN stays NaN

data: a float tensor of rank >= 1; alpha: rank 1 of the size of `axis`, the same dtype. Result: data's
shape and dtype. float16 is computed in float32. Attrs: axis. Source: Relay's nn.prelu.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import (
    FLOATS,
    Array,
    Attrs,
    as_compute,
    axis_index,
    dtype_name,
    rounded,
    tensor_of,
)
from nimblevm.relay.op.norm import along_axis, channel_vectors
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type


@dataclass(frozen=True, slots=True)
class PReluAttrs(Attrs):
    """axis: the axis of data that alpha lies along."""

    axis: int = 1


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: PReluAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    return channel_vectors(ctx, arg_types, data, axis, ("alpha",))[0]


def _reference(inputs: tuple[Array, ...], attrs: PReluAttrs, result: Type) -> Array:
    data = as_compute(inputs[0])
    slope = along_axis("nn.prelu", "alpha", inputs[1], inputs[0], attrs.axis)
    with np.errstate(all="ignore"):
        return rounded(np.where(data > 0, data, data * as_compute(slope)), dtype_name(inputs[0]))


register(
    Op(
        name="nn.prelu",
        args=("data", "alpha"),
        attrs=PReluAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.BROADCAST,
        effect=Effect.TOTAL,
        dtypes=(FLOATS,),
        doc=__doc__,
    )
)
