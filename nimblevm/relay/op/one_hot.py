"""one_hot(indices, on_value, off_value, depth, axis, dtype): a row of off_value with one on_value for each index.

    out[.., k, ..] = on_value where k == indices[.., ..], else off_value         k along the new axis

indices: any integer dtype and shape; on_value, off_value: scalars, converted to `dtype`. Result: indices'
shape with an axis of size `depth` inserted at `axis` (-1: last), of `dtype`. An index outside 0..depth - 1
gives a row of off_value. Attrs: depth (a size, which may be a dim expression), axis, dtype. Source: Relay's
one_hot.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.dims import Dim
from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import (
    ALL,
    INTEGERS,
    Array,
    Attrs,
    axis_index,
    shape_attr,
    tensor_of,
)
from nimblevm.relay.op.full import concrete_shape
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class OneHotAttrs(Attrs):
    """depth: size of the new axis. axis: its place in the result. dtype: of the result."""

    depth: Dim
    axis: int = -1
    dtype: str = "float32"


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: OneHotAttrs) -> Type:
    indices = tensor_of(ctx, arg_types, 0, INTEGERS)
    for index in (1, 2):
        if tensor_of(ctx, arg_types, index).shape:
            raise ctx.fail("on_value and off_value must be scalars", index)
    if attrs.dtype not in ALL:
        raise ctx.fail(f"dtype must be one of {', '.join(ALL)}, not {attrs.dtype!r}")
    (depth,) = shape_attr(ctx, (attrs.depth,))
    axis = axis_index(ctx, attrs.axis, len(indices.shape) + 1)
    return TensorType((*indices.shape[:axis], depth, *indices.shape[axis:]), attrs.dtype)


def _reference(inputs: tuple[Array, ...], attrs: OneHotAttrs, result: Type) -> Array:
    indices, on, off = inputs
    (depth,) = concrete_shape("one_hot", (attrs.depth,))
    axis = attrs.axis % (indices.ndim + 1)
    steps = np.arange(depth).astype("uint64" if indices.dtype == np.uint64 else "int64")
    steps = steps.reshape((depth, *(1,) * (indices.ndim - axis)))
    return np.where(
        np.expand_dims(indices, axis) == steps, convert(on, attrs.dtype), convert(off, attrs.dtype)
    )


register(
    Op(
        name="one_hot",
        args=("indices", "on_value", "off_value"),
        attrs=OneHotAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(INTEGERS, ALL, ALL),
        doc=__doc__,
    )
)
