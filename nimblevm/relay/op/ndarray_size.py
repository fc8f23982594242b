"""ndarray_size(data, dtype="int32"): the number of elements.

    out = data.shape[0] * ... * data.shape[r - 1]          1 for rank 0

data: any shape and dtype; result: rank 0, int32 or int64 (a number that does not fit int32 wraps). Attrs:
dtype. Source: Relay's ndarray_size.
Differs from numpy: a tensor, not an int.
"""

from __future__ import annotations

import numpy as np

from nimblevm.relay.op.common import ALL, Array, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.shape_of import ShapeOfAttrs
from nimblevm.relay.types import Type, scalar_type


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ShapeOfAttrs) -> Type:
    tensor_of(ctx, arg_types, 0)
    if attrs.dtype not in ("int32", "int64"):
        raise ctx.fail(f"dtype must be int32 or int64, not {attrs.dtype!r}")
    return scalar_type(attrs.dtype)


def _reference(inputs: tuple[Array, ...], attrs: ShapeOfAttrs, result: Type) -> Array:
    return np.asarray(inputs[0].size, "int64").astype(attrs.dtype)


register(
    Op(
        name="ndarray_size",
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
