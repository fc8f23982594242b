"""cast_like(data, dtype_like): convert every element to the dtype of another tensor.

    out[i] = data[i] converted as `cast` does

data, dtype_like: any shapes and dtypes; result: data's shape, dtype_like's dtype. Source: Relay's
cast_like.
Differs from numpy: it is astype; see cast.
"""

from __future__ import annotations

from typing import Any

from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import ALL, Array, dtype_name, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    return TensorType(tensor_of(ctx, arg_types, 0).shape, tensor_of(ctx, arg_types, 1).dtype)


def _reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
    return convert(inputs[0], dtype_name(inputs[1]))


register(
    Op(
        name="cast_like",
        args=("data", "dtype_like"),
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.ELEMWISE,
        effect=Effect.TOTAL,
        dtypes=(ALL, ALL),
        doc=__doc__,
    )
)
