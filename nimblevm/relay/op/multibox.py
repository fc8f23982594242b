"""vision.multibox_prior and vision.multibox_transform_loc: anchors of a single shot detector, and boxes made of them.

    vision.multibox_prior(data, sizes=(1.0,), ratios=(1.0,), steps=(-1.0, -1.0), offsets=(0.5, 0.5), clip=False)
        with k boxes at each place, sizes[k] first, then sizes[0] with ratios[1], ratios[2], ..:
        w = size * H / W / 2 * sqrt(ratio)      h = size / 2 / sqrt(ratio)          ratio 1 for the sizes
        out[0, (i * W + j) * boxes + k] = (x - w, y - h, x + w, y + h)              within 0..1 if clip
        y = (i + offsets[0]) * steps[0], x = (j + offsets[1]) * steps[1]; a step <= 0 is 1 / H or 1 / W
    vision.multibox_transform_loc(cls_prob, loc_pred, anchor, clip=True, threshold=0.01, variances=(0.1, 0.1, 0.2, 0.2),
                                  keep_background=False)
        of each anchor: its most probable class (the first; above -1), class 0 (background) left out unless
        keep_background; class 0 where the probability is below the threshold
        a tuple: out[b, r] = (class, probability, x1, y1, x2, y2) of the r-th anchor with a class > 0, classes counted
        from 0 without the background (keep_background: of all anchors, all classes), then rows of -1;  valid_count[b]
        (x1, y1, x2, y2) = p of the anchor's (x, y, width, height): x + p0 * v0 * width, y + p1 * v1 * height,
        width * exp(p2 * v2), height * exp(p3 * v3), as corners, within 0..1 if clip

data: float, (N, C, H, W), of which only H and W count. Result: (1, H * W * boxes, 4), data's dtype. cls_prob: float,
(batch, classes, anchors); loc_pred: (batch, anchors * 4) and anchor: (1, anchors, 4) of its dtype. Result: cls_prob's
dtype (batch, anchors, 6) and int32 (batch,). float16 is computed in float32. Attrs: sizes, ratios (> 0), steps,
offsets, clip; clip, threshold, variances, keep_background. Source: Relay's vision.multibox_prior and
multibox_transform_loc.
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay import dims
from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    as_compute,
    dtype_name,
    product,
    require_same,
    rounded,
    same_dtype,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, TupleType, Type


@dataclass(frozen=True, slots=True)
class MultiBoxPriorAttrs(Attrs):
    """sizes, ratios: of the boxes at each place. steps, offsets: of the places, along H and W. clip: cut to 0..1."""

    sizes: tuple[float, ...] = (1.0,)
    ratios: tuple[float, ...] = (1.0,)
    steps: tuple[float, ...] = (-1.0, -1.0)
    offsets: tuple[float, ...] = (0.5, 0.5)
    clip: bool = False

    def __post_init__(self) -> None:
        for name in ("sizes", "ratios"):
            if isinstance(getattr(self, name), float):
                object.__setattr__(self, name, (getattr(self, name),))
            set_axes(self, name)
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class MultiBoxTransformLocAttrs(Attrs):
    """clip: cut boxes to 0..1. threshold: of probabilities. variances: factors of loc_pred. keep_background: class 0 is
    a class like the others.
    """

    clip: bool = True
    threshold: float = 0.01
    variances: tuple[float, ...] = (0.1, 0.1, 0.2, 0.2)
    keep_background: bool = False


def boxes_of(attrs: MultiBoxPriorAttrs) -> list[tuple[float, float]]:
    """(half a width times W / H, half a height) of the boxes at each place."""
    ratios = [1.0] * len(attrs.sizes) + [float(r) for r in attrs.ratios[1:]]
    sizes = [float(s) for s in attrs.sizes] + [float(attrs.sizes[0])] * (len(attrs.ratios) - 1)
    return [(s * r**0.5 / 2, s / r**0.5 / 2) for s, r in zip(sizes, ratios, strict=True)]


def _prior(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: MultiBoxPriorAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    if len(data.shape) != 4:
        raise ctx.fail(f"data must have rank 4 (NCHW), not {len(data.shape)}", 0)
    if not attrs.sizes or not attrs.ratios or not all(r > 0 for r in attrs.ratios):
        raise ctx.fail(
            f"sizes and ratios must not be empty, ratios > 0, not {attrs.sizes!r} and {attrs.ratios!r}"
        )
    for name in ("steps", "offsets"):
        value = getattr(attrs, name)
        if not isinstance(value, tuple) or len(value) != 2:
            raise ctx.fail(f"{name} must be 2 numbers, not {value!r}")
    count = product((*data.shape[2:], len(boxes_of(attrs))))
    return TensorType((1, count, 4), data.dtype)


def _transform(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: MultiBoxTransformLocAttrs
) -> Type:
    probability, place, anchor = (tensor_of(ctx, arg_types, index, FLOATS) for index in range(3))
    for index, (found, rank) in enumerate(
        zip((probability, place, anchor), (3, 2, 3), strict=True)
    ):
        same_dtype(ctx, probability, found, index)
        if len(found.shape) != rank:
            raise ctx.fail(f"argument {index} must have rank {rank}, not {len(found.shape)}", index)
    if not isinstance(attrs.variances, tuple) or len(attrs.variances) != 4:
        raise ctx.fail(f"variances must be 4 numbers, not {attrs.variances!r}")
    batch, _, anchors = probability.shape
    require_same(ctx, (0, 0, batch), (1, 0, place.shape[0]))
    require_same(ctx, (0, 2, anchors), (2, 1, anchor.shape[1]))
    ctx.require_dim(1, 1, dims.mul(anchors, 4))
    ctx.require_dim(2, 0, 1)
    ctx.require_dim(2, 2, 4)
    out = TensorType((batch, anchors, 6), probability.dtype)
    return TupleType((out, TensorType((batch,), "int32")))


def _prior_reference(inputs: tuple[Array, ...], attrs: MultiBoxPriorAttrs, result: Type) -> Array:
    (data,) = inputs
    height, width = data.shape[2:]
    boxes = boxes_of(attrs)
    step_y, step_x = (
        s if s > 0 else 1 / max(n, 1) for s, n in zip(attrs.steps, (height, width), strict=True)
    )
    out = np.empty((height, width, len(boxes), 4))
    y = ((np.arange(height) + attrs.offsets[0]) * step_y)[:, None]
    x = (np.arange(width) + attrs.offsets[1]) * step_x
    for k, (half, h) in enumerate(boxes):
        w = half * height / max(width, 1)
        for place, value in enumerate((x - w, y - h, x + w, y + h)):
            out[:, :, k, place] = value
    if attrs.clip:
        out = np.clip(out, 0, 1)
    return rounded(out.reshape(1, -1, 4), dtype_name(data))


def _box(moved: Array, anchor: Array, attrs: MultiBoxTransformLocAttrs) -> Array:
    """Corners of anchors moved by predictions, both (anchors, 4)."""
    kind = anchor.dtype.type
    scaled = moved * np.asarray(attrs.variances, kind)
    size = anchor[:, 2:] - anchor[:, :2]
    middle = scaled[:, :2] * size + (anchor[:, :2] + anchor[:, 2:]) / kind(2)
    half = np.exp(scaled[:, 2:]) * size / kind(2)
    found = np.concatenate([middle - half, middle + half], axis=1)
    return np.clip(found, kind(0), kind(1)) if attrs.clip else found


def _transform_reference(
    inputs: tuple[Array, ...], attrs: MultiBoxTransformLocAttrs, result: Type
) -> tuple[Array, ...]:
    probability, moved, anchor = (as_compute(value) for value in inputs)
    batches, classes, anchors = probability.shape
    out = np.full((batches, anchors, 6), -1, probability.dtype)
    counts = np.zeros(batches, "int32")
    first = 0 if attrs.keep_background else 1
    threshold = probability.dtype.type(attrs.threshold)
    with np.errstate(all="ignore"):
        for b in range(batches):
            label = np.zeros(anchors, "int64")
            score = np.full(anchors, -1, probability.dtype)
            for k in range(first, classes):
                better = probability[b, k] > score
                label[better], score[better] = k, probability[b, k, better]
            label[(label > 0) & (score < threshold)] = 0
            (kept,) = np.nonzero((label > 0) | attrs.keep_background)
            corners = _box(moved[b].reshape(-1, 4), anchor[0], attrs)
            rows = [label[kept] - first, score[kept], *corners[kept].T]
            out[b, : kept.size] = np.stack(rows, axis=1)
            counts[b] = kept.size
    return rounded(out, dtype_name(inputs[0])), counts


register(
    Op(
        name="vision.multibox_prior",
        args=("data",),
        attrs=MultiBoxPriorAttrs,
        relation=_prior,
        reference=_prior_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS,),
        doc=__doc__,
    )
)
register(
    Op(
        name="vision.multibox_transform_loc",
        args=("cls_prob", "loc_pred", "anchor"),
        attrs=MultiBoxTransformLocAttrs,
        relation=_transform,
        reference=_transform_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS, FLOATS, FLOATS),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
