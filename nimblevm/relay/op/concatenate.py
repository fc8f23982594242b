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
from nimblevm.relay.op.common import ALL, Array, Attrs, axis_index, common_shape, tensor_fields
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class ConcatenateAttrs(Attrs):
    """axis: where to join."""

    axis: int = 0


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ConcatenateAttrs) -> Type:
    parts = tensor_fields(ctx, arg_types)
    axis = axis_index(ctx, attrs.axis, len(parts[0].shape))
    return TensorType(common_shape(ctx, parts, axis), parts[0].dtype)


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
