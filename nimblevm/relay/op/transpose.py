"""transpose(data, axes=None): permute the axes.

    out.shape[i] = data.shape[axes[i]];  axes None reverses all axes

data: any rank and dtype; result: data's dtype. Attrs: axes (each axis once; negative counts from the
end). Source: Relay's transpose.
Differs from numpy: none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import ALL, Array, Attrs, axis_list, set_axes, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class TransposeAttrs(Attrs):
    """axes: the permutation, or None for all axes reversed."""

    axes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        set_axes(self, "axes")
        Attrs.__post_init__(self)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: TransposeAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    rank = len(data.shape)
    if attrs.axes is None:
        return TensorType(tuple(reversed(data.shape)), data.dtype)
    axes = axis_list(ctx, attrs.axes, rank)
    if len(axes) != rank:
        raise ctx.fail(f"axes {attrs.axes} must name each of the {rank} axes once", 0)
    return TensorType((data.shape[a] for a in axes), data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: TransposeAttrs, result: Type) -> Array:
    return (
        np.ascontiguousarray(np.transpose(inputs[0], attrs.axes)) if inputs[0].ndim else inputs[0]
    )


register(
    Op(
        name="transpose",
        args=("data",),
        attrs=TransposeAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
