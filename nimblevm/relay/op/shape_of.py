"""shape_of(data, dtype="int32"): the sizes of a tensor as a tensor.

    out = (data.shape[0], ..., data.shape[r - 1])

data: any dtype, rank r; result: shape (r,) of int32 or int64 (a size that does not fit int32 wraps).
Attrs: dtype. Source: Relay's shape_of.
Differs from numpy: a tensor, not a tuple.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import ALL, Array, Attrs, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class ShapeOfAttrs(Attrs):
    """dtype: int32 or int64."""

    dtype: str = "int32"


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ShapeOfAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if attrs.dtype not in ("int32", "int64"):
        raise ctx.fail(f"dtype must be int32 or int64, not {attrs.dtype!r}")
    return TensorType((len(data.shape),), attrs.dtype)


def _reference(inputs: tuple[Array, ...], attrs: ShapeOfAttrs, result: Type) -> Array:
    return np.asarray(inputs[0].shape, "int64").astype(attrs.dtype)


register(
    Op(
        name="shape_of",
        args=("data",),
        attrs=ShapeOfAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
