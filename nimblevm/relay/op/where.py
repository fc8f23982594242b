"""where(condition, x, y): choose elementwise.

    out[i] = x[i] if condition[i] else y[i]          the three shapes broadcast by numpy's rule

condition: bool or a number (not 0 is true; NaN is true); x, y: one dtype. Result: the broadcast shape,
x's dtype. Source: Relay's where.
Differs from numpy: all three arguments are needed; dtypes are not promoted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.relay.op.common import ALL, Array, check_broadcastable, same_dtype, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    condition = tensor_of(ctx, arg_types, 0)
    x = tensor_of(ctx, arg_types, 1)
    y = tensor_of(ctx, arg_types, 2)
    same_dtype(ctx, x, y, 2)
    return TensorType(ctx.broadcast(((0, condition.shape), (1, x.shape), (2, y.shape))), x.dtype)


def _reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
    condition, x, y = inputs
    check_broadcastable("where", condition, x, y)
    return np.asarray(np.where(condition != 0, x, y))


register(
    Op(
        name="where",
        args=("condition", "x", "y"),
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.BROADCAST,
        effect=Effect.TOTAL,
        dtypes=(ALL, ALL, ALL),
        doc=__doc__,
    )
)
