"""nn.dropout(data, rate=0.5): at inference nothing is dropped.

    out = (data, ones in data's shape)          the tensor and the mask of what was kept

data: a float tensor; both fields have its shape and dtype. Attrs: rate (without effect). Source: Relay's
nn.dropout after SimplifyInference.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import FLOATS, Array, Attrs, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TupleType, Type


@dataclass(frozen=True, slots=True)
class DropoutAttrs(Attrs):
    """rate: the part that training would drop, 0 <= rate < 1."""

    rate: float = 0.5


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DropoutAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    if not 0 <= attrs.rate < 1:
        raise ctx.fail(f"rate must be at least 0 and below 1, not {attrs.rate}")
    return TupleType((data, data))


def _reference(inputs: tuple[Array, ...], attrs: DropoutAttrs, result: Type) -> tuple[Array, ...]:
    return inputs[0], np.ones_like(inputs[0])


register(
    Op(
        name="nn.dropout",
        args=("data",),
        attrs=DropoutAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS,),
        doc=__doc__,
    )
)
