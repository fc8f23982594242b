"""Launches of grids against the oracle, run thread by thread; sizes around groups and tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nimblevm.errors import IndexOutOfRange
from nimblevm.kernels.schedule.grid import schedule_grid
from tests.kernels.fused import floats
from tests.kernels.grid_eval import Grid
from tests.kernels.native import agree, program

DENSE = """def @main(%x: Tensor[(?m, {k}), float32], %w: Tensor[({n}, {k}), float32], %b: Tensor[({n}), float32]) {{
    tanh(nn.bias_add(nn.dense(%x, %w), %b)) }}"""


def check(text: str, *args: Any) -> None:
    made, expected = program(text, *args)
    for found, right in zip(made.run(Grid(made.lowered)), expected, strict=True):
        assert agree(found, right, 1e-4, 1e-5)


@pytest.mark.parametrize("n", [0, 1, 33, 300])
def test_elementwise(n: int) -> None:
    check("def @main(%x: Tensor[(?n, 2), float32]) { tanh(%x) + %x }", floats(n, 2))


def test_broadcasts_and_tensors_of_rank_zero() -> None:
    text = "def @main(%x: Tensor[(?a, ?b), float32], %y: Tensor[(?c), float32]) { add(%x, %y) }"
    check(text, floats(3, 4), floats(1))
    check(text, floats(3, 1), floats(4))
    check("def @main(%x: Tensor[(), float32]) { exp(%x) }", floats())


def test_parts_of_a_concatenation_are_launches_of_their_own() -> None:
    text = "def @main(%x: Tensor[(3, 2), float32], %y: Tensor[(3, 5), float32]) { exp(concatenate((%x, %y), axis=1)) }"
    made, _ = program(text, floats(3, 2), floats(3, 5))
    assert len(schedule_grid(made.lowered.kernel)) == 2
    check(text, floats(3, 2), floats(3, 5))


def test_faults_are_reported() -> None:
    text = "def @main(%x: Tensor[(4), float32], %i: Tensor[(3), int64]) { gather(%x, 0, %i) }"
    text = text.replace("gather(%x, 0, %i)", "gather(%x, %i, axis=0)")
    check(text, floats(4), np.array([0, -1, 3]))
    made, _ = program(text, floats(4), np.array([0, 1, 2]))
    made.arrays[1][1] = 4
    with pytest.raises(IndexOutOfRange):
        made.run(Grid(made.lowered))


def test_scatters_keep_to_columns() -> None:
    text = """def @main(%x: Tensor[(?a, ?b), float32], %i: Tensor[(?c, ?b), int64], %u: Tensor[(?c, ?b), float32]) {
        scatter_elements(%x, %i, %u, axis=0, reduction="add") }"""
    args = floats(4, 3), np.array([[0, 1, -1], [0, 1, 2]]), floats(2, 3)
    made, _ = program(text, *args)
    _, scatter = schedule_grid(made.lowered.kernel)
    assert scatter.block[0] == 256
    check(text, *args)
    made.arrays[1] = np.array([[0, 1, 2], [3, 4, 2]])
    with pytest.raises(IndexOutOfRange):
        made.run(Grid(made.lowered))


@pytest.mark.parametrize("n", [0, 1, 127, 300])
def test_rows_are_shared_by_a_group(n: int) -> None:
    text = "def @main(%x: Tensor[(2, ?n), float32]) { nn.softmax(%x) }"
    made, _ = program(text, floats(2, n))
    (launch,) = schedule_grid(made.lowered.kernel)
    assert launch.block == (128, 1, 1)
    assert launch.shared_bytes() == 128 * 4
    check(text, floats(2, n))


def test_sums_and_extremes_of_everything_are_one_group() -> None:
    for op in ("sum", "max", "min", "prod"):
        check(f"def @main(%x: Tensor[(?n, 41), float32]) {{ {op}(%x) }}", floats(5, 41))
    x = np.arange(-100, 100, dtype="int8")
    check("def @main(%x: Tensor[(?n), int8]) { (max(%x), min(%x), sum(%x)) }", x)


def test_sums_along_the_first_axis_have_a_thread_an_output() -> None:
    text = "def @main(%x: Tensor[(?m, ?n), float32]) { sum(%x, axis=[0]) }"
    made, _ = program(text, floats(3, 5))
    assert schedule_grid(made.lowered.kernel)[0].block == (256, 1, 1)
    check(text, floats(40, 5))


@pytest.mark.slow
@pytest.mark.parametrize(("m", "k", "n"), [(5, 40, 7), (66, 17, 65)])
def test_tiles_around_their_sizes(m: int, k: int, n: int) -> None:
    check(DENSE.format(k=k, n=n), floats(m, k), floats(n, k), floats(n))


@pytest.mark.parametrize(("m", "k", "n"), [(1, 40, 7), (5, 0, 7)])
def test_products_are_tiles_or_rows(m: int, k: int, n: int) -> None:
    text = DENSE.format(k=k, n=n)
    made, _ = program(text, floats(m, k), floats(n, k), floats(n))
    rows, tiles = schedule_grid(made.lowered.kernel)
    assert (tiles.block, tiles.shared_bytes()) == ((256, 1, 1), 2 * 16 * 68 * 4)
    assert rows.block[0] == 128 if k > 32 else 256
    check(text, floats(m, k), floats(n, k), floats(n))


@pytest.mark.slow
def test_batched_products_and_convolutions_are_tiles() -> None:
    text = "def @main(%x: Tensor[(2, 5, 9), float32], %y: Tensor[(2, 9, 6), float32]) { nn.batch_matmul(%x, %y) }"
    check(text, floats(2, 5, 9), floats(2, 9, 6))
    text = """def @main(%x: Tensor[(1, 3, 6, 7), float32], %w: Tensor[(5, 3, 3, 3), float32]) {
        nn.conv2d(%x, %w, padding=[1, 1, 1, 1]) }"""
    made, _ = program(text, floats(1, 3, 6, 7), floats(5, 3, 3, 3))
    assert any(launch.shared_bytes() for launch in schedule_grid(made.lowered.kernel))
    check(text, floats(1, 3, 6, 7), floats(5, 3, 3, 3))
