"""vision.get_valid_counts, vision.proposal and the kinds of non-maximum suppression: C kernels in the operands' own
shapes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nimblevm.kernels.c_kernels import ANCHOR_SLOTS
from nimblevm.kernels.c_rules import CCall, register_c_call
from nimblevm.kernels.compute.sort import operand, results
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call
from nimblevm.relay.op.common import product


def _valid_counts(call: Call) -> CCall:
    data = operand(call, 0)
    shapes = (data.shape, (), *(t.shape for t in results(call)))
    attrs = (call.attrs.id_index, call.attrs.score_index)
    return CCall(f"get_valid_counts_{data.dtype}", data.shape, attrs, shapes)


def _suppression(call: Call) -> CCall:
    data, attrs = operand(call, 0), call.attrs
    name = "nms_indices" if attrs.return_indices else "nms_boxes"
    inputs = (data.shape, data.shape[:1], data.shape[:2], (), ())
    constants = (
        int(attrs.force_suppress), attrs.top_k, attrs.coord_start, attrs.score_index,
        attrs.id_index, int(attrs.invalid_to_bottom),
    )  # fmt: skip
    shapes = (*inputs, *(t.shape for t in results(call)))
    return CCall(f"{name}_{data.dtype}", data.shape, constants, shapes)


def _all_classes(call: Call) -> CCall:
    boxes, scores = operand(call, 0), operand(call, 1)
    batch, classes, count = scores.shape
    every = (batch, classes, count)
    inputs = (boxes.shape, scores.shape, (), (), ())
    outputs: tuple[tuple[Dim, ...], ...]
    if call.attrs.output_format == "onnx":
        name, outputs = "all_class_nms", ((*every, 3), (1,))
    else:
        name, outputs = "all_class_nms_batches", ((*every, 2), every, (batch,))
    return CCall(f"{name}_{boxes.dtype}", every, (), (*inputs, *outputs))


def _bits(value: float) -> int:
    """A float32 as an attribute of a kernel."""
    return int(np.float32(value).view(np.int32))


def _regular(call: Call) -> CCall:
    boxes, scores, attrs = operand(call, 0), operand(call, 1), call.attrs
    constants = (
        attrs.max_detections_per_class, attrs.max_detections, attrs.num_classes,
        _bits(attrs.iou_threshold), _bits(attrs.score_threshold),
    )  # fmt: skip
    shapes = (boxes.shape, scores.shape, *(t.shape for t in results(call)))
    return CCall("regular_nms_float32", scores.shape, constants, shapes)


def _slots(values: Sequence[float]) -> tuple[int, ...]:
    return (*map(_bits, values), *(0,) * (ANCHOR_SLOTS - len(values)))


def _proposal(call: Call) -> CCall:
    scores, attrs = operand(call, 0), call.attrs
    (out,) = results(call)
    anchors = len(attrs.scales) * len(attrs.ratios)
    batch, _, height, width = scores.shape
    constants = (
        attrs.feature_stride, attrs.rpn_pre_nms_top_n, attrs.rpn_post_nms_top_n, int(attrs.iou_loss),
        _bits(attrs.threshold), attrs.rpn_min_size, len(attrs.scales), len(attrs.ratios),
        *_slots(attrs.scales), *_slots(attrs.ratios),
    )  # fmt: skip
    planes = ((batch, 2 * anchors, height, width), (batch, 4 * anchors, height, width))
    boxes = product((height, width, anchors))
    sizes = (batch, 2 * anchors, 4 * anchors, height, width, boxes, out.shape[0])
    return CCall("proposal_float32", sizes, constants, (*planes, (batch, 3), out.shape))


register_c_call("vision.all_class_non_max_suppression", _all_classes, only=True)
register_c_call("vision.get_valid_counts", _valid_counts, only=True)
register_c_call("vision.non_max_suppression", _suppression, only=True)
register_c_call("vision.proposal", _proposal, only=True)
register_c_call("vision.regular_non_max_suppression", _regular, only=True)
