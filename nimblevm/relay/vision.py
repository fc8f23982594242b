"""relay.vision: the functions of detectors, with TVM's argument order and defaults."""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm.relay import ir, op
from nimblevm.relay.call import Operand, TupleWrapper, call_op, constant
from nimblevm.relay.nn_conv import Sizes
from nimblevm.relay.nn_conv import sizes as pair_of


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


def all_class_non_max_suppression(
    boxes: Operand,
    scores: Operand,
    max_output_boxes_per_class: Operand = -1,
    iou_threshold: Operand = -1.0,
    score_threshold: Operand = -1.0,
    output_format: str = "onnx",
) -> TupleWrapper:
    """(indices, their number), or for "tensorflow" (indices, scores, numbers), of the boxes that each class keeps."""
    attrs = op.all_class_nms.AllClassNonMaximumSuppressionAttrs(output_format)
    limit = _number(max_output_boxes_per_class, "int32")
    thresholds = (_number(value, "float32") for value in (iou_threshold, score_threshold))
    call = call_op(
        "vision.all_class_non_max_suppression", boxes, scores, limit, *thresholds, attrs=attrs
    )
    return TupleWrapper(call, 2 if output_format == "onnx" else 3)


def multibox_prior(
    data: Operand,
    sizes: Sequence[float] = (1.0,),
    ratios: Sequence[float] = (1.0,),
    steps: Sequence[float] = (-1.0, -1.0),
    offsets: Sequence[float] = (0.5, 0.5),
    clip: bool = False,
) -> ir.Call:
    """Anchors: boxes of several sizes and ratios around each place of an image."""
    sizes, ratios, steps, offsets = (
        tuple(map(float, values)) for values in (sizes, ratios, steps, offsets)
    )
    attrs = op.multibox.MultiBoxPriorAttrs(sizes, ratios, steps, offsets, clip)
    return call_op("vision.multibox_prior", data, attrs=attrs)


def multibox_transform_loc(
    cls_prob: Operand,
    loc_pred: Operand,
    anchor: Operand,
    clip: bool = True,
    threshold: float = 0.01,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    keep_background: bool = False,
) -> TupleWrapper:
    """(boxes, valid_count): the anchors that have a class, moved as predicted, at the front."""
    attrs = op.multibox.MultiBoxTransformLocAttrs(
        clip, float(threshold), tuple(map(float, variances)), keep_background
    )
    made = call_op("vision.multibox_transform_loc", cls_prob, loc_pred, anchor, attrs=attrs)
    return TupleWrapper(made, 2)


def roi_align(
    data: Operand,
    rois: Operand,
    pooled_size: Sizes,
    spatial_scale: float,
    sample_ratio: int = -1,
    layout: str = "NCHW",
    mode: str = "avg",
) -> ir.Call:
    """The mean or greatest of places in bins of regions of an image."""
    attrs = op.roi.ROIAlignAttrs(
        pair_of(pooled_size, 2) or (), float(spatial_scale), sample_ratio, layout, mode
    )
    return call_op("vision.roi_align", data, rois, attrs=attrs)


def roi_pool(
    data: Operand,
    rois: Operand,
    pooled_size: Sizes,
    spatial_scale: float,
    layout: str = "NCHW",
) -> ir.Call:
    """The greatest element in bins of regions of an image."""
    attrs = op.roi.ROIPoolAttrs(pair_of(pooled_size, 2) or (), float(spatial_scale), layout)
    return call_op("vision.roi_pool", data, rois, attrs=attrs)


def yolo_reorg(data: Operand, stride: int) -> ir.Call:
    """darknet's reorganization of an image."""
    return call_op("vision.yolo_reorg", data, attrs=op.yolo_reorg.YoloReorgAttrs(stride))


def regular_non_max_suppression(
    boxes: Operand,
    scores: Operand,
    max_detections_per_class: int,
    max_detections: int,
    num_classes: int,
    iou_threshold: float,
    score_threshold: float,
) -> TupleWrapper:
    """(boxes, classes, scores, numbers) of the best boxes of all classes, each suppressed by itself, as TFLite does."""
    attrs = op.regular_nms.RegularNonMaximumSuppressionAttrs(
        max_detections_per_class,
        max_detections,
        num_classes,
        float(iou_threshold),
        float(score_threshold),
    )
    call = call_op("vision.regular_non_max_suppression", boxes, scores, attrs=attrs)
    return TupleWrapper(call, 4)


def proposal(
    cls_prob: Operand,
    bbox_pred: Operand,
    im_info: Operand,
    scales: Sequence[float],
    ratios: Sequence[float],
    feature_stride: int,
    threshold: float,
    rpn_pre_nms_top_n: int,
    rpn_post_nms_top_n: int,
    rpn_min_size: int,
    iou_loss: bool,
) -> ir.Call:
    """Regions of an image, (number in the batch, x1, y1, x2, y2), of a region proposal network."""
    attrs = op.proposal.ProposalAttrs(
        tuple(map(float, scales)),
        tuple(map(float, ratios)),
        feature_stride,
        float(threshold),
        rpn_pre_nms_top_n,
        rpn_post_nms_top_n,
        rpn_min_size,
        iou_loss,
    )
    return call_op("vision.proposal", cls_prob, bbox_pred, im_info, attrs=attrs)


__all__ = [
    "all_class_non_max_suppression", "get_valid_counts", "multibox_prior", "multibox_transform_loc",
    "non_max_suppression", "proposal", "regular_non_max_suppression", "roi_align", "roi_pool",
    "yolo_reorg",
]  # fmt: skip
