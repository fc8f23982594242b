"""squeeze(data, axis=None): remove axes of size 1.

    out.shape = data.shape without the axes in `axis`; None removes every axis of size 1

data: any rank and dtype. The named axes must have size 1 (checked at run time where unknown). Without
`axis` every size must be known, since the rank of the result depends on them. Attrs: axis (tuple;
negative counts from the end). Source: Relay's squeeze.
Differs from numpy: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.op.common import ALL, Array, Attrs, axis_list, set_axes, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class SqueezeAttrs(Attrs):
    """axis: the axes to remove, or None."""

    axis: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        set_axes(self)
        Attrs.__post_init__(self)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SqueezeAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if attrs.axis is None:
        if any(not isinstance(d, int) for d in data.shape):
            raise ctx.fail("squeeze of a tensor with unknown dims needs `axis`", 0)
        return TensorType((d for d in data.shape if d != 1), data.dtype)
    axes = axis_list(ctx, attrs.axis, len(data.shape))
    for axis in axes:
        ctx.require_dim(0, axis, 1)
    return TensorType((d for a, d in enumerate(data.shape) if a not in axes), data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: SqueezeAttrs, result: Type) -> Array:
    (data,) = inputs
    if attrs.axis is None:
        return data.reshape(tuple(d for d in data.shape if d != 1))
    axes = {a % data.ndim for a in attrs.axis}
    if any(data.shape[a] != 1 for a in axes):
        raise ShapeMismatch(f"squeeze: axes {sorted(axes)} of {data.shape} must have size 1")
    return data.reshape(tuple(d for a, d in enumerate(data.shape) if a not in axes))


register(
    Op(
        name="squeeze",
        args=("data",),
        attrs=SqueezeAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
        views=True,
    )
)
