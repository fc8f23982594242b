"""An SSD-like detection head: class and box convolutions on a feature map, softmax, decoding, non-maximum suppression.

    scores (n, h w, classes), boxes = centre and size relative to a grid cell;  nms over the best class of every cell

Source: Liu et al. 2016 (arXiv 1512.02325), with one square anchor a cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.bench.workloads.gru import declarations, draw
from nimblevm.bench.workloads.lstm import sigmoid
from nimblevm.bench.workloads.resnet import conv2d

Array = np.ndarray[Any, Any]
IOU, SCORE = 0.4, 0.3


def weight_shapes(channels: int, classes: int) -> dict[str, tuple[int, ...]]:
    """Shapes by name. Class 0 is the background."""
    return {
        "class_w": (classes, channels, 3, 3), "class_b": (classes,),
        "box_w": (4, channels, 3, 3), "box_b": (4,),
    }  # fmt: skip


def text(channels: int = 16, classes: int = 5) -> str:
    """Relay text: main(x: (?n, channels, ?h, ?w), weights) -> (?n, h w, 6).

    Rows [class, score, x1, y1, x2, y2] of each image: the kept ones, best first; the rest is -1.
    """
    conv = "padding=[1, 1], kernel_size=[3, 3]"
    return f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, {channels}, ?h, ?w), float32],
          {declarations(weight_shapes(channels, classes))}) -> Tensor[(?n, ?, 6), float32] {{
  let %c = nn.bias_add(nn.conv2d(%x, %class_w, channels={classes}, {conv}), %class_b);
  let %scores = nn.softmax(reshape(transpose(%c, axes=[0, 2, 3, 1]), newshape=[0, -1, {classes}]), axis=-1);
  let %objects = strided_slice(%scores, begin=[1], end=[{classes}], strides=[1], axes=[2]);
  let %best = max(%objects, axis=[2], keepdims=True);
  let %class = cast(argmax(%objects, axis=[2], keepdims=True), dtype="float32");
  let %b = nn.bias_add(nn.conv2d(%x, %box_w, channels=4, {conv}), %box_b);
  let %boxes = sigmoid(reshape(transpose(%b, axes=[0, 2, 3, 1]), newshape=[0, -1, 4]));
  let %centre = strided_slice(%boxes, begin=[0], end=[2], strides=[1], axes=[2]);
  let %half = strided_slice(%boxes, begin=[2], end=[4], strides=[1], axes=[2]) * 0.5f;
  let %rows = concatenate((%class, %best, %centre - %half, %centre + %half), axis=2);
  let %valid = vision.get_valid_counts(%rows, {SCORE}f, id_index=0, score_index=1);
  vision.non_max_suppression(%valid.1, %valid.0, %valid.2, -1, {IOU}f, return_indices=False, invalid_to_bottom=True)
}}
"""


def params(channels: int = 16, classes: int = 5, seed: int = 0) -> dict[str, Array]:
    """Seeded weights."""
    return draw(weight_shapes(channels, classes), seed)


def reference(x: Array, class_w: Array, class_b: Array, box_w: Array, box_b: Array) -> Array:
    """The kept rows of every image, best first, the rest -1: (n, h w, 6), in numpy float32."""
    batch, _, height, width = x.shape
    cells = height * width
    logits = (conv2d(x, class_w, 1) + class_b[:, None, None]).transpose(0, 2, 3, 1)
    logits = logits.reshape(batch, cells, class_b.shape[0])
    scores = np.exp(logits - logits.max(-1, keepdims=True))
    objects = (scores / scores.sum(-1, keepdims=True))[..., 1:]
    boxes = sigmoid(
        (conv2d(x, box_w, 1) + box_b[:, None, None]).transpose(0, 2, 3, 1).reshape(batch, cells, 4)
    )
    centre, half = boxes[..., :2], boxes[..., 2:] * np.float32(0.5)
    best = objects.max(-1, keepdims=True)
    kind = objects.argmax(-1)[..., None].astype(np.float32)
    rows = np.concatenate([kind, best, centre - half, centre + half], -1)
    out = np.full_like(rows, -1)
    for image in range(batch):
        kept = suppress(rows[image])
        out[image, : len(kept)] = kept
    return out


def suppress(rows: Array) -> Array:
    """Greedy non-maximum suppression: rows above SCORE, best first.

    A row that overlaps a better one of its class by IOU or more is left out.
    """
    order = np.argsort(-rows[:, 1], kind="stable")
    kept: list[Array] = []
    for row in rows[order]:
        if row[1] > SCORE and all(k[0] != row[0] or _overlap(k, row) < IOU for k in kept):
            kept.append(row)
    return np.array(kept, np.float32).reshape(-1, rows.shape[1])


def _overlap(a: Array, b: Array) -> float:
    """Intersection over union of two boxes [.., .., x1, y1, x2, y2]."""
    sides = np.minimum(a[4:], b[4:]) - np.maximum(a[2:4], b[2:4])
    common = float(np.prod(np.maximum(sides, 0)))
    area = [float(np.prod(r[4:] - r[2:4])) for r in (a, b)]
    return common / (area[0] + area[1] - common) if common else 0.0
