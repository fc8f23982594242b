"""fixed_point_multiply(data, multiplier, shift): integers times a fraction of 31 bits and a power of two.

    out = floor(data * 2**max(shift, 0) * multiplier / 2**(31 + max(-shift, 0)) + 1/2)

data: int32, any shape. Result: data's type. The product wraps in 64 bits, the result in 32. Attrs: multiplier (of 32
bits, a fraction times 2**31), shift (-31..31). Source: Relay's fixed_point_multiply.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import Array, Attrs, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type

BITS = 31


@dataclass(frozen=True, slots=True)
class FixedPointMultiplyAttrs(Attrs):
    """multiplier: a fraction times 2**31. shift: of the result, to the left, or to the right if it is negative."""

    multiplier: int
    shift: int


def _relation(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: FixedPointMultiplyAttrs
) -> Type:
    data = tensor_of(ctx, arg_types, 0, ("int32",))
    if not -(2**BITS) <= attrs.multiplier < 2**BITS:
        raise ctx.fail(f"multiplier must be an int32, not {attrs.multiplier}")
    if not -BITS <= attrs.shift <= BITS:
        raise ctx.fail(f"shift must be in -{BITS}..{BITS}, not {attrs.shift}")
    return data


def _reference(inputs: tuple[Array, ...], attrs: FixedPointMultiplyAttrs, result: Type) -> Array:
    (data,) = inputs
    right = BITS + max(-attrs.shift, 0)
    left = np.int64(1) << max(attrs.shift, 0)
    with np.errstate(over="ignore"):
        product = data.astype("int64") * left * attrs.multiplier
        found = (product + (np.int64(1) << (right - 1))) >> right
    return np.asarray(found).astype("int32")


register(
    Op(
        name="fixed_point_multiply",
        args=("data",),
        attrs=FixedPointMultiplyAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.ELEMWISE,
        effect=Effect.TOTAL,
        dtypes=(("int32",),),
        doc=__doc__,
    )
)
