"""vision.regular_non_max_suppression(boxes, scores, max_detections_per_class, max_detections, num_classes, ...).

For each of the batch and each of the last num_classes columns of scores by itself: of the boxes with a score >=
    score_threshold, best first (stable), one goes if its iou with a kept one is > iou_threshold; at most
    max_detections_per_class are kept
    iou = area of the intersection / area of the union, 0 unless both boxes have an area > 0
    a tuple: boxes out[b, r], class[b, r] (counted from 0), score[b, r] of the best max_detections of all kept boxes,
    equal scores in the order of the classes, then zeros;  count[b], how many

boxes: float32, (batch, boxes, 4), corners (y1, x1, y2, x2); scores: float32, (batch, boxes, columns), columns >=
num_classes: what is before the last num_classes is background. Result: float32 (batch, max_detections, 4), (batch,
max_detections), (batch, max_detections) and int32 (batch,). Attrs: max_detections_per_class, max_detections,
num_classes, iou_threshold, score_threshold. Source: Relay's vision.regular_non_max_suppression (TFLite's).
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.op.common import Array, Attrs, require_same, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.sort import order
from nimblevm.relay.op.windows import require_at_least
from nimblevm.relay.types import TensorType, TupleType, Type

SINGLE = ("float32",)


@dataclass(frozen=True, slots=True)
class RegularNonMaximumSuppressionAttrs(Attrs):
    """max_detections_per_class, max_detections: boxes to keep. num_classes: without background. iou_threshold,
    score_threshold: what suppresses, and what counts at all.
    """

    max_detections_per_class: int
    max_detections: int
    num_classes: int
    iou_threshold: float
    score_threshold: float


def whole(ctx: TypeContext, attrs: Any, least: int, *names: str) -> None:
    """A located error unless the attributes are integers >= least (and below 2**31)."""
    for name in names:
        value = getattr(attrs, name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**31:
            raise ctx.fail(f"{name} must be an integer >= {least}, not {value!r}")


def real(ctx: TypeContext, attrs: Any, *names: str) -> None:
    """A located error unless the attributes are numbers."""
    for name in names:
        value = getattr(attrs, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 2**64:
            raise ctx.fail(f"{name} must be a number, not {value!r}")


def _relation(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: RegularNonMaximumSuppressionAttrs
) -> Type:
    boxes, scores = (tensor_of(ctx, arg_types, index, SINGLE) for index in (0, 1))
    for index, found in enumerate((boxes, scores)):
        if len(found.shape) != 3:
            raise ctx.fail(f"argument {index} must have rank 3, not {len(found.shape)}", index)
    whole(ctx, attrs, 0, "max_detections_per_class", "max_detections", "num_classes")
    real(ctx, attrs, "iou_threshold", "score_threshold")
    ctx.require_dim(0, 2, 4)
    batch = require_same(ctx, (0, 0, boxes.shape[0]), (1, 0, scores.shape[0]))
    require_same(ctx, (0, 1, boxes.shape[1]), (1, 1, scores.shape[1]))
    require_at_least(ctx, 1, 2, scores.shape[2], attrs.num_classes, "scores of every class")
    rows = TensorType((batch, attrs.max_detections), "float32")
    kept = TensorType((batch, attrs.max_detections, 4), "float32")
    return TupleType((kept, rows, rows, TensorType((batch,), "int32")))


def overlap(a: Array, b: Array, more: float) -> np.float32:
    """Intersection by union of two boxes; a side is the difference of its corners and `more` longer."""
    one = np.float32(more)
    low, high = np.where(a > b, a, b), np.where(a < b, a, b)
    sides = high[2:] - low[:2] + one
    first, second = np.where(sides < 0, np.float32(0), sides)
    area, other = ((c[2] - c[0] + one) * (c[3] - c[1] + one) for c in (a, b))
    if not more and not (area > 0 and other > 0):
        return np.float32(0)
    return np.float32(first * second / (area + other - first * second))


def suppressed(
    boxes: Array, places: list[int], limit: int, threshold: float, more: float
) -> list[int]:
    """Of the places, best first, those that overlap no better one by more than the threshold; at most `limit`."""
    kept: list[int] = []
    for place in places:
        if len(kept) >= limit:
            break
        if not any(overlap(boxes[k], boxes[place], more) > np.float32(threshold) for k in kept):
            kept.append(place)
    return kept


def _reference(
    inputs: tuple[Array, ...], attrs: RegularNonMaximumSuppressionAttrs, result: Type
) -> tuple[Array, ...]:
    boxes, scores = inputs
    batch, most = len(boxes), attrs.max_detections
    first = scores.shape[2] - attrs.num_classes
    if first < 0 or boxes.shape[:2] != scores.shape[:2]:
        raise ShapeMismatch(
            f"vision.regular_non_max_suppression: boxes {boxes.shape}, scores {scores.shape}, "
            f"{attrs.num_classes} classes"
        )
    out, labels = np.zeros((batch, most, 4), "float32"), np.zeros((batch, most), "float32")
    best, counts = np.zeros((batch, most), "float32"), np.zeros(batch, "int32")
    for b in range(batch):
        found: list[tuple[int, int]] = []
        for c in range(attrs.num_classes if boxes.shape[1] else 0):
            column = scores[b, :, first + c]
            ranked = [
                p for p in order(column, 0, is_ascend=False).tolist()
                if column[p] >= np.float32(attrs.score_threshold)
            ]  # fmt: skip
            with np.errstate(all="ignore"):
                kept = suppressed(
                    boxes[b], ranked, attrs.max_detections_per_class, attrs.iou_threshold, 0
                )
            found += [(p, c) for p in kept]
        found.sort(key=lambda entry: -float(scores[b, entry[0], first + entry[1]]))
        for r, (p, c) in enumerate(found[:most]):
            out[b, r], labels[b, r], best[b, r] = boxes[b, p], c, scores[b, p, first + c]
        counts[b] = len(found[:most])
    return out, labels, best, counts


register(
    Op(
        name="vision.regular_non_max_suppression",
        args=("boxes", "scores"),
        attrs=RegularNonMaximumSuppressionAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(SINGLE, SINGLE),
        doc=__doc__,
    )
)

__all__ = ["SINGLE", "real", "suppressed", "whole"]
