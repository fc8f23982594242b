"""vision.get_valid_counts and the kinds of non-maximum suppression: C kernels in the operands' own shapes."""

from __future__ import annotations

from nimblevm.kernels.c_rules import CCall, register_c_call
from nimblevm.kernels.compute.sort import operand, results
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call


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


register_c_call("vision.all_class_non_max_suppression", _all_classes, only=True)
register_c_call("vision.get_valid_counts", _valid_counts, only=True)
register_c_call("vision.non_max_suppression", _suppression, only=True)
