"""nn.fifo_buffer(data, buffer, axis): the newest elements of a stream; the oldest ones go.

    out = the last buffer.shape[axis] elements along `axis` of buffer followed by data

data, buffer: any dtype, the same rank >= 1, equal but for `axis`, along which data is no longer than buffer. Result:
buffer's type. Attrs: axis (negative counts from the end). Source: Relay's nn.fifo_buffer, where data must be shorter
than buffer.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.op.common import (
    ALL,
    Array,
    Attrs,
    axis_index,
    require_same,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import require_at_least
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class FIFOBufferAttrs(Attrs):
    """axis: of time."""

    axis: int


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: FIFOBufferAttrs) -> Type:
    data, buffer = (tensor_of(ctx, arg_types, index) for index in (0, 1))
    same_dtype(ctx, data, buffer, 1)
    rank = len(buffer.shape)
    if len(data.shape) != rank:
        raise ctx.fail(f"ranks differ: data has rank {len(data.shape)}, buffer rank {rank}", 0)
    axis = axis_index(ctx, attrs.axis, rank, 1)
    shape = list(buffer.shape)
    for at, (new, old) in enumerate(zip(data.shape, buffer.shape, strict=True)):
        if at == axis:
            require_at_least(ctx, 1, at, old, new, "buffer is shorter than data")
        else:
            shape[at] = require_same(ctx, (0, at, new), (1, at, old))
    return TensorType(tuple(shape), buffer.dtype)


def _reference(inputs: tuple[Array, ...], attrs: FIFOBufferAttrs, result: Type) -> Array:
    data, buffer = inputs
    axis, length = attrs.axis % buffer.ndim, buffer.shape[attrs.axis]
    others = tuple(np.delete(value.shape, axis).tolist() for value in inputs)
    if others[0] != others[1] or data.shape[axis] > length:
        raise ShapeMismatch(
            f"nn.fifo_buffer: data of shape {data.shape} does not fit a buffer of {buffer.shape}"
        )
    both = np.concatenate((buffer, data), axis)
    return np.take(both, np.arange(data.shape[axis], both.shape[axis]), axis)


register(
    Op(
        name="nn.fifo_buffer",
        args=("data", "buffer"),
        attrs=FIFOBufferAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL, ALL),
        doc=__doc__,
    )
)
