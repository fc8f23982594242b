"""Detectors and sampled images, element by element as their definitions say; regions and indices that are out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import IndexOutOfRange, RelayTypeError, ShapeMismatch, TimeLimit
from nimblevm.relay.interpreter import evaluate
from tests.kernels.native import flat
from tests.relay.op.checks import Refused, f32, fails, i32, program, refused, run

RNG = np.random.default_rng(3)
DATA = RNG.normal(size=(2, 3, 5, 6)).astype("float32")


def linear(image: np.ndarray, y: float, x: float) -> float:
    """An (H, W) at a place, 0 far outside."""
    height, width = image.shape
    if y < -1 or x < -1 or y > height or x > width:
        return 0.0
    y, x = min(max(y, 0.0), height - 1), min(max(x, 0.0), width - 1)
    i, j = int(y), int(x)
    k, m = min(i + 1, height - 1), min(j + 1, width - 1)
    top = image[i, j] * (1 - x + j) + image[i, m] * (x - j)
    low = image[k, j] * (1 - x + j) + image[k, m] * (x - j)
    return float(top * (1 - y + i) + low * (y - i))


ROIS = f32([[1, 1, 0.5, 4, 3.5], [0, -3, -2, 1, 9], [1, 2, 2, 2, 2], [0, 30, 1, 40, 2]])


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [-1, 2])
def test_roi_align_by_its_places(mode: str, ratio: int) -> None:
    found = run(
        lambda d, r: relay.vision.roi_align(d, r, (2, 3), 0.8, ratio, "NCHW", mode), DATA, ROIS
    )
    for n, (image, *corners) in enumerate(ROIS):
        x1, y1, x2, y2 = (c * np.float32(0.8) for c in corners)
        high, wide = max(y2 - y1, 1) / 2, max(x2 - x1, 1) / 3
        rows, columns = (ratio if ratio > 0 else int(np.ceil(s)) for s in (high, wide))
        for c, i, j in np.ndindex(3, 2, 3):
            values = [
                linear(
                    DATA[int(image), c],
                    y1 + i * high + (p + 0.5) * high / rows,
                    x1 + j * wide + (q + 0.5) * wide / columns,
                )
                for p in range(rows) for q in range(columns)
            ]  # fmt: skip
            wanted = np.mean(values) if mode == "avg" else max(values)
            assert found[n, c, i, j] == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_roi_pool_by_its_bins() -> None:
    found = run(lambda d, r: relay.vision.roi_pool(d, r, (2, 2), 1.0), DATA, ROIS)
    assert found[2, :, 0, 0].tolist() == DATA[1, :, 2, 2].tolist()
    np.testing.assert_array_equal(found[3], np.zeros((3, 2, 2)))  # right of the image
    # Rows 1..4 (0.5 and 3.5 go away from zero) and columns 1..4 of image 1, in halves.
    halves = DATA[1, :, 1:5, 1:5].reshape(3, 2, 2, 2, 2).max((2, 4))
    np.testing.assert_array_equal(found[0], halves)
    behind = np.moveaxis(DATA, 1, -1).copy()
    other = run(lambda d, r: relay.vision.roi_pool(d, r, 2, 1.0, "NHWC"), behind, ROIS)
    np.testing.assert_array_equal(np.moveaxis(other, -1, 1), found)


def test_regions_out_of_range_are_errors() -> None:
    def align(d: Any, r: Any) -> Any:
        return relay.vision.roi_align(d, r, (1, 1), 1.0)

    def pool(d: Any, r: Any) -> Any:
        return relay.vision.roi_pool(d, r, (1, 1), 1.0)

    for image in (-1.0, 2.0, 1e30):
        for made in (align, pool):
            fails(IndexOutOfRange, made, DATA, f32([[image, 0, 0, 1, 1]]))
    for far in (2.0**14, 1e30, np.inf):  # no kernel walks for years
        fails(IndexOutOfRange, align, DATA, f32([[0, 0, 0, far, 1]]))
    assert run(pool, DATA, f32([[0, -1e30, -1e30, 1e30, np.inf]])).shape == (1, 3, 1, 1)
    assert np.isnan(run(align, DATA, f32([[0, np.nan, 0, 1, 1]]))).all()  # of no places
    assert run(align, DATA, np.zeros((0, 5), "float32")).shape == (0, 3, 1, 1)
    assert run(pool, DATA[:0], np.zeros((0, 5), "float32")).shape == (0, 3, 1, 1)
    fails(ShapeMismatch, align, DATA[:, :, :0], ROIS)
    fails(ShapeMismatch, align, DATA, ROIS[:, :4].copy())


def test_anchors() -> None:
    data = np.zeros((1, 1, 2, 4), "float32")
    found = run(lambda d: relay.vision.multibox_prior(d, (0.5, 0.25), (1, 4)), data)
    assert found.shape == (1, 2 * 4 * 3, 4)
    for place, (i, j, k) in enumerate(np.ndindex(2, 4, 3)):
        size, ratio = ((0.5, 1), (0.25, 1), (0.5, 4))[k]
        y, x = (i + 0.5) / 2, (j + 0.5) / 4
        w, h = size * 2 / 4 / 2 * ratio**0.5, size / 2 / ratio**0.5
        np.testing.assert_allclose(found[0, place], [x - w, y - h, x + w, y + h], rtol=1e-6)
    cut = run(lambda d: relay.vision.multibox_prior(d, clip=True, steps=(1, 2)), data)
    assert (cut.min(), cut.max()) == (0, 1)
    assert run(lambda d: relay.vision.multibox_prior(d), data[:, :, :0]).shape == (1, 0, 4)


def test_anchors_become_boxes() -> None:
    probability = f32([[[0.9, 0.1, 0.3, 0.2], [0.1, 0.7, 0.3, 0.004], [0, 0.2, 0.4, 0.003]]])
    anchor = f32([[[0, 0, 0.5, 0.5], [0.2, 0.2, 0.6, 0.4], [0.5, 0, 1, 1], [0, 0, 1, 1]]])
    moved = np.zeros((1, 16), "float32")
    moved[0, 4:8] = 1, 2, 0.5, -0.5
    boxes, count = run(relay.vision.multibox_transform_loc, probability, moved, anchor)
    assert count.tolist() == [3]  # class 0 never counts, so the first anchor is of class 1
    w, h = 0.4 * np.exp(0.1) / 2, 0.2 * np.exp(-0.1) / 2
    x, y = 0.4 + 0.1 * 0.4, 0.3 + 0.2 * 0.2
    np.testing.assert_allclose(boxes[0, 0], [0, 0.1, 0, 0, 0.5, 0.5], rtol=1e-5)
    np.testing.assert_allclose(boxes[0, 1], [0, 0.7, x - w, y - h, x + w, y + h], rtol=1e-5)
    np.testing.assert_allclose(boxes[0, 2], [1, 0.4, 0.5, 0, 1, 1], rtol=1e-5)
    assert boxes[0, 3].tolist() == [-1] * 6
    kept, count = run(
        lambda p, m, a: relay.vision.multibox_transform_loc(p, m, a, keep_background=True),
        probability,
        moved,
        anchor,
    )
    assert count.tolist() == [4]
    assert kept[0, :, 0].tolist() == [0, 1, 2, 0]
    nothing = run(relay.vision.multibox_transform_loc, probability[:, :0], moved, anchor)
    assert nothing[1].tolist() == [0]


def test_yolo_reorg_is_darknet_s() -> None:
    data = np.arange(2 * 8 * 4 * 6, dtype="float32").reshape(2, 8, 4, 6)
    found = run(lambda d: relay.vision.yolo_reorg(d, 2), data)
    assert found.shape == (2, 32, 2, 3)
    flat_data, wanted = data.reshape(-1), []
    for b, k, j, i in np.ndindex(*data.shape):
        block, channel = divmod(k, 2)
        row, column = j * 2 + block // 2, i * 2 + block % 2
        wanted.append(flat_data[column + 12 * (row + 8 * (channel + 2 * b))])
    np.testing.assert_array_equal(found.reshape(-1), wanted)


def test_parts_of_images() -> None:
    boxes, which = (
        f32([[0, 0, 1, 1], [1, 0.2, 0, 0.4], [0.5, 0.5, 2, 0.5]]),
        i32([1, 0, 1]),
    )
    found = run(
        lambda d, b, i: relay.image.crop_and_resize(d, b, i, (5, 2), "NCHW", "bilinear", -7),
        DATA,
        boxes,
        which,
    )
    np.testing.assert_allclose(found[0, :, :, 0], DATA[1, :, :, 0], rtol=1e-6)
    np.testing.assert_allclose(found[1, :, 0], DATA[0, :, 4, [1, 2]].T, rtol=1e-5)
    assert (found[2, :, 2:] == -7).all()
    one = run(
        lambda d, b, i: relay.image.crop_and_resize(d, b, i, 1, "NCHW", "nearest_neighbor"),
        DATA,
        boxes,
        which,
    )
    assert one[0, :, 0, 0].tolist() == DATA[1, :, 2, 3].tolist()  # 2.5 goes away from zero
    for method in ("bilinear", "nearest_neighbor"):
        nowhere = run(
            lambda d, b, how=method: relay.image.crop_and_resize(
                d, b, relay.const([0]), 2, "NCHW", how, -7
            ),
            DATA,
            f32([[np.nan, 0, 1, np.inf]]),
        )
        assert (nowhere == -7).all()
    fails(
        IndexOutOfRange, lambda d, b, i: relay.image.crop_and_resize(d, b, i, 2, "NCHW"),
        DATA, boxes, i32([0, 2, 0]),
    )  # fmt: skip


def test_grids_and_their_samples() -> None:
    still = f32([[[1, 0, 0], [0, 1, 0]]] * 2)
    grid = run(lambda d: relay.image.affine_grid(d, (5, 6)), still)
    np.testing.assert_allclose(grid[0, 0, 0], np.linspace(-1, 1, 6), atol=1e-6)
    np.testing.assert_allclose(grid[1, 1, :, 3], np.linspace(-1, 1, 5), atol=1e-6)
    assert run(lambda d: relay.image.affine_grid(d, (1, 2)), still)[0, 1].tolist() == [[-1, -1]]
    for method in ("bilinear", "nearest", "bicubic"):
        same = run(lambda d, g, m=method: relay.image.grid_sample(d, g, m), DATA, grid)
        np.testing.assert_allclose(same, DATA, rtol=1e-4, atol=1e-5)
    # Half an element left of the image, far from it, at NaN.
    places = np.zeros((1, 2, 1, 3), "float32")
    places[0, 0, 0] = -1.2, 9, np.nan
    row = DATA[:1, :, 2]
    outside: dict[str, tuple[float, float | None]] = {
        "zeros": (0.5, 0.0), "border": (1.0, None), "reflection": (0.5, None),
    }  # fmt: skip
    for padding, (factor, far) in outside.items():
        found = run(
            lambda d, g, p=padding: relay.image.grid_sample(d, g, "bilinear", "NCHW", p),
            DATA[:1],
            places,
        )
        wanted = row[:, :, 0] * factor + (row[:, :, 1] * 0.5 if padding == "reflection" else 0)
        np.testing.assert_allclose(found[:, :, 0, 0], wanted, rtol=1e-4, atol=1e-5)
        if far is not None:
            assert (found[:, :, 0, 1] == far).all()
    single = run(
        lambda d, g: relay.image.grid_sample(d, g, "bilinear", "NCHW", "reflection"),
        DATA[:1, :, :1, :1].copy(),
        places,
    )
    np.testing.assert_allclose(single[0, :, 0, :2], DATA[0, :, 0, :1].repeat(2, 1), rtol=1e-6)


def test_dilation_takes_the_greatest_sum() -> None:
    weight = RNG.normal(size=(3, 2, 2)).astype("float32")
    found = run(lambda d, w: relay.image.dilation2d(d, w, 2, (1, 0), (1, 2)), DATA, weight)
    padded = np.pad(DATA, ((0, 0), (0, 0), (1, 1), (0, 0)))
    for n, c, y, x in np.ndindex(*found.shape):
        seen = padded[n, c, 2 * y : 2 * y + 2, 2 * x : 2 * x + 3 : 2]
        assert found[n, c, y, x] == (seen + weight[c]).max()
    endless = np.full((3, 1, 1), -np.inf, "float32")
    assert np.isnan(
        run(relay.image.dilation2d, np.full((1, 3, 1, 1), np.inf, "float32"), endless)
    ).all()


BOXES = f32([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [1, 1, 0, 0], [0, 5, 1, 6], [9, 9, 10, 10]]])


def test_every_class_keeps_its_own_boxes() -> None:
    scores = f32([[[0.9, 0.8, 0.7, 0.6, 0.05], [0.1, 0.3, 0.2, 0.3, 0.3]]])

    def kept(*numbers: Any) -> list[list[int]]:
        rows, count = run(
            lambda b, s: relay.vision.all_class_non_max_suppression(b, s, *numbers), BOXES, scores
        )
        assert (rows[count[0] :] == -1).all()
        return rows[: count[0]].tolist()

    assert kept(-1, 0.5, 0.1) == [[0, 0, 0], [0, 0, 3], [0, 1, 1], [0, 1, 3], [0, 1, 4]]
    assert kept(1, 0.5, 0.1) == [[0, 0, 0], [0, 1, 1]]
    assert len(kept(-1, 1.1, 0.0)) == 10  # nothing overlaps so much
    assert kept(-1, 0.0, 0.0) == []
    assert kept(-1, 0.5, 2.0) == []
    rows, best, count = run(
        lambda b, s: relay.vision.all_class_non_max_suppression(b, s, 2, 0.5, 0.1, "tensorflow"),
        BOXES,
        scores,
    )
    assert count.tolist() == [4]
    assert rows[0, :5].tolist() == [[0, 0], [0, 3], [1, 1], [1, 3], [0, 0]]
    np.testing.assert_array_equal(best[0, :5], f32([0.9, 0.6, 0.3, 0.3, 0]))


@pytest.mark.parametrize("output_format", ["onnx", "tensorflow"])
def test_classes_without_boxes_take_no_time(output_format: str) -> None:
    """They are in no memory, so that an input without a byte may have any number of them."""
    values = np.zeros((1, 0, 4), "float32"), np.zeros((1, 2**40, 0), "float32")
    mod = program(
        lambda b, s: relay.vision.all_class_non_max_suppression(b, s, -1, 0.5, 0.1, output_format),
        values,
    )
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        found = [np.asarray(value) for value in flat(vm.run(*values))]
    assert found[-1].tolist() == [0]
    assert [value.size for value in found[:-1]] == [0] * (len(found) - 1)


def test_boxes_without_a_score_above_zero_and_nan() -> None:
    scores = f32([[[-0.5, -0.25, -1, np.nan, 0]]])
    rows, count = run(
        lambda b, s: relay.vision.all_class_non_max_suppression(b, s, -1, 0.5, -2.0), BOXES, scores
    )
    assert rows[: count[0], 2].tolist() == [4, 1, 0]


def test_deformable_convolution_by_its_places() -> None:
    weight = RNG.normal(size=(4, 3, 2, 2)).astype("float32")
    offset = RNG.uniform(-2, 2, size=(2, 8, 3, 5)).astype("float32")
    found = run(
        lambda d, o, w: relay.nn.deformable_conv2d(d, o, w, (2, 1), (1, 0), kernel_size=(2, 2)),
        DATA,
        offset,
        weight,
    )

    # Elements behind the last row and column are 0.
    padded = np.pad(DATA, ((0, 0), (0, 0), (0, 1), (0, 1)))

    def read(n: int, c: int, y: float, x: float) -> float:
        return linear(padded[n, c], y, x) if 0 <= y < 5 and 0 <= x < 6 else 0.0

    for n, o, i, j in np.ndindex(*found.shape):
        total: Any = 0.0
        for c, r, s in np.ndindex(3, 2, 2):
            dy, dx = offset[n, (r * 2 + s) * 2 : (r * 2 + s) * 2 + 2, i, j]
            total += weight[o, c, r, s] * read(n, c, i * 2 - 1 + r + dy, j + s + dx)
        assert found[n, o, i, j] == pytest.approx(total, rel=1e-4, abs=1e-4)
    still = np.zeros_like(offset)
    np.testing.assert_allclose(
        run(lambda d, o, w: relay.nn.deformable_conv2d(d, o, w, (2, 1), (1, 0), kernel_size=2), DATA, still, weight),
        evaluate(program(lambda d, w: relay.nn.conv2d(d, w, (2, 1), (1, 0)), (DATA, weight)), (DATA, weight)),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


X = relay.var("x", shape=(2, 3, 5, 6))
R = relay.var("r", shape=(4, 5))
REFUSED: dict[str, Refused] = {
    "roi size": (lambda: relay.vision.roi_align(X, R, (0, 1), 1.0), "pooled_size must be 2 integers >= 1"),
    "roi mode": (lambda: relay.vision.roi_align(X, R, 1, 1.0, mode="min"), "mode must be avg or max"),
    "roi layout": (lambda: relay.vision.roi_pool(X, R, 1, 1.0, "NCWX"), "layout must have the letters NCHW"),
    "roi fields": (lambda: relay.vision.roi_pool(X, X, 1, 1.0), "rois must be"),
    "prior": (lambda: relay.vision.multibox_prior(X, ratios=(1.0, 0.0)), "ratios > 0"),
    "prior steps": (lambda: relay.vision.multibox_prior(X, steps=(1.0,)), "steps must be 2 numbers"),
    "transform": (lambda: relay.vision.multibox_transform_loc(X, R, X).tuple_value, "argument 0 must have rank 3"),
    "all classes": (
        lambda: relay.vision.all_class_non_max_suppression(relay.const(BOXES), relay.const(BOXES)).tuple_value,
        "axis 2|axis 1",
    ),
    "all classes format": (
        lambda: relay.vision.all_class_non_max_suppression(
            relay.const(BOXES), relay.const(BOXES[:, :, :1].reshape(1, 1, 5)), output_format="torch"
        ).tuple_value,
        "output_format must be onnx or tensorflow",
    ),
    "reorg": (lambda: relay.vision.yolo_reorg(X, 2), "axis 1 of size 3 is no multiple of 4"),
    "crop": (
        lambda: relay.image.crop_and_resize(X, R, relay.const([0, 0, 0, 0]), (1, 1), "NCHW"), "axis 1",
    ),
    "grid": (lambda: relay.image.affine_grid(X, (1, 1)), "data must be .batch, 2, 3."),
    "sample": (lambda: relay.image.grid_sample(X, X), "axis 1"),
    "cubic": (lambda: relay.image.grid_sample(X, X, "bicubic", "NCDHW"), "bicubic samples images of layout NCHW"),
    "padding": (lambda: relay.image.grid_sample(X, X, padding_mode="wrap"), "padding_mode must be one of zeros"),
    "deformable": (
        lambda: relay.nn.deformable_conv2d(X, X, relay.const(np.ones((1, 3, 1, 1), "float32"))), "axis 1 of argument offset",
    ),
    "deformable groups": (
        lambda: relay.nn.deformable_conv2d(X, X, relay.const(np.ones((1, 3, 1, 1), "float32")), deformable_groups=2),
        "axis 1 of size 3 is no multiple of 2",
    ),
    "deformable kernel": (
        lambda: relay.nn.deformable_conv2d(X, X, relay.const(np.ones((1, 2, 1, 1), "float32"))),
        "weight",
    ),
    "dilation": (lambda: relay.image.dilation2d(X, relay.const(np.ones((2, 1, 1), "float32"))), "axis 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_where(name: str) -> None:
    make, message = REFUSED[name]
    refused(make(), message)


def overlap_by_pixels(a: np.ndarray, b: np.ndarray) -> float:
    """Of two boxes with corners (x1, y1, x2, y2) at whole pixels, the last ones included."""
    grid = np.zeros((2, 64, 64), bool)
    for n, (x1, y1, x2, y2) in enumerate((a.astype(int), b.astype(int))):
        grid[n, y1 + 8 : y2 + 9, x1 + 8 : x2 + 9] = True
    return float((grid[0] & grid[1]).sum() / (grid[0] | grid[1]).sum())


@pytest.mark.parametrize("before", [-1, 7])
@pytest.mark.parametrize("threshold", [0.15, 0.6])
def test_proposal_by_its_anchors(before: int, threshold: float) -> None:
    """One scale, two ratios, 2 x 3 places; boxes of whole pixels, so that their overlaps can be counted."""
    scores = RNG.uniform(size=(2, 4, 2, 3)).astype("float32")
    moves = RNG.integers(-3, 4, (2, 8, 2, 3)).astype("float32")
    info = f32([[16, 24, 1], [8, 24, 2]])
    made = relay.vision.proposal
    found = run(
        lambda s, d, i: made(s, d, i, (1.0,), (1.0, 4.0), 8, threshold, before, 6, 3, True),
        scores, moves, info,
    )  # fmt: skip
    for b, (height, width, scale) in enumerate(info):
        boxes = []
        for y, x, k in np.ndindex(2, 3, 2):
            # ratio 1: 8 x 8 around (3.5, 3.5); ratio 4: 4 wide, 16 high
            wide, high = ((8, 8), (4, 16))[k]
            corners = np.asarray([4 - wide / 2, 4 - high / 2, 3 + wide / 2, 3 + high / 2])
            corners += np.asarray([x, y, x, y]) * 8 + moves[b, 4 * k : 4 * k + 4, y, x]
            corners = np.clip(corners, 0, np.asarray([width, height, width, height]) - 1)
            score = scores[b, 2 + k, y, x]
            if min(corners[2:] - corners[:2] + 1) < 3 * scale:
                corners += np.asarray([-1, -1, 1, 1]) * 3 * scale / 2
                score = -1
            boxes.append((score if y < height // 8 else -1, corners))
        boxes.sort(key=lambda box: -box[0])
        kept: list[np.ndarray] = []
        for _, corners in boxes[: before if before > 0 else None]:
            if all(overlap_by_pixels(corners, other) <= threshold for other in kept):
                kept.append(corners)
        for r in range(6):
            assert found[6 * b + r].tolist() == [b, *kept[r % min(len(kept), 6)]]


def test_proposal_of_no_places_and_of_anchors_that_do_not_fit() -> None:
    def made(s: Any, d: Any, i: Any, ratios: tuple[float, ...] = (1.0,)) -> Any:
        return relay.vision.proposal(s, d, i, (1.0,), ratios, 8, 0.5, -1, 2, 0, False)

    none = (np.zeros((1, 2, 0, 3)), np.zeros((1, 4, 0, 3)), np.ones((1, 3)))
    found = run(made, *(v.astype("float32") for v in none))
    np.testing.assert_array_equal(found, np.zeros((2, 5)))
    wrong = (np.zeros((1, 4, 1, 3)), np.zeros((1, 4, 1, 3)), np.ones((1, 3)))
    fails(ShapeMismatch, made, *(v.astype("float32") for v in wrong))
    for ratios in ((), (0.0,), (1.0,) * 9):
        with pytest.raises(RelayTypeError, match="ratios must hold 1 to 8 numbers"):
            program(
                lambda s, d, i, ratios=ratios: made(s, d, i, ratios),
                tuple(v.astype("float32") for v in none),
            )


def test_the_best_boxes_of_all_classes() -> None:
    """TFLite's kind: two boxes that overlap, a third apart; a background column that does not count."""
    boxes = f32([[[0, 0, 4, 4], [0, 1, 4, 4], [8, 8, 9, 9], [5, 5, 5, 9]]])
    scores = f32([[[9, 0.9, 0.2], [9, 0.8, 0.7], [9, 0.3, 0.7], [9, 0.05, 0.7]]])

    def made(b: Any, s: Any, per_class: int = 9, most: int = 6) -> Any:
        return relay.vision.regular_non_max_suppression(b, s, per_class, most, 2, 0.5, 0.1)

    out, classes, best, count = run(made, boxes, scores)
    assert count.tolist() == [5]
    np.testing.assert_array_equal(out[0], [*boxes[0][[0, 1, 2, 3, 2]].tolist(), [0] * 4])
    assert classes.tolist() == [[0, 1, 1, 1, 0, 0]]
    np.testing.assert_array_equal(best, f32([[0.9, 0.7, 0.7, 0.7, 0.3, 0]]))
    _, classes, best, count = run(lambda b, s: made(b, s, 1, 6), boxes, scores)
    assert (classes.tolist(), count.tolist()) == ([[0, 1, 0, 0, 0, 0]], [2])
    _, classes, best, count = run(lambda b, s: made(b, s, 9, 2), boxes, scores)
    assert (classes.tolist(), count.tolist()) == ([[0, 1]], [2])
    np.testing.assert_array_equal(best, f32([[0.9, 0.7]]))
    empty = run(made, boxes[:, :0], scores[:, :0])
    assert empty[3].tolist() == [0]
    fails(ShapeMismatch, made, boxes, scores[:, :3])
    fails(ShapeMismatch, made, boxes, scores[:, :, :1])


def test_suppression_of_every_class_can_be_stopped() -> None:
    """20,000 boxes that do not overlap: each is compared with all before it."""
    place = np.arange(20_000, dtype="float32")
    boxes = np.stack((place, place, place + 0.5, place + 0.5), 1)[None]
    scores = np.ones((1, 20_000, 1), "float32")
    mod = program(
        lambda b, s: relay.vision.regular_non_max_suppression(b, s, 20_000, 10, 1, 0.5, 0.0),
        (boxes, scores),
    )
    with nvm.compile(mod, native=False) as exe:
        with nvm.VirtualMachine(exe, limits=nvm.Limits(seconds=0.05)) as vm:
            with pytest.raises(TimeLimit):
                vm.run(boxes, scores)
