"""strided_set(data, v, begin, end, strides=None): a slice of data replaced.

    out = data; out[begin[0]:end[0]:strides[0], begin[1]:end[1]:strides[1], ...] = v

begin, end, strides: vectors of int32 or int64 of known lengths, at most data's rank; axes behind begin's
length stay whole, strides that are missing are 1. Bounds are Python's: negative ones count from the end,
then they are clamped. data: rank >= 1, any dtype; v: data's dtype and rank, at least as large as the slice
(further elements are not used). Result: data's type. IndexOutOfRange for a v that is too small,
DivisionByZero for a stride of 0, where the slice has an element. Source: Relay's strided_set.
Differs from numpy: v is not broadcast.
"""

from __future__ import annotations

import numpy as np

from nimblevm.errors import DivisionByZero, IndexOutOfRange
from nimblevm.relay.op.common import ALL, Array, same_dtype, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type

BOUNDS = ("int32", "int64")


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: object) -> Type:
    data, v = tensor_of(ctx, arg_types, 0), tensor_of(ctx, arg_types, 1)
    same_dtype(ctx, data, v, 1)
    if not data.shape or len(v.shape) != len(data.shape):
        raise ctx.fail(f"v must have data's rank {len(data.shape)}, which must not be 0", 1)
    lengths = []
    for index in (2, 3, 4):
        bound = tensor_of(ctx, arg_types, index, BOUNDS)
        if len(bound.shape) != 1 or not isinstance(bound.shape[0], int):
            raise ctx.fail("begin, end and strides must be vectors of a known length", index)
        lengths.append(bound.shape[0])
    if lengths[0] != lengths[1] or lengths[2] > lengths[0] or lengths[0] > len(data.shape):
        raise ctx.fail(
            f"begin, end and strides have {lengths} entries; begin and end must have equally many, at "
            f"most data's rank {len(data.shape)}, strides at most as many",
            2,
        )
    return data


def _reference(inputs: tuple[Array, ...], attrs: object, result: Type) -> Array:
    data, v, begin, end, strides = inputs
    out = np.array(data)
    if data.size == 0:
        return out
    if np.any(strides == 0):
        raise DivisionByZero("strided_set: a stride is 0")
    target: list[slice] = []
    for axis in range(data.ndim):
        step = int(strides[axis]) if axis < len(strides) else 1
        named = axis < len(begin)
        target.append(slice(int(begin[axis]), int(end[axis]), step) if named else slice(None))
    sizes = out[tuple(target)].shape
    if 0 in sizes:
        return out
    for axis, (size, have) in enumerate(zip(sizes, v.shape, strict=True)):
        if have < size:
            raise IndexOutOfRange(
                f"strided_set: v has {have} elements on axis {axis}, the slice {size}"
            )
    out[tuple(target)] = v[tuple(slice(size) for size in sizes)]
    return out


register(
    Op(
        name="strided_set",
        args=("data", "v", "begin", "end", "strides"),
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.MAY_FAIL,
        dtypes=(ALL, ALL, BOUNDS, BOUNDS, BOUNDS),
        doc=__doc__,
    )
)
