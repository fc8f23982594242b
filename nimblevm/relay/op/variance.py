"""variance(data, mean, axis=None, keepdims=False, exclude=False, unbiased=False): the mean square distance from a mean.

    out = sum((data - mean)^2 over axis) / (count - 1 if unbiased else count)

data: a float tensor; mean: the same rank and dtype, with size 1 on the reduced axes and data's size on the
others (mean(..., keepdims=True)). Result: data's dtype; the kept axes, reduced ones with size 1 if
keepdims. A divisor of 0 gives NaN. float16 is computed in float32. Attrs: axis (None or () = all;
negative counts from the end), keepdims, exclude (reduce all axes but these), unbiased. Source: Relay's
_reduce.py.
Differs from numpy: the mean is an operand; unbiased is numpy's ddof=1.
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
    dtype_name,
    require_same,
    rounded,
    same_dtype,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.reduce import reduced_axes, reduced_rows
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class VarianceAttrs(Attrs):
    """axis, keepdims, exclude: as in ReduceAttrs. unbiased: divide by one less than the count."""

    axis: tuple[int, ...] | None = None
    keepdims: bool = False
    exclude: bool = False
    unbiased: bool = False

    def __post_init__(self) -> None:
        set_axes(self)
        Attrs.__post_init__(self)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: VarianceAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    mean = tensor_of(ctx, arg_types, 1, FLOATS)
    same_dtype(ctx, data, mean, 1)
    rank = len(data.shape)
    if len(mean.shape) != rank:
        raise ctx.fail(f"mean must have data's rank {rank}, not {len(mean.shape)}", 1)
    axes = reduced_axes(ctx, attrs, rank)
    shape = list(data.shape)
    for axis in range(rank):
        if axis in axes:
            ctx.require_dim(1, axis, 1)
            shape[axis] = 1
        else:
            shape[axis] = require_same(ctx, (0, axis, shape[axis]), (1, axis, mean.shape[axis]))
    kept = shape if attrs.keepdims else [d for a, d in enumerate(shape) if a not in axes]
    return TensorType(kept, data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: VarianceAttrs, result: Type) -> Array:
    data, mean = inputs
    rows, shape = reduced_rows(data, attrs)
    middle, wanted = reduced_rows(mean, attrs)
    if mean.ndim != data.ndim or middle.shape[-1] != 1 or wanted != shape:
        raise ShapeMismatch(f"variance: mean {mean.shape} does not fit data {data.shape}")
    with np.errstate(all="ignore"):
        centred = as_wide(rows) - as_wide(middle)
        count = max(rows.shape[-1] - int(attrs.unbiased), 0)
        found = np.divide(np.sum(centred * centred, axis=-1), np.float64(count))
        return rounded(found, dtype_name(data)).reshape(shape)


register(
    Op(
        name="variance",
        args=("data", "mean"),
        attrs=VarianceAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.COMM_REDUCE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS,),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
