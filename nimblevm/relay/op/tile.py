"""tile(data, reps): data repeated as a whole along each axis.

    out[i0, i1, ...] = data[i0 mod n0, i1 mod n1, ...]      the shorter of shape and reps gets ones in front

data: any rank and dtype. Result: sizes n * reps, data's dtype. Attrs: reps (sizes >= 0, which may be dim
expressions of dims known there). Source: Relay's tile.
Differs from numpy: none (a repetition of 0 is an error in TVM).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import ALL, Array, Attrs, set_axes, shape_attr, tensor_of
from nimblevm.relay.op.full import concrete_shape
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class TileAttrs(Attrs):
    """reps: how often, one entry an axis, aligned right."""

    reps: tuple[Dim, ...]

    def __post_init__(self) -> None:
        set_axes(self, "reps")
        Attrs.__post_init__(self)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: TileAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    reps = shape_attr(ctx, attrs.reps)
    rank = max(len(reps), len(data.shape))
    sizes = (*(1,) * (rank - len(data.shape)), *data.shape)
    times = (*(1,) * (rank - len(reps)), *reps)
    return TensorType(map(dims.mul, sizes, times), data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: TileAttrs, result: Type) -> Array:
    return np.tile(inputs[0], concrete_shape("tile", attrs.reps))


register(
    Op(
        name="tile",
        args=("data",),
        attrs=TileAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
