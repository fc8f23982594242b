"""Cases of detectors' operators, and of images sampled at places that tensors give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nimblevm.relay.op import (
    all_class_nms,
    crop_and_resize,
    dilation2d,
    grid_sample,
    multibox,
    proposal,
    regular_nms,
    roi,
    yolo_reorg,
)
from tests.relay.op.draw import Case, Source, array, flag, pick

LAYOUTS = ("NCHW", "NHWC")


def _sized(layout: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[letter] for letter in layout)


def _image(source: Source, layout: str, dtype: str, batch: tuple[int, ...] = (1, 2)) -> np.ndarray:
    sizes = {letter: pick(source, (1, 2, 5, 6)) for letter in layout}
    sizes.update(N=pick(source, batch), C=pick(source, (0, 1, 2)))
    return array(source, _sized(layout, sizes), dtype, special=False)


def _uniform(source: Source, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    return np.asarray(rng.uniform(low, high, shape))


def _rois(source: Source, data: np.ndarray, layout: str) -> np.ndarray:
    """Quarters of elements, so that float16 has them."""
    count, batch = pick(source, (0, 1, 3)), data.shape[layout.index("N")]
    rois = np.round(_uniform(source, (count, 5), -12, 32)) / 4
    rois[:, 0] = [source.integer(0, batch - 1) for _ in range(count)]
    return np.asarray(rois.astype(data.dtype))


def _roi_align(source: Source, dtype: str) -> Case:
    layout = pick(source, LAYOUTS)
    data = _image(source, layout, dtype)
    size = tuple(source.integer(1, 3) for _ in range(source.integer(1, 2)))
    scale, ratio = pick(source, (1.0, 0.5)), pick(source, (-1, 0, 1, 2))
    attrs = roi.ROIAlignAttrs(size, scale, ratio, layout, pick(source, ("avg", "max")))
    return Case((data, _rois(source, data, layout)), attrs)


def _roi_pool(source: Source, dtype: str) -> Case:
    layout = pick(source, LAYOUTS)
    data = _image(source, layout, dtype)
    size = tuple(source.integer(1, 3) for _ in range(source.integer(1, 2)))
    attrs = roi.ROIPoolAttrs(size, pick(source, (1.0, 0.5)), layout)
    return Case((data, _rois(source, data, layout)), attrs)


def _multibox_prior(source: Source, dtype: str) -> Case:
    shape = (source.integer(0, 2), 1, *(pick(source, (0, 1, 2, 3)) for _ in "HW"))
    sizes = tuple(source.integer(1, 8) / 8 for _ in range(source.integer(1, 3)))
    ratios = (1.0, *(source.integer(1, 8) / 4 for _ in range(source.integer(0, 2))))
    steps = pick(source, ((-1.0, -1.0), (0.25, 0.5)))
    attrs = multibox.MultiBoxPriorAttrs(sizes, ratios, steps, (0.5, 0.25), flag(source))
    return Case((array(source, shape, dtype),), attrs)


def _multibox_transform(source: Source, dtype: str) -> Case:
    batch, anchors = pick(source, (0, 1, 2)), pick(source, (0, 1, 3, 7))
    classes = pick(source, (1, 2, 4))
    probability = _uniform(source, (batch, classes, anchors), 0, 1).astype(dtype)
    moved = _uniform(source, (batch, 4 * anchors), -2, 2).astype(dtype)
    anchor = _uniform(source, (1, anchors, 4), 0, 1).astype(dtype)
    attrs = multibox.MultiBoxTransformLocAttrs(
        flag(source), pick(source, (0.01, 0.5)), (0.1, 0.1, 0.2, 0.2), flag(source)
    )
    return Case((probability, moved, anchor), attrs)


def _all_class_nms(source: Source, dtype: str) -> Case:
    batch, classes, count = (
        pick(source, (0, 1, 2)),
        pick(source, (0, 1, 3)),
        pick(source, (0, 1, 4, 9)),
    )
    boxes = np.round(_uniform(source, (batch, count, 4), -8, 8)).astype(dtype)
    # Equal scores, and some that are not above 0.
    scores = (np.round(_uniform(source, (batch, classes, count), -5, 16)) / 4).astype(dtype)
    limit, iou, least = (
        np.asarray(value, kind).reshape(pick(source, ((), (1,))))
        for value, kind in (
            (source.integer(-1, 3), "int32"), (pick(source, (0.5, 0.25, 0.0)), "float32"),
            (pick(source, (-2.0, 0.0, 1.0)), "float32"),
        )
    )  # fmt: skip
    attrs = all_class_nms.AllClassNonMaximumSuppressionAttrs(pick(source, all_class_nms.FORMATS))
    return Case((boxes, scores, limit, iou, least), attrs)


def _yolo_reorg(source: Source, dtype: str) -> Case:
    stride = source.integer(1, 3)
    channels, *space = (pick(source, (0, 1, 2)) * stride for _ in range(3))
    shape = (pick(source, (0, 1, 2)), channels * stride, *space)
    return Case((array(source, shape, dtype),), yolo_reorg.YoloReorgAttrs(stride))


def _crop_and_resize(source: Source, dtype: str) -> Case:
    layout = pick(source, LAYOUTS)
    data = _image(source, layout, dtype)
    count = pick(source, (0, 1, 3))
    boxes = (np.round(_uniform(source, (count, 4), -2, 10)) / 8).astype("float32")
    last = data.shape[0] - 1
    indices = np.asarray([source.integer(0, last) for _ in range(count)], "int32")
    method = pick(source, ("bilinear", "nearest_neighbor"))
    # Sums that are almost a whole number would be cut to either side of it.
    plain = np.dtype(dtype).kind == "f" or method == "nearest_neighbor"
    size = tuple(source.integer(1, 4) for _ in range(source.integer(1, 2)))
    attrs = crop_and_resize.CropAndResizeAttrs(
        size, layout, method, pick(source, (0.0, 2.5)), None if plain else "float32"
    )
    return Case((data, boxes, indices), attrs)


def _affine_grid(source: Source, dtype: str) -> Case:
    data = array(source, (pick(source, (0, 1, 2)), 2, 3), dtype, special=False)
    size = tuple(source.integer(0, 4) for _ in range(source.integer(1, 2)))
    return Case((data,), grid_sample.AffineGridAttrs(size))


def _grid_sample(source: Source, dtype: str) -> Case:
    layout = pick(source, ("NCHW", "NCHW", "NCDHW"))
    data = _image(source, layout, dtype, (0, 1, 2))
    count = len(layout) - 2
    shape = (len(data), count, *(pick(source, (0, 1, 2, 4)) for _ in range(count)))
    # Sixteenths: halves of elements among them, which float16 has.
    grid = (np.round(_uniform(source, shape, -32, 32)) / 16).astype(dtype)
    method = pick(source, grid_sample.METHODS if count == 2 else grid_sample.METHODS[:2])
    attrs = grid_sample.GridSampleAttrs(
        method, layout, pick(source, grid_sample.PADDINGS), flag(source)
    )
    return Case((data, grid), attrs)


def _dilation2d(source: Source, dtype: str) -> Case:
    strides, dilations, kernel = (
        tuple(source.integer(1, most) for _ in "HW") for most in (2, 2, 3)
    )
    padding = tuple(source.integer(0, 2) for _ in range(pick(source, (1, 2, 4))))
    pairs = {1: padding * 4, 2: padding * 2, 4: padding}[len(padding)]
    sizes = {"N": pick(source, (0, 1, 2)), "C": pick(source, (0, 1, 2))}
    for n, letter in enumerate("HW"):
        reach = (kernel[n] - 1) * dilations[n] + 1
        sizes[letter] = max(reach - pairs[n] - pairs[n + 2], 0) + source.integer(0, 3)
    layout, kernel_layout = pick(source, (("NCHW", "IHW"), ("NHWC", "HWI")))
    out_dtype = pick(source, ("", "float32"))
    attrs = dilation2d.Dilation2DAttrs(
        strides, padding, dilations, layout, kernel_layout, out_dtype
    )
    weight = _sized(kernel_layout, {"I": sizes["C"], "H": kernel[0], "W": kernel[1]})
    inputs = (_sized(layout, sizes), weight)
    return Case(tuple(array(source, shape, dtype, special=False) for shape in inputs), attrs)


def _regular_nms(source: Source, dtype: str) -> Case:
    batch, count, classes = (pick(source, sizes) for sizes in ((0, 1, 2), (0, 1, 4, 9), (0, 1, 3)))
    corners = np.round(_uniform(source, (batch, count, 2, 2), -8, 8))
    boxes = np.sort(corners, 2) if flag(source) else corners
    columns = classes + source.integer(0, 1)
    # Equal scores among them.
    scores = np.round(_uniform(source, (batch, count, columns), -4, 16)) / 4
    attrs = regular_nms.RegularNonMaximumSuppressionAttrs(
        source.integer(0, 4), source.integer(0, 6), classes, pick(source, (0.0, 0.25, 0.5)),
        pick(source, (-0.5, 0.0, 1.0)),
    )  # fmt: skip
    return Case((boxes.reshape(batch, count, 4).astype(dtype), scores.astype(dtype)), attrs)


def _proposal(source: Source, dtype: str) -> Case:
    scales = tuple(source.integer(1, 8) / 2 for _ in range(source.integer(1, 2)))
    ratios = tuple(source.integer(1, 4) / 2 for _ in range(source.integer(1, 2)))
    anchors = len(scales) * len(ratios)
    batch, *space = (pick(source, sizes) for sizes in ((0, 1, 2), (0, 1, 3), (0, 1, 4)))
    probabilities = _uniform(source, (batch, 2 * anchors, *space), 0, 1)
    iou_loss = flag(source)
    # Whole pixels, or sides as they are: what overlaps by the threshold does so in every rounding.
    deltas = np.round(_uniform(source, (batch, 4 * anchors, *space), -4, 4)) / 4
    if not iou_loss:
        deltas.reshape(batch, anchors, 4, *space)[:, :, 2:] = 0
    side = pick(source, (2, 8))
    info = _uniform(source, (batch, 3), 1, 3).round() * (side, side, 1)
    attrs = proposal.ProposalAttrs(
        scales, ratios, side, pick(source, (0.3, 0.7)), pick(source, (-1, 3, 9)),
        source.integer(0, 5), source.integer(0, 4), iou_loss,
    )  # fmt: skip
    return Case(tuple(v.astype(dtype) for v in (probabilities, deltas, info)), attrs)


CASES: dict[str, Callable[[Source, str], Case]] = {
    "vision.roi_align": _roi_align, "vision.roi_pool": _roi_pool, "vision.multibox_prior": _multibox_prior,
    "vision.multibox_transform_loc": _multibox_transform, "vision.yolo_reorg": _yolo_reorg,
    "image.crop_and_resize": _crop_and_resize, "image.affine_grid": _affine_grid, "image.grid_sample": _grid_sample,
    "image.dilation2d": _dilation2d, "vision.all_class_non_max_suppression": _all_class_nms,
    "vision.proposal": _proposal, "vision.regular_non_max_suppression": _regular_nms,
}  # fmt: skip
