"""nn.bias_add(data, bias, axis=1): add a vector along one axis.

    out[..., i, ...] = data[..., i, ...] + bias[i]          i on `axis`

data: any rank >= 1; bias: rank 1 of the size of `axis` (negative counts from the end); one dtype. Result:
data's shape and dtype; integers wrap. Attrs: axis. Source: Relay's nn/_nn.py.
Differs from numpy: bias lies along `axis` instead of the last axis, and is not stretched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.op.common import (
    NUMERIC,
    Array,
    Attrs,
    as_compute,
    axis_index,
    dtype_name,
    require_same,
    rounded,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class BiasAddAttrs(Attrs):
    """axis: the axis of data that bias lies along."""

    axis: int = 1


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: BiasAddAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, NUMERIC)
    bias = tensor_of(ctx, arg_types, 1, NUMERIC)
    same_dtype(ctx, data, bias, 1)
    if len(bias.shape) != 1:
        raise ctx.fail(f"bias must have rank 1, not {len(bias.shape)}", 1)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    size = require_same(ctx, (0, axis, data.shape[axis]), (1, 0, bias.shape[0]))
    return TensorType((*data.shape[:axis], size, *data.shape[axis + 1 :]), data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: BiasAddAttrs, result: Type) -> Array:
    data, bias = inputs
    axis = attrs.axis % data.ndim
    if data.shape[axis] != bias.shape[0]:
        raise ShapeMismatch(
            f"nn.bias_add: axis {axis} of data {data.shape} and bias {bias.shape} differ"
        )
    column = bias.reshape((-1,) + (1,) * (data.ndim - axis - 1))
    with np.errstate(all="ignore"):
        return rounded(np.add(as_compute(data), as_compute(column)), dtype_name(data))


register(
    Op(
        name="nn.bias_add",
        args=("data", "bias"),
        attrs=BiasAddAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.BROADCAST,
        effect=Effect.TOTAL,
        dtypes=(NUMERIC,),
        doc=__doc__,
    )
)
