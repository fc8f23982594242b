"""argwhere(condition): the coordinates of the elements that are not zero.

    out[d] = the coordinates of the d-th element, in row-major order, with condition[out[d]] != 0

condition: any shape and dtype; NaN is not zero. Result: (the number of such elements, rank), int32; the number depends
on data. A scalar gives (1, 0) or (0, 0). Source: Relay's argwhere.
Differs from numpy: int32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.relay.op.common import ALL, Array, product, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    condition = tensor_of(ctx, arg_types, 0)
    return TensorType((ctx.fresh_dim(), len(condition.shape)), "int32")


def _bound(arg_types: tuple[Type, ...], attrs: Any) -> tuple[TensorType, ...]:
    (condition,) = arg_types
    if not isinstance(condition, TensorType):
        raise TypeError(f"argwhere of {condition!r}")
    return (TensorType((product(condition.shape), len(condition.shape)), "int32"),)


def _reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
    (condition,) = inputs
    if condition.ndim == 0:
        return np.zeros((int(bool(condition)), 0), "int32")
    return np.argwhere(condition).astype("int32")


register(
    Op(
        name="argwhere",
        args=("condition",),
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
        bound=_bound,
    )
)
