"""clip(a, a_min, a_max): limit every element.

    out[i] = min(max(a[i], a_min), a_max)            NaN stays NaN

a: a numeric tensor; result: the same shape and dtype. The bounds are converted to a's dtype as `cast`
does: towards zero and saturated for integers. Attrs: a_min, a_max (floats). Source: Relay's clip.
Differs from numpy: the bounds do not change the dtype.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import NUMERIC, Array, Attrs, dtype_name, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type


@dataclass(frozen=True, slots=True)
class ClipAttrs(Attrs):
    """a_min, a_max: the least and the greatest value of the result."""

    a_min: float
    a_max: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "a_min", float(self.a_min))
        object.__setattr__(self, "a_max", float(self.a_max))


def bounds(attrs: ClipAttrs, dtype: str) -> tuple[Array, Array]:
    """The bounds as rank-0 arrays of `dtype`."""
    return convert(np.asarray(attrs.a_min), dtype), convert(np.asarray(attrs.a_max), dtype)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ClipAttrs) -> Type:
    return tensor_of(ctx, arg_types, 0, NUMERIC)


def _reference(inputs: tuple[Array, ...], attrs: ClipAttrs, result: Type) -> Array:
    low, high = bounds(attrs, dtype_name(inputs[0]))
    with np.errstate(all="ignore"):
        return np.asarray(np.minimum(np.maximum(inputs[0], low), high))


register(
    Op(
        name="clip",
        args=("a",),
        attrs=ClipAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.ELEMWISE,
        effect=Effect.TOTAL,
        dtypes=(NUMERIC,),
        doc=__doc__,
    )
)
