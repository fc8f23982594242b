"""repeat(data, repeats, axis): every slice along an axis several times in a row.

    out[.., i, ..] = data[.., i // repeats, ..]

data: rank >= 1, any dtype. Result: data's shape with `repeats` times the size on `axis` (negative counts
from the end), data's dtype. Attrs: repeats (>= 1), axis. Source: Relay's repeat.
Differs from numpy: repeats is one number, the axis must be given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay import dims
from nimblevm.relay.op.common import ALL, Array, Attrs, axis_index, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class RepeatAttrs(Attrs):
    """repeats: how often each slice occurs. axis: along which axis."""

    repeats: int
    axis: int = 0


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: RepeatAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    if not isinstance(attrs.repeats, int) or attrs.repeats < 1:
        raise ctx.fail(f"repeats must be an integer >= 1, not {attrs.repeats!r}")
    shape = list(data.shape)
    shape[axis] = dims.mul(shape[axis], attrs.repeats)
    return TensorType(shape, data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: RepeatAttrs, result: Type) -> Array:
    return np.repeat(inputs[0], attrs.repeats, attrs.axis)


register(
    Op(
        name="repeat",
        args=("data",),
        attrs=RepeatAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
