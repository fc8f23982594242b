"""broadcast_to(data, shape): stretch axes of size 1, and add axes in front.

    out[i] = data[i with axes of size 1 at 0]            aligned at the last axis

data: any dtype, rank <= len(shape); each axis of data is 1 or the size in `shape`. Result: `shape`,
data's dtype. Attrs: shape (sizes, which may be dim expressions of dims known there). Source: Relay's
broadcast_to.
Differs from numpy: none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import ALL, Array, Attrs, set_axes, shape_attr, tensor_of
from nimblevm.relay.op.full import concrete_shape
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class BroadcastToAttrs(Attrs):
    """shape: the shape of the result."""

    shape: tuple[Dim, ...]

    def __post_init__(self) -> None:
        set_axes(self, "shape")
        Attrs.__post_init__(self)


def require_stretch(ctx: TypeContext, data: TensorType, shape: tuple[Dim, ...]) -> None:
    """Demand that argument 0, of type `data`, can be stretched to `shape`."""
    if len(shape) < len(data.shape):
        raise ctx.fail(f"shape has {len(shape)} axes, fewer than data's {len(data.shape)}", 0)
    first = len(shape) - len(data.shape)
    for axis, size in enumerate(data.shape):
        target = shape[first + axis]
        if size == 1 or size is target:
            continue
        if isinstance(size, int) or target == 1:
            ctx.require_dim(0, axis, target)
        else:
            # "1 or the target" as one equation, since demands are equations between dims.
            excess = dims.mul(dims.sub(size, 1), dims.sub(size, target))
            ctx.require_dim(0, axis, dims.add(size, excess))


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: BroadcastToAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    shape = shape_attr(ctx, attrs.shape)
    require_stretch(ctx, data, shape)
    return TensorType(shape, data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: BroadcastToAttrs, result: Type) -> Array:
    (data,) = inputs
    shape = concrete_shape("broadcast_to", attrs.shape)
    try:
        return np.array(np.broadcast_to(data, shape))
    except ValueError:
        raise ShapeMismatch(f"broadcast_to: {data.shape} does not broadcast to {shape}") from None


register(
    Op(
        name="broadcast_to",
        args=("data",),
        attrs=BroadcastToAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.BROADCAST,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
