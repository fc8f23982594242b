"""cast(data, dtype): convert every element.

    float -> integer: towards zero, saturated at the ends of the range; NaN gives 0
    integer -> integer: wraps;  any -> bool: x != 0 (NaN is True);  bool -> number: 0 or 1
    -> float: nearest, ties to even; to float16 by way of float32

data: any shape and dtype; result: the same shape. Attrs: dtype. Source: Relay's cast.
Differs from numpy: float to integer saturates, to float16 rounds twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import ALL, Array, Attrs, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class CastAttrs(Attrs):
    """dtype: the dtype of the result."""

    dtype: str


def convert(data: Array, dtype: str) -> Array:
    """`data` in another dtype, by the rules of the module's docstring."""
    target = np.dtype(dtype)
    with np.errstate(all="ignore"):
        if data.dtype.kind == "f" and target.kind in "iu":
            info = np.iinfo(target)
            wide = np.nan_to_num(data.astype("float64"), nan=0.0, posinf=np.inf, neginf=-np.inf)
            # The bounds as floats: info.max may round up to a power of two, so >= and <= decide.
            high, low = wide >= float(info.max), wide <= float(info.min)
            inside = np.where(high | low, 0.0, np.trunc(wide)).astype(target)
            return np.asarray(
                np.where(high, target.type(info.max), np.where(low, target.type(info.min), inside))
            )
        if target == np.float16:
            return data.astype("float32").astype("float16")
        return data.astype(target)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: CastAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if attrs.dtype not in ALL:
        raise ctx.fail(f"unknown dtype {attrs.dtype!r}; known: {', '.join(ALL)}")
    return TensorType(data.shape, attrs.dtype)


def _reference(inputs: tuple[Array, ...], attrs: CastAttrs, result: Type) -> Array:
    return convert(inputs[0], attrs.dtype)


register(
    Op(
        name="cast",
        args=("data",),
        attrs=CastAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.ELEMWISE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
