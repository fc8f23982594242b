"""vision.all_class_non_max_suppression(boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold, ...).

For each of the batch and each class by itself: of the boxes with a score above score_threshold, best first (stable),
    one goes if its score is > 0 and its iou with a kept one is >= iou_threshold (see vision.non_max_suppression), or if
    its score is <= -1; at most max_output_boxes_per_class are kept, all if that is <= 0; none if iou_threshold <= 0
    output_format "onnx":  a tuple: out[r] = (batch, class, box) of the kept boxes, classes one after the other, then
                           rows of -1;  count[0], how many
    "tensorflow":          a tuple: out[b, r] = (class, box) and scores[b, r] of the kept boxes, then zeros;  count[b]

boxes: float, (batch, boxes, 4), corners (y1, x1, y2, x2) in either order; scores: of its dtype, (batch, classes,
boxes); max_output_boxes_per_class: one int32; iou_threshold, score_threshold: one float32 each. Result: int64 (batch *
classes * boxes, 3) and (1,); or int64 (batch, classes * boxes, 2), scores' dtype (batch, classes * boxes) and int64
(batch,). float16 is computed in float32. Attrs: output_format. Source: Relay's vision.all_class_non_max_suppression
(TOPI, CPU).
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import (
    FLOATS,
    Array,
    Attrs,
    as_compute,
    product,
    require_same,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.get_valid_counts import scalar_of
from nimblevm.relay.op.non_max_suppression import NonMaximumSuppressionAttrs, suppress
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.sort import order
from nimblevm.relay.types import TensorType, TupleType, Type

FORMATS = ("onnx", "tensorflow")


@dataclass(frozen=True, slots=True)
class AllClassNonMaximumSuppressionAttrs(Attrs):
    """output_format: onnx or tensorflow."""

    output_format: str = "onnx"


def _relation(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: AllClassNonMaximumSuppressionAttrs
) -> Type:
    boxes, scores = (tensor_of(ctx, arg_types, index, FLOATS) for index in (0, 1))
    same_dtype(ctx, boxes, scores, 1)
    for index, found in enumerate((boxes, scores)):
        if len(found.shape) != 3:
            raise ctx.fail(f"argument {index} must have rank 3, not {len(found.shape)}", index)
    ctx.require_dim(0, 2, 4)
    batch = require_same(ctx, (0, 0, boxes.shape[0]), (1, 0, scores.shape[0]))
    require_same(ctx, (0, 1, boxes.shape[1]), (1, 2, scores.shape[2]))
    scalar_of(ctx, arg_types, 2, "int32")
    for index in (3, 4):
        scalar_of(ctx, arg_types, index, "float32")
    if attrs.output_format not in FORMATS:
        raise ctx.fail(f"output_format must be onnx or tensorflow, not {attrs.output_format!r}")
    each = product(scores.shape[1:])
    if attrs.output_format == "onnx":
        rows = TensorType((product(scores.shape), 3), "int64")
        return TupleType((rows, TensorType((1,), "int64")))
    rows = TensorType((batch, each, 2), "int64")
    kept = TensorType((batch, each), scores.dtype)
    return TupleType((rows, kept, TensorType((batch,), "int64")))


def _kept(boxes: Array, scores: Array, limit: int, iou: Array, least: Array) -> list[int]:
    """The boxes that one class keeps, best first."""
    if not iou > 0:
        return []
    places = [
        p for p in order(scores, 0, is_ascend=False).tolist() if float(scores[p]) > float(least)
    ]
    wide = as_compute(np.concatenate([scores[:, None], boxes], axis=1))
    attrs = NonMaximumSuppressionAttrs(
        force_suppress=True, coord_start=1, score_index=0, id_index=-1
    )
    left = suppress(wide, np.asarray(places, "int64"), -1, wide.dtype.type(iou), attrs)
    found = [p for p in left if p >= 0 and scores[p] > -1]
    return found[:limit] if limit > 0 else found


def _reference(
    inputs: tuple[Array, ...], attrs: AllClassNonMaximumSuppressionAttrs, result: Type
) -> tuple[Array, ...]:
    boxes, scores, limit, iou, least = inputs
    batches, classes, number = scores.shape
    iou, least = iou.reshape(()), least.reshape(())
    with np.errstate(all="ignore"):
        found = [
            (b, c, box)
            for b, c in np.ndindex(batches, classes)
            for box in _kept(boxes[b], scores[b, c], int(limit.item()), iou, least)
        ]
    if attrs.output_format == "onnx":
        rows = np.full((batches * classes * number, 3), -1, "int64")
        rows[: len(found)] = np.asarray(found, "int64").reshape(-1, 3)
        return rows, np.asarray([len(found)], "int64")
    rows = np.zeros((batches, classes * number, 2), "int64")
    kept = np.zeros((batches, classes * number), scores.dtype)
    counts = np.zeros(batches, "int64")
    for b, c, box in found:
        rows[b, counts[b]], kept[b, counts[b]] = (c, box), scores[b, c, box]
        counts[b] += 1
    return rows, kept, counts


register(
    Op(
        name="vision.all_class_non_max_suppression",
        args=("boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold"),
        attrs=AllClassNonMaximumSuppressionAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS, FLOATS, ("int32",), ("float32",), ("float32",)),
        doc=__doc__,
    )
)
