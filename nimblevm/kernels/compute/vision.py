"""vision.get_valid_counts and vision.non_max_suppression: C kernels in the operands' own shapes."""

from __future__ import annotations

from nimblevm.kernels.c_rules import CCall, register_c_call
from nimblevm.kernels.compute.sort import operand, results
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


register_c_call("vision.get_valid_counts", _valid_counts, only=True)
register_c_call("vision.non_max_suppression", _suppression, only=True)
