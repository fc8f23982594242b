"""vision.proposal(cls_prob, bbox_pred, im_info, scales, ratios, feature_stride, threshold, ...): regions of an image.

    anchors around place (y, x) of the features: k = ratio by ratio, scale by scale; with s = feature_stride
        w = floor(sqrt(floor(s * s / ratio)) + 0.5), h = floor(w * ratio + 0.5), centre (s - 1) / 2 + s * (x, y),
        corners (x1, y1, x2, y2) = centre -+ ((w, h) * scale - 1) / 2
    moved by d = bbox_pred[b, 4 k .. 4 k + 3, y, x]: corners + d if iou_loss; else, of a box with sides (W, H), the
        difference of its corners + 1, the centre by (d0 * W, d1 * H) and the sides to (exp(d2) * W, exp(d3) * H);
        within 0..width - 1 and 0..height - 1 of the image
    score: cls_prob[b, anchors + k, y, x]; -1 if y >= height div s or x >= width div s (to zero), or if a side is
        shorter than scale of the image * rpn_min_size: such a box grows by half of that to each side
    out[b * rpn_post_nms_top_n + r] = (b, x1, y1, x2, y2): of the best rpn_pre_nms_top_n boxes (all if that is <= 0),
        best first (stable), one goes if its iou with a kept one (sides as above) is > threshold; what is kept starts
        anew when it ends; zeros where there is no box

cls_prob: float32, (batch, 2 * anchors, H, W); bbox_pred: float32, (batch, 4 * anchors, H, W); im_info: float32,
(batch, 3), height, width and scale of the images. Result: float32, (batch * rpn_post_nms_top_n, 5). Attrs: scales and
ratios (1 to 8 numbers > 0), feature_stride, threshold, rpn_pre_nms_top_n, rpn_post_nms_top_n, rpn_min_size, iou_loss.
Source: Relay's vision.proposal (TOPI, CPU).
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.op.common import ACCUMULATED, Array, Attrs, require_same, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.regular_nms import SINGLE, real, suppressed, whole
from nimblevm.relay.op.sort import order
from nimblevm.relay.types import TensorType, Type

MOST = 8
"""Scales, and ratios; the kernel has places for no more."""


@dataclass(frozen=True, slots=True)
class ProposalAttrs(Attrs):
    """scales, ratios: of anchors. feature_stride: pixels a place. threshold: of overlaps. rpn_pre_nms_top_n,
    rpn_post_nms_top_n: boxes before and after suppression. rpn_min_size: pixels. iou_loss: what bbox_pred holds.
    """

    scales: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0)
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    feature_stride: int = 16
    threshold: float = 0.7
    rpn_pre_nms_top_n: int = 6000
    rpn_post_nms_top_n: int = 300
    rpn_min_size: int = 16
    iou_loss: bool = False

    def __post_init__(self) -> None:
        for name in ("scales", "ratios"):
            if isinstance(getattr(self, name), int | float):
                object.__setattr__(self, name, (getattr(self, name),))
        Attrs.__post_init__(self)


def _numbers(ctx: TypeContext, name: str, value: Any) -> int:
    """How many scales or ratios there are."""
    ok = isinstance(value, tuple) and all(
        isinstance(v, int | float) and not isinstance(v, bool) and 0 < v < 2**24 for v in value
    )
    if not ok or not 1 <= len(value) <= MOST:
        raise ctx.fail(f"{name} must hold 1 to {MOST} numbers > 0, not {value!r}")
    return len(value)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ProposalAttrs) -> Type:
    scores, deltas, info = (tensor_of(ctx, arg_types, index, SINGLE) for index in range(3))
    for index, (found, rank) in enumerate(((scores, 4), (deltas, 4), (info, 2))):
        if len(found.shape) != rank:
            raise ctx.fail(f"argument {index} must have rank {rank}, not {len(found.shape)}", index)
    anchors = _numbers(ctx, "scales", attrs.scales) * _numbers(ctx, "ratios", attrs.ratios)
    whole(ctx, attrs, 1, "feature_stride")
    whole(ctx, attrs, -(2**31), "rpn_pre_nms_top_n")
    whole(ctx, attrs, 0, "rpn_post_nms_top_n", "rpn_min_size")
    real(ctx, attrs, "threshold")
    ctx.require_dim(0, 1, 2 * anchors)
    ctx.require_dim(1, 1, 4 * anchors)
    ctx.require_dim(2, 1, 3)
    batch = require_same(ctx, (0, 0, scores.shape[0]), (1, 0, deltas.shape[0]))
    require_same(ctx, (0, 0, scores.shape[0]), (2, 0, info.shape[0]))
    for axis in (2, 3):
        require_same(ctx, (0, axis, scores.shape[axis]), (1, axis, deltas.shape[axis]))
    return TensorType((dims.mul(batch, attrs.rpn_post_nms_top_n), 5), "float32")


def _anchor(side: int, ratio: float, scale: float) -> Array:
    """The corners of an anchor around the first place; scale and ratio as float32, as the kernel has them."""
    ratio, scale = float(np.float32(ratio)), float(np.float32(scale))
    wide = math.floor(math.sqrt(math.floor(side * side / ratio)) + 0.5)
    high = math.floor(wide * ratio + 0.5)
    half = np.asarray([0.5 * (wide * scale - 1), 0.5 * (high * scale - 1)])
    centre = 0.5 * (side - 1)
    return np.concatenate((centre - half, centre + half)).astype("float32")


def _moved(box: Array, delta: Array, iou_loss: bool) -> Array:
    """Corners (4, H, W) moved as predicted."""
    if iou_loss:
        return np.asarray(box + delta)
    one, half = np.float32(1), np.float32(0.5)
    sides = box[2:] - box[:2] + one
    centre = delta[:2] * sides + (box[:2] + half * (sides - one))
    reach = half * (np.exp(delta[2:]) * sides - one)
    return np.concatenate((centre - reach, centre + reach))


def _predicted(scores: Array, deltas: Array, info: Array, attrs: ProposalAttrs) -> Any:
    """(boxes, scores) of one image, in the order of places and anchors."""
    anchors, (height, width) = len(attrs.scales) * len(attrs.ratios), scores.shape[1:]
    side, zero = attrs.feature_stride, np.float32(0)
    y, x = (grid.astype("float32") for grid in np.indices((height, width)))
    rows, columns = np.trunc(info[:2] / np.float32(side))
    limit = info[2] * np.float32(attrs.rpn_min_size)
    most = np.asarray([info[1], info[0]] * 2, "float32")[:, None, None] - np.float32(1)
    boxes, found = [], []
    for k in range(anchors):
        count = len(attrs.scales)
        corners = _anchor(side, attrs.ratios[k // count], attrs.scales[k % count])
        box = corners[:, None, None] + np.stack((x, y, x, y)) * np.float32(side)
        box = _moved(box, deltas[4 * k : 4 * k + 4], attrs.iou_loss)
        box = np.where(box < most, box, most)
        box = np.where(box > 0, box, zero)
        small = ((box[2:] - box[:2] + np.float32(1)) < limit).any(0)
        grown = np.asarray([-1, -1, 1, 1], "float32")[:, None, None] * (limit / np.float32(2))
        boxes.append(np.where(small, box + grown, box))
        outside = ~((y < rows) & (x < columns))
        found.append(np.where(small | outside, np.float32(-1), scores[anchors + k]))
    return np.stack(boxes, -1).reshape(4, -1).T, np.stack(found, -1).reshape(-1)


def _reference(inputs: tuple[Array, ...], attrs: ProposalAttrs, result: Type) -> Array:
    scores, deltas, info = inputs
    if scores.shape[0] != len(info) or scores.shape[2:] != deltas.shape[2:]:
        raise ShapeMismatch(
            f"vision.proposal: scores {scores.shape}, predictions {deltas.shape}, images {info.shape}"
        )
    wanted = attrs.rpn_post_nms_top_n
    out = np.zeros((len(scores), wanted, 5), "float32")
    with np.errstate(all="ignore"):
        for b in range(len(scores)):
            out[b, :, 0] = b
            boxes, found = _predicted(scores[b], deltas[b], info[b], attrs)
            ranked = order(found, 0, is_ascend=False).tolist()
            if attrs.rpn_pre_nms_top_n > 0:
                ranked = ranked[: attrs.rpn_pre_nms_top_n]
            kept = suppressed(boxes, ranked, wanted, attrs.threshold, 1)
            for row in range(wanted if kept else 0):
                out[b, row, 1:] = boxes[kept[row % len(kept)]]
    return out.reshape(-1, 5)


register(
    Op(
        name="vision.proposal",
        args=("cls_prob", "bbox_pred", "im_info"),
        attrs=ProposalAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(SINGLE, SINGLE, SINGLE),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
