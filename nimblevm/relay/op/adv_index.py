"""adv_index(inputs): numpy's indexing of the first axes with tensors, every index checked.

    out[k.., j..] = data[indices[0][k..], indices[1][k..], ..., j..]       the indices broadcast with each other

inputs: a tuple of data, of any dtype, and one or more index tensors of integer dtypes, at most data's rank.
Negative indices count from the end. Result: the shape that the indices broadcast to, then the axes of data
that are left; data's dtype. IndexOutOfRange for an index outside -n..n - 1. Source: Relay's adv_index.
Differs from numpy: no slices, no masks; the indices are about the first axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.relay.op.common import ALL, INTEGERS, Array, check_broadcastable
from nimblevm.relay.op.gather import positions
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, TupleType, Type


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    found = arg_types[0]
    parts = found.fields if isinstance(found, TupleType) else ()
    tensors = [part for part in parts if isinstance(part, TensorType)]
    if len(tensors) != len(parts) or len(tensors) < 2:
        raise ctx.fail(f"inputs must be a tuple of data and index tensors, not {found!r}", 0)
    data, *indices = tensors
    if len(indices) > len(data.shape):
        raise ctx.fail(f"{len(indices)} indices for data of rank {len(data.shape)}", 0)
    for number, index in enumerate(indices, 1):
        if index.dtype not in INTEGERS:
            raise ctx.fail(f"field {number} must be an integer tensor, not {index.dtype}", 0)
    shape = ctx.broadcast([((0, n), index.shape) for n, index in enumerate(indices, 1)])
    return TensorType((*shape, *data.shape[len(indices) :]), data.dtype)


def _reference(inputs: tuple[tuple[Array, ...]], attrs: Any, result: Type) -> Array:
    data, *indices = inputs[0]
    check_broadcastable("adv_index", *indices)
    # An index that no element of the result reads is not looked at.
    if 0 in np.broadcast_shapes(*(i.shape for i in indices), ()) or 0 in data.shape[len(indices) :]:
        shape = np.broadcast_shapes(*(i.shape for i in indices))
        return np.empty((*shape, *data.shape[len(indices) :]), data.dtype)
    places = [positions("adv_index", i, n) for i, n in zip(indices, data.shape, strict=False)]
    return np.array(data[tuple(np.broadcast_arrays(*places))])


register(
    Op(
        name="adv_index",
        args=("inputs",),
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.MAY_FAIL,
        dtypes=(ALL,),
        doc=__doc__,
        variadic=True,
    )
)
