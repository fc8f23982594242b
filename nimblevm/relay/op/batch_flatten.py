"""nn.batch_flatten(data): all axes but the first made one.

    out.shape = (data.shape[0], data.shape[1] * ... * data.shape[r - 1])

data: rank >= 1, any dtype; result: rank 2, the same elements in the same order. Source: Relay's
nn.batch_flatten.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.relay.op.common import ALL, Array, product, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if not data.shape:
        raise ctx.fail("data must have rank 1 or more, not 0", 0)
    return TensorType((data.shape[0], product(data.shape[1:])), data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
    data = inputs[0]
    return data.reshape(data.shape[0], int(np.prod(data.shape[1:], dtype=np.int64)))


register(
    Op(
        name="nn.batch_flatten",
        args=("data",),
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
        views=True,
    )
)
