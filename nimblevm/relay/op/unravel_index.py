"""unravel_index(indices, shape): flat positions as indices of a tensor of `shape`.

    out[k, ..] = floor(indices[..] / (shape[k + 1] * shape[k + 2] * ...)) mod shape[k]      out[0] without the mod

indices: rank 0 or 1, int32 or int64; shape: a vector of a known length, of indices' dtype. Result: the
length of shape, then indices' shape; indices' dtype. Positions outside the tensor give out[0] outside it.
DivisionByZero where a size behind the first is 0. Source: Relay's unravel_index.
Differs from numpy: one tensor instead of a tuple; positions outside are no error.
"""

from __future__ import annotations

import numpy as np

from nimblevm.errors import DivisionByZero
from nimblevm.relay.op.common import Array, same_dtype, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type

INDICES = ("int32", "int64")


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: object) -> Type:
    indices, shape = tensor_of(ctx, arg_types, 0, INDICES), tensor_of(ctx, arg_types, 1, INDICES)
    same_dtype(ctx, indices, shape, 1)
    if len(indices.shape) > 1:
        raise ctx.fail(f"indices must have rank 0 or 1, not {len(indices.shape)}", 0)
    if len(shape.shape) != 1 or not isinstance(shape.shape[0], int) or not shape.shape[0]:
        raise ctx.fail("shape must be a vector of a known length >= 1", 1)
    return TensorType((shape.shape[0], *indices.shape), indices.dtype)


def _reference(inputs: tuple[Array, ...], attrs: object, result: Type) -> Array:
    indices, shape = inputs
    if indices.size and np.any(shape[1:] == 0):
        raise DivisionByZero("unravel_index: a size is 0")
    out = np.empty((len(shape), *indices.shape), indices.dtype)
    rest = np.array(indices)
    with np.errstate(all="ignore"):
        for axis in range(len(shape) - 1, 0, -1):
            out[axis] = np.mod(rest, shape[axis])
            rest = np.floor_divide(rest, shape[axis])
    out[0] = rest
    return out


register(
    Op(
        name="unravel_index",
        args=("indices", "shape"),
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.MAY_FAIL,
        dtypes=(INDICES, INDICES),
        doc=__doc__,
    )
)
