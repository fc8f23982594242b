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
