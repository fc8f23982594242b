"""sequence_mask(data, valid_length, mask_value=0, axis=0): everything behind a sequence's end set to one value.

    axis 0:  out[t, b, ..] = data[t, b, ..] where t < valid_length[b], else mask_value converted to data's dtype
    axis 1:  out[b, t, ..] likewise

data: rank >= 2, any dtype; valid_length: rank 1, any integer dtype, one entry an element of the other of the
first two axes. Result: data's type. Attrs: mask_value, axis (0 or 1). Source: Relay's sequence_mask.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import (
    ALL,
    INTEGERS,
    Array,
    Attrs,
    axis_index,
    dtype_name,
    require_same,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type


@dataclass(frozen=True, slots=True)
class SequenceMaskAttrs(Attrs):
    """mask_value: what stands behind the end. axis: the axis of the sequence."""

    mask_value: float = 0.0
    axis: int = 0


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SequenceMaskAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    lengths = tensor_of(ctx, arg_types, 1, INTEGERS)
    if len(data.shape) < 2 or len(lengths.shape) != 1:
        raise ctx.fail("data must have rank 2 or more and valid_length rank 1", 0)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    if axis > 1:
        raise ctx.fail(f"axis must be 0 or 1, not {attrs.axis}")
    require_same(ctx, (0, 1 - axis, data.shape[1 - axis]), (1, 0, lengths.shape[0]))
    return data


def _reference(inputs: tuple[Array, ...], attrs: SequenceMaskAttrs, result: Type) -> Array:
    data, lengths = inputs
    axis = attrs.axis % data.ndim
    steps = np.arange(data.shape[axis])
    if lengths.dtype == np.uint64:
        steps = steps.astype("uint64")
    kept = steps[:, None] < lengths[None, :] if axis == 0 else steps[None, :] < lengths[:, None]
    masked = convert(np.asarray(attrs.mask_value, "float32"), dtype_name(data))
    return np.where(kept.reshape(kept.shape + (1,) * (data.ndim - 2)), data, masked)


register(
    Op(
        name="sequence_mask",
        args=("data", "valid_length"),
        attrs=SequenceMaskAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL, INTEGERS),
        doc=__doc__,
    )
)
