"""reinterpret(data, dtype): the bits of every element as another dtype of the same width.

    out[i] = the value of `dtype` that has data[i]'s bits

data: integers, float32 or float64, any shape; result: the same shape. Not bool, whose values are 0 and 1
only, and not float16, whose NaNs are not kept apart on the way through float32. Attrs: dtype. Source:
Relay's reinterpret.
Differs from numpy: it is view, for dtypes of one width.
"""

from __future__ import annotations

import numpy as np

from nimblevm import dtypes
from nimblevm.relay.op.cast import CastAttrs
from nimblevm.relay.op.common import INTEGERS, Array, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type

DTYPES = (*INTEGERS, "float32", "float64")


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: CastAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, DTYPES)
    if attrs.dtype not in DTYPES:
        raise ctx.fail(f"dtype must be one of {', '.join(DTYPES)}, not {attrs.dtype!r}")
    if dtypes.dtype(attrs.dtype).bits != dtypes.dtype(data.dtype).bits:
        raise ctx.fail(f"{attrs.dtype} has another width than {data.dtype}", 0)
    return TensorType(data.shape, attrs.dtype)


def _reference(inputs: tuple[Array, ...], attrs: CastAttrs, result: Type) -> Array:
    return np.array(inputs[0], order="C").view(attrs.dtype)


register(
    Op(
        name="reinterpret",
        args=("data",),
        attrs=CastAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.ELEMWISE,
        effect=Effect.TOTAL,
        dtypes=(DTYPES,),
        doc=__doc__,
    )
)
