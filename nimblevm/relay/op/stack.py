"""stack(data, axis=0): join tensors of one shape along a new axis.

    out[..., j, ...] = data[j][..., ...]          j on the new axis `axis`

data: a tuple of at least one tensor of one dtype and shape (rank r). Result: rank r + 1; axis in [-r - 1,
r]. Attrs: axis. Source: Relay's _transform.py.
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
class StackAttrs(Attrs):
    """axis: where the new axis stands in the result."""

    axis: int = 0


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: StackAttrs) -> Type:
    parts = tensor_fields(ctx, arg_types)
    axis = axis_index(ctx, attrs.axis, len(parts[0].shape) + 1)
    shape = common_shape(ctx, parts)
    return TensorType((*shape[:axis], len(parts), *shape[axis:]), parts[0].dtype)


def _reference(inputs: tuple[tuple[Array, ...]], attrs: StackAttrs, result: Type) -> Array:
    try:
        return np.stack(inputs[0], axis=attrs.axis)
    except ValueError:
        shapes = ", ".join(str(part.shape) for part in inputs[0])
        raise ShapeMismatch(f"stack: shapes {shapes} differ") from None


register(
    Op(
        name="stack",
        args=("data",),
        attrs=StackAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
        variadic=True,
    )
)
