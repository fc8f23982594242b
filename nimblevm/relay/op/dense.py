"""nn.dense(data, weight): matrix product with the transposed weight.

    out[..., u] = sum over k of data[..., k] * weight[u, k]

data (d1, ..., dn, K), n >= 0, and weight (U, K) have one dtype, or are int8 and uint8 with a signed out_dtype of 16
bits or more; result (d1, ..., dn, U) in `out_dtype`, or the operands' dtype if that is empty. The operands are
converted to `out_dtype` first; integers wrap; float16 is accumulated in float32. K = 0 gives zeros. Attrs: units
(must equal U if given), out_dtype.
Source: Relay's nn/_nn.py.
Differs from numpy: the weight is transposed, and integers are not widened.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.op.common import (
    ACCUMULATED,
    NUMERIC,
    Array,
    Attrs,
    as_wide,
    dtype_name,
    product_dtype,
    require_same,
    rounded,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class DenseAttrs(Attrs):
    """units: number of rows of weight, or None. out_dtype: dtype of the result, "" = the operands'."""

    units: int | None = None
    out_dtype: str = ""


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DenseAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, NUMERIC)
    weight = tensor_of(ctx, arg_types, 1, NUMERIC)
    dtype = product_dtype(ctx, data, weight, attrs.out_dtype)
    if not data.shape:
        raise ctx.fail("data must have at least one axis, but it is a scalar", 0)
    if len(weight.shape) != 2:
        raise ctx.fail(
            f"weight must have rank 2 (units, input size), not rank {len(weight.shape)}", 1
        )
    last = len(data.shape) - 1
    require_same(ctx, (0, last, data.shape[last]), (1, 1, weight.shape[1]))
    units = weight.shape[0] if attrs.units is None else ctx.require_dim(1, 0, attrs.units)
    return TensorType((*data.shape[:-1], units), dtype)


def _reference(inputs: tuple[Array, ...], attrs: DenseAttrs, result: Type) -> Array:
    data, weight = inputs
    if data.shape[-1] != weight.shape[1]:
        raise ShapeMismatch(
            f"nn.dense: data {data.shape} and weight {weight.shape} differ in their last axis"
        )
    dtype = attrs.out_dtype or dtype_name(data)
    data, weight = rounded(data, dtype), rounded(weight, dtype)
    with np.errstate(all="ignore"):
        return rounded(np.matmul(as_wide(data), as_wide(weight).T), dtype)


register(
    Op(
        name="nn.dense",
        args=("data", "weight"),
        attrs=DenseAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.TOTAL,
        dtypes=(NUMERIC,),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
