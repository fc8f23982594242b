"""What is special in operators that sort, search, select and suppress: order, ties, NaN, refusals, Relay's NMS."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nimblevm import relay
from nimblevm.errors import IndexOutOfRange, RelayTypeError, ShapeMismatch
from nimblevm.relay.op import get
from nimblevm.relay.op.get_valid_counts import GetValidCountsAttrs
from nimblevm.relay.op.non_max_suppression import NonMaximumSuppressionAttrs
from nimblevm.relay.op.searchsorted import SearchSortedAttrs
from nimblevm.relay.op.sort import ArgsortAttrs, SortAttrs
from nimblevm.relay.op.topk import DynTopkAttrs, TopkAttrs
from nimblevm.relay.op.unique import UniqueAttrs
from tests.relay.op.draw import Case


def compute(name: str, *inputs: Any, attrs: Any = None) -> Any:
    op = get(name)
    return op.reference(inputs, attrs, Case(inputs, attrs).infer(op))


FLOATS = np.asarray([2, np.nan, -np.inf, 0.0, -0.0, 2, np.nan], "float32")


def test_nan_is_last_ascending_and_first_descending() -> None:
    assert compute("argsort", FLOATS, attrs=ArgsortAttrs()).tolist() == [2, 3, 4, 0, 5, 1, 6]
    down = compute("argsort", FLOATS, attrs=ArgsortAttrs(is_ascend=False))
    assert down.tolist() == [1, 6, 0, 5, 3, 4, 2]
    assert down.dtype == "int32"
    ordered = compute("sort", FLOATS, attrs=SortAttrs())
    np.testing.assert_array_equal(ordered, np.sort(FLOATS))
    assert np.signbit(ordered[1:3]).tolist() == [False, True]


def test_topk_takes_the_greatest_first() -> None:
    data = np.asarray([[1, 5, 5, 2], [7, 0, 7, 7]], "int32")
    values, places = compute("topk", data, attrs=TopkAttrs(2))
    assert values.tolist() == [[5, 5], [7, 7]]
    assert places.tolist() == [[1, 2], [0, 2]]
    whole = compute("topk", data, attrs=TopkAttrs(0, ret_type="values", is_ascend=True))
    assert whole.tolist() == [[1, 2, 5, 5], [0, 7, 7, 7]]
    dyn = compute("dyn.topk", data, np.asarray([1], "int64"), attrs=DynTopkAttrs(0, "indices"))
    assert dyn.tolist() == [[1, 0, 1, 1]]
    for k in (5, 100):
        with pytest.raises(ShapeMismatch, match="axis"):
            compute("topk", data, attrs=TopkAttrs(k))
        with pytest.raises(ShapeMismatch, match="k is"):
            compute("dyn.topk", data, np.asarray(k), attrs=DynTopkAttrs())


def test_searchsorted_sides() -> None:
    rows = np.asarray([1, 2, 2, np.nan], "float32")
    values = np.asarray([[0, 2], [5, np.nan]], "float32")
    left, right = (
        compute("searchsorted", rows, values, attrs=SearchSortedAttrs(r)) for r in (False, True)
    )
    assert left.tolist() == [[0, 1], [3, 3]]
    assert right.tolist() == [[0, 3], [3, 4]]


@pytest.mark.parametrize(
    ("is_sorted", "expected"),
    [
        (True, ([1, 3, np.nan], [1, 0, 2], [1, 0, 2, 1, 2, 1], [3], [1, 3, 2])),
        (False, ([3, 1, np.nan], [0, 1, 2], [0, 1, 2, 0, 2, 0], [3], [3, 1, 2])),
    ],
)
def test_unique_gives_relays_tuple(is_sorted: bool, expected: tuple[list[float], ...]) -> None:
    data = np.asarray([3, 1, np.nan, 3, np.nan, 3], "float32")
    found = compute("unique", data, attrs=UniqueAttrs(is_sorted, return_counts=True))
    for part, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(part, np.asarray(wanted, part.dtype))
    assert len(compute("unique", data, attrs=UniqueAttrs(is_sorted))) == 4


def test_argwhere_of_scalars() -> None:
    assert compute("argwhere", np.asarray(np.nan, "float32")).shape == (1, 0)
    assert compute("argwhere", np.asarray(False)).shape == (0, 0)


# Boxes 0 and 2 overlap by 0.475, boxes 1 and 3 by 0.62.
BOXES = np.asarray(
    [[[0, 0.8, 1, 20, 25, 45], [1, 0.7, 30, 60, 50, 80], [0, 0.4, 4, 21, 19, 40],
      [2, 0.9, 35, 61, 52, 79], [1, 0.5, 100, 60, 70, 110]]], "float32",
)  # fmt: skip


def nms(boxes: np.ndarray, valid: int, limit: int, iou: float, **attrs: Any) -> Any:
    count = boxes.shape[1]
    return compute(
        "vision.non_max_suppression",
        boxes,
        np.asarray([valid], "int32"),
        np.arange(count, dtype="int32")[None] + 10,
        np.asarray(limit, "int32"),
        np.asarray(iou, "float32"),
        attrs=NonMaximumSuppressionAttrs(**attrs),
    )


def test_suppression_keeps_the_best_of_a_class() -> None:
    found, count = nms(BOXES, 5, -1, 0.45)
    assert found.tolist() == [[13, 10, 11, 14, -1]]  # box 2 overlaps box 0, of the same class
    assert count.tolist() == [[4]]
    found, count = nms(BOXES, 4, -1, 0.45, force_suppress=True)
    assert found.tolist() == [[13, 10, -1, -1, -1]]
    assert nms(BOXES, 4, 1, 0.5)[0].tolist() == [[13, -1, -1, -1, -1]]
    assert nms(BOXES, 4, -1, 0.5, top_k=2)[0].tolist() == [[13, 10, -1, -1, -1]]
    assert nms(BOXES, 4, -1, 0)[0].tolist() == [[10, 11, 12, 13, -1]]


def test_suppressed_boxes_become_rows_of_minus_one() -> None:
    out = nms(BOXES, 5, -1, 0.45, return_indices=False)
    kept = [BOXES[0, i] if i >= 0 else np.full(6, -1) for i in (3, 0, 1, 4, -1)]
    np.testing.assert_array_equal(out[0], kept)
    out = nms(BOXES, 4, -1, 0.45, return_indices=False, force_suppress=True)
    assert (out[0, :, 1] > 0).tolist() == [True, True, False, False, False]
    scores = np.asarray(BOXES)
    scores[0, 0, 1] = 0.95
    out = nms(scores, 4, 2, 0.5, return_indices=False, invalid_to_bottom=True)
    assert (out[0, :, 1] > 0).tolist() == [True, True, False, False, False]


def test_suppression_refuses_counts_outside_of_the_boxes() -> None:
    for valid in (-1, 6):
        with pytest.raises(IndexOutOfRange, match="valid_count"):
            nms(BOXES, valid, -1, 0.5)
    with pytest.raises(ShapeMismatch, match="fields"):
        nms(BOXES, 4, -1, 0.5, coord_start=3)


def test_valid_boxes_move_to_the_front() -> None:
    count, out, places = compute(
        "vision.get_valid_counts",
        BOXES,
        np.asarray(0.45, "float32"),
        attrs=GetValidCountsAttrs(),
    )
    assert count.tolist() == [4]
    assert places.tolist() == [[0, 1, 3, 4, -1]]
    np.testing.assert_array_equal(out[0, 4], np.full(6, -1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("sort(%x, axis=2)", "axis 2 is out of range for rank 2"),
        ('argsort(%x, dtype="float32")', "int32 or int64"),
        ("topk(%x, k=5)", "k is 5, but axis 1 has size 4"),
        ('topk(%x, ret_type="all")', "ret_type"),
        ("dyn.topk(%x, %x)", "scalar"),
        ("searchsorted(%x, %s)", "rank 2"),
        ("searchsorted(%s, %x)", "axis"),
        ("searchsorted(%x, 1i64)", "dtypes differ"),
        ("unique(%x)", "rank 1"),
        ("vision.get_valid_counts(%x, 0.5f)", "of rank 2"),
        ("vision.get_valid_counts(%b, 0.5f, score_index=7)", "8 fields"),
        ("vision.get_valid_counts(%b, 1)", "one float32"),
        ("vision.non_max_suppression(%b, %s, %s, 1, 0.5f)", "int32"),
    ],
)
def test_refusals_are_located(call: str, message: str) -> None:
    text = (
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(3, 4), float32], %s: float32, %b: Tensor[(1, 5, 6), float32]) {\n"
        f"  {call}\n}}\n"
    )
    with pytest.raises(RelayTypeError, match=message) as caught:
        relay.parse(text, source_name="m.rly")
    assert "m.rly:3" in str(caught.value)


def test_builder_chooses_the_dynamic_form() -> None:
    x, k = relay.var("x", shape=(3, 4)), relay.var("k", shape=(), dtype="int32")
    topk: Any = relay.topk
    assert topk(x, k)[0].tuple_value.op.name == "dyn.topk"
    assert topk(x, relay.const(2))[1].tuple_value.op.name == "topk"
    assert topk(x, 2, ret_type="values").attrs.k == 2
    assert len(relay.unique(x)) == 4
    assert len(relay.unique(x, return_counts=True)) == 5
    boxes = relay.var("b", shape=(1, 5, 6))
    valid, moved, places = relay.vision.get_valid_counts(boxes, 0.5)
    kept: Any = relay.vision.non_max_suppression(moved, valid, places)
    assert len(kept) == 2
    halved = topk(x, 2)[0] * 0.5
    assert relay.infer_type(relay.IRModule.from_expr(relay.Function([x], halved)))
