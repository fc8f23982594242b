"""expand_dims(data, axis, num_newaxis=1): insert axes of size 1.

    out.shape = data.shape[:axis] + (1,) * num_newaxis + data.shape[axis:]

data: rank r, any dtype; axis in [-r - 1, r] (negative counts from the end of the result before insertion:
-1 appends). Attrs: axis, num_newaxis >= 0. Source: Relay's expand_dims.
Differs from numpy: num_newaxis.
"""

from __future__ import annotations

from dataclasses import dataclass

from nimblevm.relay.op.common import ALL, Array, Attrs, axis_index, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class ExpandDimsAttrs(Attrs):
    """axis: where the new axes stand. num_newaxis: how many."""

    axis: int
    num_newaxis: int = 1


MOST_AXES = 1024
"""More than any tensor has; the type of a result has each axis."""


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ExpandDimsAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if attrs.num_newaxis < 0:
        raise ctx.fail(f"num_newaxis must be at least 0, not {attrs.num_newaxis}")
    if attrs.num_newaxis > MOST_AXES:
        raise ctx.fail(f"num_newaxis must be at most {MOST_AXES}, not {attrs.num_newaxis}")
    axis = axis_index(ctx, attrs.axis, len(data.shape) + 1)
    return TensorType(
        (*data.shape[:axis], *(1,) * attrs.num_newaxis, *data.shape[axis:]), data.dtype
    )


def _reference(inputs: tuple[Array, ...], attrs: ExpandDimsAttrs, result: Type) -> Array:
    (data,) = inputs
    axis = attrs.axis % (data.ndim + 1)
    return data.reshape(data.shape[:axis] + (1,) * attrs.num_newaxis + data.shape[axis:])


register(
    Op(
        name="expand_dims",
        args=("data",),
        attrs=ExpandDimsAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
        views=True,
    )
)
