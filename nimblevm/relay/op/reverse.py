"""reverse and reverse_sequence: the order along an axis turned round.

    reverse(data, axis)                         out[.., i, ..] = data[.., n - 1 - i, ..]
    reverse_sequence(data, seq_lengths, seq_axis=1, batch_axis=0)
        with l = min(seq_lengths[b], n):        out[.., b, .., i, ..] = data[.., b, .., l - 1 - i if i < l else i, ..]

data: rank >= 1 (2 for reverse_sequence), any dtype; seq_lengths: int32 or int64, one entry an element of
batch_axis; lengths beyond the axis stand for the whole axis, lengths <= 1 change nothing. Result: data's
type. Attrs: axis; seq_axis, batch_axis (different axes; negative counts from the end). Source: Relay's
reverse and reverse_sequence.
Differs from numpy: flip takes several axes; there is no reverse_sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import (
    ALL,
    Array,
    Attrs,
    axis_index,
    require_same,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type

LENGTHS = ("int32", "int64")


@dataclass(frozen=True, slots=True)
class ReverseAttrs(Attrs):
    """axis: the axis to turn round."""

    axis: int


@dataclass(frozen=True, slots=True)
class ReverseSequenceAttrs(Attrs):
    """seq_axis: the axis to turn round. batch_axis: the axis that seq_lengths is about."""

    seq_axis: int = 1
    batch_axis: int = 0


def _reverse(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ReverseAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    axis_index(ctx, attrs.axis, len(data.shape))
    return data


def _reverse_reference(inputs: tuple[Array, ...], attrs: ReverseAttrs, result: Type) -> Array:
    return np.array(np.flip(inputs[0], attrs.axis))


def _sequence(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ReverseSequenceAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    lengths = tensor_of(ctx, arg_types, 1, LENGTHS)
    rank = len(data.shape)
    sequence = axis_index(ctx, attrs.seq_axis, rank)
    batch = axis_index(ctx, attrs.batch_axis, rank)
    if sequence == batch:
        raise ctx.fail(f"seq_axis and batch_axis are both axis {batch}")
    if len(lengths.shape) != 1:
        raise ctx.fail(f"seq_lengths must have rank 1, not {len(lengths.shape)}", 1)
    require_same(ctx, (0, batch, data.shape[batch]), (1, 0, lengths.shape[0]))
    return data


def _sequence_reference(
    inputs: tuple[Array, ...], attrs: ReverseSequenceAttrs, result: Type
) -> Array:
    data, lengths = inputs
    rows = np.moveaxis(data, (attrs.batch_axis, attrs.seq_axis), (0, 1)).copy()
    for row, length in zip(rows, lengths, strict=True):
        length = max(int(length), 0)
        row[:length] = row[:length][::-1].copy()
    return np.ascontiguousarray(np.moveaxis(rows, (0, 1), (attrs.batch_axis, attrs.seq_axis)))


register(
    Op(
        name="reverse",
        args=("data",),
        attrs=ReverseAttrs,
        relation=_reverse,
        reference=_reverse_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
register(
    Op(
        name="reverse_sequence",
        args=("data", "seq_lengths"),
        attrs=ReverseSequenceAttrs,
        relation=_sequence,
        reference=_sequence_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL, LENGTHS),
        doc=__doc__,
    )
)
