"""cumsum(data, axis=None, dtype="", exclusive=False), cumprod(...): sums and products of what came before.

    out[i] = f(data[0], ..., data[i])           along `axis`; exclusive: without data[i], the first one is 0 or 1

data: any shape; axis: negative counts from the end, None: data flattened row-major. Result: data's shape
((elements,) without axis) in dtype, by default data's; elements are converted first, as `cast` does.
Integers wrap; float16 is accumulated in float32 and rounded at each element; bool data needs dtype.
Attrs: axis, dtype, exclusive. Source: Relay's cumsum and cumprod.
Differs from numpy: integers keep their dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import (
    ACCUMULATED,
    ALL,
    NUMERIC,
    Array,
    Attrs,
    as_wide,
    axis_index,
    dtype_name,
    product,
    rounded,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class ScanopAttrs(Attrs):
    """axis: where to go along, None: all elements. dtype: of the result ("": data's). exclusive: leave own out."""

    axis: int | None = None
    dtype: str = ""
    exclusive: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", self.dtype or "")
        object.__setattr__(self, "exclusive", bool(self.exclusive))


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ScanopAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    dtype = attrs.dtype or data.dtype
    if dtype not in NUMERIC:
        raise ctx.fail(f"the dtype of the result must be numeric, not {dtype!r}; give dtype", 0)
    if attrs.axis is None:
        return TensorType((product(data.shape),), dtype)
    axis_index(ctx, attrs.axis, len(data.shape))
    return TensorType(data.shape, dtype)


def _scan(name: str, inputs: tuple[Array, ...], attrs: ScanopAttrs) -> Array:
    (data,) = inputs
    dtype = attrs.dtype or dtype_name(data)
    values = as_wide(convert(data, dtype))
    axis = attrs.axis
    if axis is None:
        values, axis = values.reshape(-1), 0
    with np.errstate(all="ignore"):
        run: Any = np.cumsum if name == "cumsum" else np.cumprod
        if attrs.exclusive:
            first = np.full_like(
                np.take(values, [0] * min(values.shape[axis], 1), axis), name == "cumprod"
            )
            before = (
                np.delete(values, values.shape[axis] - 1, axis) if values.shape[axis] else values
            )
            values = np.concatenate((first, before), axis)
        return rounded(run(values, axis=axis, dtype=values.dtype), dtype)


for _name in ("cumsum", "cumprod"):
    register(
        Op(
            name=_name,
            args=("data",),
            attrs=ScanopAttrs,
            relation=_relation,
            reference=lambda inputs, attrs, result, name=_name: _scan(name, inputs, attrs),
            pattern=OpPattern.OPAQUE,
            effect=Effect.TOTAL,
            dtypes=(ALL,),
            doc=__doc__,
            tolerance=ACCUMULATED,
        )
    )
