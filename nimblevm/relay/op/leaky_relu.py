"""nn.leaky_relu(data, alpha=0.01): the rectifier that lets a part of negative values pass.

    out[i] = data[i] if data[i] > 0 else alpha * data[i]          NaN stays NaN

data: a float tensor; result: the same shape and dtype. alpha is rounded to data's dtype (float16: to
float32, in which the product is computed). Attrs: alpha. Source: Relay's nn.leaky_relu.
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
    dtype_name,
    rounded,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type


@dataclass(frozen=True, slots=True)
class LeakyReluAttrs(Attrs):
    """alpha: the slope below 0."""

    alpha: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", float(self.alpha))


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: LeakyReluAttrs) -> Type:
    return tensor_of(ctx, arg_types, 0, FLOATS)


def _reference(inputs: tuple[Array, ...], attrs: LeakyReluAttrs, result: Type) -> Array:
    data = as_compute(inputs[0])
    with np.errstate(all="ignore"):
        small = data * data.dtype.type(attrs.alpha)
        return rounded(np.where(data > 0, data, small), dtype_name(inputs[0]))


register(
    Op(
        name="nn.leaky_relu",
        args=("data",),
        attrs=LeakyReluAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.ELEMWISE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS,),
        doc=__doc__,
    )
)
