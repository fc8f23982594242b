"""vision.non_max_suppression(data, valid_count, indices, max_output_size, iou_threshold, ...): boxes that overlap go.

Of the first valid_count[b] boxes of each batch, best score first (stable), at most top_k (if > 0):
    a box with score <= 0 stays and is not compared; another one goes if max_output_size of those have been kept
    (from then on all go), or if its iou with an earlier kept one of the same class is >= iou_threshold:
    iou = area of the intersection / area of the union, 0 for a union <= 0
    same class: force_suppress, or id_index < 0, or equal fields id_index; a box with a class < 0 suppresses none
With iou_threshold <= 0 all valid boxes stay in their order.
    return_indices:  a tuple: out[b, r] = indices[b, the place in data of the r-th box that is left] (negative ones are
                     left out), then -1;  count[b, 0], how many
    else:            out[b, r] = the boxes in that order, rows of -1 for those that went and at the end; with
                     invalid_to_bottom all boxes that are left come first

data: (batch, boxes, fields), float; a box has its corners at coord_start..coord_start + 3 (either order). valid_count:
int32 (batch,); indices: int32 (batch, boxes); max_output_size: one int32 (negative: no limit); iou_threshold: one
float32. Result: int32 (batch, boxes) and (batch, 1), or data's type. Attrs: force_suppress, top_k, coord_start,
score_index, id_index, return_indices, invalid_to_bottom. Errors: IndexOutOfRange for a valid_count outside of 0..boxes.
float16 is computed in float32. Source: Relay's vision.non_max_suppression (TOPI, CPU).
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import IndexOutOfRange
from nimblevm.relay.op.common import FLOATS, Array, Attrs, as_compute, require_same, tensor_of
from nimblevm.relay.op.get_valid_counts import boxes_of, field_index, scalar_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.sort import order
from nimblevm.relay.types import TensorType, TupleType, Type


@dataclass(frozen=True, slots=True)
class NonMaximumSuppressionAttrs(Attrs):
    """force_suppress: classes do not matter. top_k: boxes to look at, <= 0 for all. coord_start, score_index, id_index:
    fields (id_index < 0: none). return_indices: indices instead of boxes. invalid_to_bottom: boxes that are left first.
    """

    force_suppress: bool = False
    top_k: int = -1
    coord_start: int = 2
    score_index: int = 1
    id_index: int = 0
    return_indices: bool = True
    invalid_to_bottom: bool = False


def _relation(
    ctx: TypeContext, arg_types: tuple[Type, ...], attrs: NonMaximumSuppressionAttrs
) -> Type:
    needed = max(
        field_index(ctx, "coord_start", attrs.coord_start) + 3,
        field_index(ctx, "score_index", attrs.score_index),
        field_index(ctx, "id_index", attrs.id_index, -(2**31)),
    )
    data = boxes_of(ctx, arg_types, needed)
    for index, rank in ((1, 1), (2, 2)):
        found = tensor_of(ctx, arg_types, index, ("int32",))
        if len(found.shape) != rank:
            raise ctx.fail(f"argument {index} must have rank {rank}, not {len(found.shape)}", index)
        for axis in range(rank):
            require_same(ctx, (0, axis, data.shape[axis]), (index, axis, found.shape[axis]))
    scalar_of(ctx, arg_types, 3, "int32")
    scalar_of(ctx, arg_types, 4, "float32")
    if not attrs.return_indices:
        return data
    count = TensorType((data.shape[0], 1), "int32")
    return TupleType((TensorType(data.shape[:2], "int32"), count))


def _iou(a: Array, b: Array) -> Any:
    """Intersection over union of two boxes of four coordinates, in their dtype."""
    low_a, high_a = np.minimum(a[:2], a[2:]), np.maximum(a[:2], a[2:])
    low_b, high_b = np.minimum(b[:2], b[2:]), np.maximum(b[:2], b[2:])
    size = np.maximum(np.minimum(high_a, high_b) - np.maximum(low_a, low_b), a.dtype.type(0))
    area = size[1] * size[0]
    (wide_a, high), (wide_b, tall) = high_a - low_a, high_b - low_b
    union = wide_a * high + wide_b * tall - area
    return a.dtype.type(0) if union <= 0 else area / union


def suppress(
    boxes: Array, places: Array, limit: int, threshold: Any, attrs: NonMaximumSuppressionAttrs
) -> list[int]:
    """The places in order, -1 for the boxes that go; `limit` boxes are kept at most, if that is not negative."""
    left: list[int] = []
    kept: list[Array] = []
    held = 0
    for place in places:
        box = boxes[place]
        gone = held == limit
        if not gone and box[attrs.score_index] > 0:
            for other in kept:
                same = attrs.force_suppress or attrs.id_index < 0
                if same or box[attrs.id_index] == other[attrs.id_index]:
                    corners = slice(attrs.coord_start, attrs.coord_start + 4)
                    gone = gone or bool(_iou(box[corners], other[corners]) >= threshold)
            if not gone:
                held += 1
                if attrs.id_index < 0 or box[attrs.id_index] >= 0:
                    kept.append(box)
        left.append(-1 if gone else int(place))
    return left


def _arrange(
    boxes: Array, limit: int, threshold: Array, attrs: NonMaximumSuppressionAttrs
) -> list[int]:
    """The valid boxes of one batch in the order of the result, -1 for those that went."""
    count = len(boxes)
    if not threshold > 0:
        return list(range(count))
    places = order(boxes[:, attrs.score_index], 0, is_ascend=False)
    kept = attrs.top_k if 0 < attrs.top_k < count else count
    compared = as_compute(boxes)
    bound = compared.dtype.type(threshold)
    left = suppress(compared, places[:kept], limit, bound, attrs)
    return left + [-1] * (count - kept)


def _reference(
    inputs: tuple[Array, ...], attrs: NonMaximumSuppressionAttrs, result: Type
) -> Array | tuple[Array, ...]:
    data, valid_count, indices, limit, threshold = inputs
    batches, number = data.shape[:2]
    out = np.full_like(data, -1)
    found = np.full((batches, number), -1, "int32")
    counts = np.zeros((batches, 1), "int32")
    for batch, valid in enumerate(valid_count.tolist()):
        if not 0 <= valid <= number:
            raise IndexOutOfRange(
                f"vision.non_max_suppression: valid_count {valid} is not in 0..{number}"
            )
        with np.errstate(all="ignore"):
            left = _arrange(data[batch, :valid], int(limit.item()), threshold.reshape(()), attrs)
        kept = [place for place in left if place >= 0]
        named = [i for i in indices[batch, kept].tolist() if i >= 0]
        found[batch, : len(named)] = named
        counts[batch] = len(named)
        for row, place in enumerate(kept if attrs.invalid_to_bottom else left):
            if place >= 0:
                out[batch, row] = data[batch, place]
    return (found, counts) if attrs.return_indices else out


register(
    Op(
        name="vision.non_max_suppression",
        args=("data", "valid_count", "indices", "max_output_size", "iou_threshold"),
        attrs=NonMaximumSuppressionAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(FLOATS, ("int32",), ("int32",), ("int32",), ("float32",)),
        doc=__doc__,
    )
)
