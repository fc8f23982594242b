"""nn.layer_norm(data, gamma, beta, axis=-1, epsilon=1e-5, center=True, scale=True): normalize along an axis.

    out = (data - mean) / sqrt(variance + epsilon) * gamma + beta       mean, variance (biased) over axis

data: a float tensor of rank >= 1; gamma, beta: rank 1 of the size of `axis`, the same dtype; without
scale gamma is not used, without center beta is not. Result: data's shape and dtype. float16 is computed
in float32. Attrs: axis, epsilon, center, scale. Source: Relay's nn.layer_norm.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    as_wide,
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
class LayerNormAttrs(Attrs):
    """axis: the axis to normalize. epsilon: added to the variance. center, scale: add beta, multiply by gamma."""

    axis: int = -1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: LayerNormAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    for index, name in ((1, "gamma"), (2, "beta")):
        vector = tensor_of(ctx, arg_types, index, FLOATS)
        same_dtype(ctx, data, vector, index)
        if len(vector.shape) != 1:
            raise ctx.fail(f"{name} must have rank 1, not {len(vector.shape)}", index)
        size = require_same(ctx, (0, axis, data.shape[axis]), (index, 0, vector.shape[0]))
        data = TensorType((*data.shape[:axis], size, *data.shape[axis + 1 :]), data.dtype)
    return data


def _reference(inputs: tuple[Array, ...], attrs: LayerNormAttrs, result: Type) -> Array:
    data, gamma, beta = inputs
    axis = attrs.axis % data.ndim
    if gamma.shape != (data.shape[axis],) or beta.shape != (data.shape[axis],):
        raise ShapeMismatch(
            f"nn.layer_norm: axis {axis} of {data.shape}, gamma {gamma.shape}, beta {beta.shape} differ"
        )
    if data.size == 0:
        return data
    wide, column = as_wide(data), (-1,) + (1,) * (data.ndim - axis - 1)
    with np.errstate(all="ignore"):
        centred = wide - np.mean(wide, axis=axis, keepdims=True)
        variance = np.mean(centred * centred, axis=axis, keepdims=True)
        out = centred / np.sqrt(variance + attrs.epsilon)
        if attrs.scale:
            out = out * as_wide(gamma).reshape(column)
        if attrs.center:
            out = out + as_wide(beta).reshape(column)
        return rounded(out, dtype_name(data))


register(
    Op(
        name="nn.layer_norm",
        args=("data", "gamma", "beta"),
        attrs=LayerNormAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS,),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
