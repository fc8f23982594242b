"""dyn.window(data): a slice whose bounds are dims; passes write it for dyn.strided_slice.

    out[i, ..] = data[starts[0] + i * (up[0] - down[0]), ..]          for each axis

data: any dtype; starts, up, down, shape: one size an axis, which may be dim expressions of dims known there.
The caller proves that the positions lie inside. Result: `shape`, data's dtype. Attrs: starts, up, down,
shape.
Differs from numpy: strides are differences of sizes, since dims are never negative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import ALL, Array, Attrs, shape_attr, tensor_of
from nimblevm.relay.op.full import concrete_shape
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class WindowAttrs(Attrs):
    """starts: first positions. up, down: strides, of which one is 0. shape: sizes of the result."""

    starts: tuple[Dim, ...]
    up: tuple[Dim, ...]
    down: tuple[Dim, ...]
    shape: tuple[Dim, ...]


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: WindowAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    parts = [shape_attr(ctx, p) for p in (attrs.starts, attrs.up, attrs.down, attrs.shape)]
    if any(len(part) != len(data.shape) for part in parts):
        raise ctx.fail(f"starts, up, down and shape must have {len(data.shape)} entries", 0)
    return TensorType(attrs.shape, data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: WindowAttrs, result: Type) -> Array:
    (data,) = inputs
    starts, up, down, shape = (
        concrete_shape("dyn.window", p) for p in (attrs.starts, attrs.up, attrs.down, attrs.shape)
    )
    places = [
        s + np.arange(n) * (u - d) for s, u, d, n in zip(starts, up, down, shape, strict=True)
    ]
    return np.array(data[np.ix_(*places)]) if places else np.array(data)


register(
    Op(
        name="dyn.window",
        args=("data",),
        attrs=WindowAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
