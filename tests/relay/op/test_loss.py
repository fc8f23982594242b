"""Losses, diagonals, fixed point numbers and shapes read from right to left, as their definitions say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nimblevm import relay
from nimblevm.errors import IndexOutOfRange, InvalidInputType, ShapeMismatch
from tests.relay.op.checks import Refused, f32, fails, i32, i64, refused, run

RNG = np.random.default_rng(5)


def test_entropies() -> None:
    given = RNG.uniform(0.1, 1, (3, 4)).astype("float32")
    true = RNG.uniform(0, 1, (3, 4)).astype("float32")
    pairs = [(float(p), float(t)) for p, t in zip(given.flat, true.flat, strict=True)]
    found = run(relay.nn.cross_entropy, given, true)
    assert found == pytest.approx(-sum(t * math.log(p) for p, t in pairs) / 3, rel=1e-5)
    found = run(relay.nn.cross_entropy_with_logits, given, true)
    assert found == pytest.approx(-sum(t * p for p, t in pairs) / 3, rel=1e-5)
    assert np.isnan(run(relay.nn.cross_entropy, given[:0], true[:0]))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_nll_loss_by_its_elements(reduction: str) -> None:
    given = RNG.normal(size=(2, 3, 4)).astype("float32")
    targets = RNG.integers(0, 3, (2, 4)).astype("int64")
    targets[0, 1] = targets[1, 3] = 1
    weights = f32([0.5, 2, 3])
    found = run(lambda p, t, w: relay.nn.nll_loss(p, t, w, reduction, 1), given, targets, weights)
    losses = np.zeros((2, 4))
    total = 0.0
    for n, d in np.ndindex(2, 4):
        if targets[n, d] != 1:
            losses[n, d] = -given[n, targets[n, d], d] * weights[targets[n, d]]
            total += weights[targets[n, d]]
    wanted = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / total}[reduction]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_nll_loss_of_one_and_of_none() -> None:
    given, weights = f32([1, 2, 3]), f32([1, 10, 100])
    assert run(relay.nn.nll_loss, given, np.asarray(2, "int32"), weights) == -3
    ignored = np.full((2,), -100, "int32")
    rows = np.ones((2, 3), "float32")
    assert np.isnan(run(relay.nn.nll_loss, rows, ignored, weights))
    assert run(lambda p, t, w: relay.nn.nll_loss(p, t, w, "sum"), rows, ignored, weights) == 0
    for target in (-1, 3):
        fails(IndexOutOfRange, relay.nn.nll_loss, rows, i32([0, target]), weights)


def test_diagonals() -> None:
    data = np.zeros((3, 4), "int32")
    one = run(lambda d, v: relay.matrix_set_diag(d, v, 1), data, i32([1, 2, 3]))
    assert one.tolist() == [[0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 3]]
    rows = i32([[1, 2, 3], [3, 4, 5], [6, 7, 8], [1, 2, 9]])
    found = run(lambda d, v: relay.matrix_set_diag(d, v, (-2, 1)), data, rows)
    # k = -1 and -2 stand at the left.
    assert found.tolist() == [[3, 1, 0, 0], [6, 4, 2, 0], [1, 7, 5, 3]]
    right = run(lambda d, v: relay.matrix_set_diag(d, v, (-2, 1), "LEFT_RIGHT"), data, rows)
    assert right.tolist() == [[3, 1, 0, 0], [7, 4, 2, 0], [9, 8, 5, 3]]
    fails(ShapeMismatch, lambda d, v: relay.matrix_set_diag(d, v), data, i32([1, 2]))
    with pytest.raises(InvalidInputType, match="align RIGHT_LEFT"):
        relay.matrix_set_diag(relay.const(data), relay.const(rows), 0, "MIDDLE")


def test_products_of_fixed_point() -> None:
    data = i32([-3, -1, 0, 1, 3, 2**31 - 1, -(2**31)])
    half = run(lambda d: relay.fixed_point_multiply(d, 2**30, 0), data)
    assert half.tolist() == [math.floor(x / 2 + 0.5) for x in data.tolist()]
    more = run(lambda d: relay.fixed_point_multiply(d, 2**30 + 2**29, 3), data[:5])
    assert more.tolist() == [6 * x for x in data[:5].tolist()]
    less = run(lambda d: relay.fixed_point_multiply(d, -(2**31), -31), data)
    assert less.tolist() == [math.floor(-x / 2**31 + 0.5) for x in data.tolist()]
    # 64 bits wrap, of a scalar too.
    huge = run(
        lambda d: relay.fixed_point_multiply(d, -(2**31), 31), np.asarray(2**31 - 1, "int32")
    )
    exact = -(2**31 - 1) * 2**62
    wrapped = (exact + 2**30 + 2**63) % 2**64 - 2**63
    assert huge == (wrapped // 2**31 + 2**31) % 2**32 - 2**31


def test_rows_of_a_segment_are_added() -> None:
    data, ids = np.arange(8, dtype="float32").reshape(4, 2), i32([2, 0, 2, 0])
    wanted = [[2 + 6, 3 + 7], [0, 0], [0 + 4, 1 + 5]]
    assert run(relay.segment_sum, data, ids).tolist() == wanted
    assert run(lambda d, i: relay.segment_sum(d, i, 4), data, ids).tolist() == [*wanted, [0, 0]]
    assert run(lambda d, i: relay.segment_sum(d, i, 2), data[:0], ids[:0]).tolist() == [[0, 0]] * 2
    whole = run(relay.segment_sum, i64([1, 2, 3]), i64([1, 1, 0]))
    assert whole.tolist() == [3, 3]
    fails(IndexOutOfRange, lambda d, i: relay.segment_sum(d, i, 2), data, ids)


def test_shapes_from_right_to_left() -> None:
    x = relay.var("x", shape=(10, 5, 4))
    shapes = {(-1, 0): (50, 4), (0, -1): (5, 40), (-3, 0): (50, 4), (-2,): (10, 5, 4)}
    for newshape, wanted in shapes.items():
        body = relay.reverse_reshape(x, newshape)
        mod = relay.infer_type(relay.IRModule.from_expr(relay.Function([x], body)))
        assert mod.function("main").ret_type == relay.TensorType(wanted)
    fails(ShapeMismatch, lambda d: relay.reverse_reshape(d, (3, 0)), np.zeros((4, 5), "float32"))


X = relay.var("x", shape=(3, 4))
REFUSED: dict[str, Refused] = {
    "entropy": (lambda: relay.nn.cross_entropy(X, relay.const(np.ones((3, 5), "float32"))), "axis 1"),
    "reduction": (
        lambda: relay.nn.nll_loss(X, relay.const([0, 0, 0]), relay.const(np.ones(4, "float32")), "max"),
        "reduction must be one of",
    ),
    "targets": (lambda: relay.nn.nll_loss(X, relay.const([[0]]), relay.const(np.ones(4, "float32"))), "axes"),
    "weights": (lambda: relay.nn.nll_loss(X, relay.const([0, 0, 0]), relay.const(np.ones(3, "float32"))), "axis 1|axis 0"),
    "diagonal": (lambda: relay.matrix_set_diag(X, X), "diagonal must have rank 1"),
    "order": (lambda: relay.matrix_set_diag(X, X, (1, 0)), "the lesser first"),
    "fixed": (lambda: relay.fixed_point_multiply(relay.const([1]), 1, 32), "shift must be in"),
    "fixed dtype": (lambda: relay.fixed_point_multiply(X, 1, 0), "int32"),
    "split": (lambda: relay.reverse_reshape(X, (-4, 1, 3, 0)), "not -4"),
    "count": (lambda: relay.reverse_reshape(X, (5, 0)), "newshape"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_where(name: str) -> None:
    make, message = REFUSED[name]
    refused(make(), message)
