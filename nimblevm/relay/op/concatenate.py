"""concatenate(data, axis=0): join tensors along an axis.

    out = data[0], data[1], ... one after the other along `axis`

data: a tuple of at least one tensor of one dtype and rank >= 1, equal but for `axis` (negative counts
from the end). Result: the same shape with the sum of the sizes on `axis`. Attrs: axis. Source: Relay's
_transform.py.
Differs from numpy: dtypes are not promoted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import ALL, Array, Attrs, axis_index, require_same, tensor_fields
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class ConcatenateAttrs(Attrs):
    """axis: where to join."""

    axis: int = 0


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ConcatenateAttrs) -> Type:
    parts = tensor_fields(ctx, arg_types)
    rank = len(parts[0].shape)
    axis = axis_index(ctx, attrs.axis, rank)
    shape: list[Dim] = list(parts[0].shape)
    # The check of an axis is against the first part that knows it best.
    known = [0] * rank
    for position, part in enumerate(parts[1:], 1):
        if len(part.shape) != rank:
            raise ctx.fail(
                f"ranks differ: field 0 has rank {rank}, field {position} rank {len(part.shape)}", 0
            )
        for at, size in enumerate(part.shape):
            if at == axis:
                shape[at] = dims.add(shape[at], size)
                continue
            require_same(ctx, ((0, known[at]), at, shape[at]), ((0, position), at, size))
            if isinstance(size, int) and not isinstance(shape[at], int):
                shape[at], known[at] = size, position
    return TensorType(shape, parts[0].dtype)


def _reference(inputs: tuple[tuple[Array, ...]], attrs: ConcatenateAttrs, result: Type) -> Array:
    try:
        return np.concatenate(inputs[0], axis=attrs.axis)
    except ValueError:
        shapes = ", ".join(str(part.shape) for part in inputs[0])
        raise ShapeMismatch(
            f"concatenate: shapes {shapes} differ outside axis {attrs.axis}"
        ) from None


register(
    Op(
        name="concatenate",
        args=("data",),
        attrs=ConcatenateAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
        variadic=True,
    )
)
