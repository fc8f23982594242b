"""relay.vision: the functions of detectors, with TVM's argument order and defaults."""

from __future__ import annotations

from nimblevm.relay import ir, op
from nimblevm.relay.call import Operand, TupleWrapper, call_op, constant


def _number(value: Operand, dtype: str) -> Operand:
    return constant(value, dtype) if isinstance(value, bool | int | float) else value


def get_valid_counts(
    data: Operand, score_threshold: Operand, id_index: int = 0, score_index: int = 1
) -> TupleWrapper:
    """(valid_count, boxes, indices): the boxes whose score is above the threshold, at the front."""
    attrs = op.get_valid_counts.GetValidCountsAttrs(id_index, score_index)
    threshold = _number(score_threshold, "float32")
    return TupleWrapper(call_op("vision.get_valid_counts", data, threshold, attrs=attrs), 3)


def non_max_suppression(
    data: Operand,
    valid_count: Operand,
    indices: Operand,
    max_output_size: Operand = -1,
    iou_threshold: Operand = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> ir.Call | TupleWrapper:
    """(indices, their number) of the boxes that are left, or without return_indices the boxes."""
    attrs = op.non_max_suppression.NonMaximumSuppressionAttrs(
        force_suppress, top_k, coord_start, score_index, id_index, return_indices, invalid_to_bottom
    )
    limit, threshold = _number(max_output_size, "int32"), _number(iou_threshold, "float32")
    call = call_op(
        "vision.non_max_suppression", data, valid_count, indices, limit, threshold, attrs=attrs
    )
    return TupleWrapper(call, 2) if return_indices else call


__all__ = ["get_valid_counts", "non_max_suppression"]
