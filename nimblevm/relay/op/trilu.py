"""trilu(data, k, upper=True): the upper or lower triangle of the last two axes, zeros elsewhere.

    out[.., i, j] = data[.., i, j] where j - i >= k (upper) or j - i <= k (lower), else 0

data: rank >= 2, any dtype; k: an int32 or int64 scalar. Result: data's type. Attrs: upper. Source: Relay's
trilu.
Differs from numpy: triu and tril in one, k a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import ALL, Array, Attrs, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type

DIAGONALS = ("int32", "int64")


@dataclass(frozen=True, slots=True)
class TriluAttrs(Attrs):
    """upper: keep the upper triangle, else the lower."""

    upper: bool = True


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: TriluAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if len(data.shape) < 2:
        raise ctx.fail(f"data must have rank 2 or more, not {len(data.shape)}", 0)
    if tensor_of(ctx, arg_types, 1, DIAGONALS).shape:
        raise ctx.fail("k must be a scalar", 1)
    return data


def _reference(inputs: tuple[Array, ...], attrs: TriluAttrs, result: Type) -> Array:
    data, k = inputs
    rows, columns = np.arange(data.shape[-2])[:, None], np.arange(data.shape[-1])[None, :]
    kept = columns - rows >= k if attrs.upper else columns - rows <= k
    return np.where(kept, data, np.zeros((), data.dtype))


register(
    Op(
        name="trilu",
        args=("data", "k"),
        attrs=TriluAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL, DIAGONALS),
        doc=__doc__,
    )
)
