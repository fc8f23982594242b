"""vision.get_valid_counts(data, score_threshold, id_index=0, score_index=1): boxes that score, at the front.

    valid: data[b, j, score_index] > score_threshold, and data[b, j, id_index] >= 0 unless id_index < 0
    a tuple: valid_count out[b], how many;  out[b, r] = data[b, i[r]], the valid boxes in order, then rows of -1;
    indices[b, r] = i[r], where they come from, then -1

data: (batch, boxes, fields), float; score_threshold: a float32 scalar (or shape (1,)). Result: int32 (batch,), data's
type, int32 (batch, boxes). Attrs: id_index, score_index. Source: Relay's vision.get_valid_counts.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay import dims
from nimblevm.relay.op.common import FLOATS, Array, Attrs, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, TupleType, Type


@dataclass(frozen=True, slots=True)
class GetValidCountsAttrs(Attrs):
    """id_index: the field of the class, negative for none. score_index: the field of the score."""

    id_index: int = 0
    score_index: int = 1


def boxes_of(ctx: TypeContext, arg_types: tuple[Type, ...], needed: int) -> TensorType:
    """Argument 0 as (batch, boxes, fields) with at least `needed` fields."""
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    if len(data.shape) != 3:
        raise ctx.fail(f"data must be (batch, boxes, fields), not of rank {len(data.shape)}", 0)
    fields = data.shape[2]
    if isinstance(fields, int):
        if fields < needed:
            raise ctx.fail(f"the attributes ask for {needed} fields, but a box has {fields}", 0)
    else:
        ctx.require_dim(0, 2, dims.max_(fields, needed))
    return data


def scalar_of(ctx: TypeContext, arg_types: tuple[Type, ...], index: int, dtype: str) -> None:
    """Demand one number of a dtype."""
    found = tensor_of(ctx, arg_types, index)
    if found.dtype != dtype or len(found.shape) > 1:
        raise ctx.fail(f"argument {index} must be one {dtype}, not {found!r}", index)
    if found.shape:
        ctx.require_dim(index, 0, 1)


def field_index(ctx: TypeContext, name: str, value: int, least: int = 0) -> int:
    """A field's number, or a located error; returns how many fields it needs."""
    if not isinstance(value, int) or value < least:
        raise ctx.fail(f"{name} must be an integer >= {least}, not {value!r}")
    return value + 1


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: GetValidCountsAttrs) -> Type:
    needed = max(
        field_index(ctx, "score_index", attrs.score_index),
        field_index(ctx, "id_index", attrs.id_index, -(2**31)),
    )
    data = boxes_of(ctx, arg_types, needed)
    scalar_of(ctx, arg_types, 1, "float32")
    count = TensorType(data.shape[:1], "int32")
    return TupleType((count, data, TensorType(data.shape[:2], "int32")))


def _reference(
    inputs: tuple[Array, ...], attrs: GetValidCountsAttrs, result: Type
) -> tuple[Array, ...]:
    data, threshold = inputs
    with np.errstate(invalid="ignore"):
        valid = data[:, :, attrs.score_index].astype("float64") > threshold.reshape(())
        if attrs.id_index >= 0:
            valid &= data[:, :, attrs.id_index] >= 0
    out = np.full_like(data, -1)
    indices = np.full(data.shape[:2], -1, "int32")
    for batch in range(data.shape[0]):
        (kept,) = np.nonzero(valid[batch])
        out[batch, : kept.size] = data[batch, kept]
        indices[batch, : kept.size] = kept
    return valid.sum(axis=1).astype("int32"), out, indices


register(
    Op(
        name="vision.get_valid_counts",
        args=("data", "score_threshold"),
        attrs=GetValidCountsAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS, ("float32",)),
        doc=__doc__,
    )
)
