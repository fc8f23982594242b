"""Ranks and sizes that nothing can hold are typed errors, on every path the same."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import CompileError, DimOverflow
from tests.properties.everywhere import fails_everywhere, module, run_everywhere


@pytest.mark.parametrize(
    "text",
    [
        "def @main(%x: Tensor[(1, 1, 1, 1, 1, 1, 1, 1, 2), float32]) { tanh(%x) }",
        "def @main(%x: Tensor[(2), float32]) { reshape(%x, newshape=[1, 1, 1, 1, 1, 1, 1, 1, 2]) }",
        "type T { C(Tensor[(1, 1, 1, 1, 1, 1, 1, 1, 2), float32]), } def @main(%x: T) { 1 }",
    ],
)
def test_rank_nine_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(CompileError, match=r"rank 9; the runtime holds tensors of at most 8 axes"):
        nvm.compile(module(text))


def test_sizes_beyond_int64() -> None:
    fails_everywhere(
        'def @main() { full(1f, shape=[4611686018427387904, 2], dtype="float32") }', DimOverflow
    )
    fails_everywhere(
        'def @main(%n: int64) { arange(0i64, %n, 1i64, dtype="int64") }',
        DimOverflow,
        np.int64(2**62),
    )
    text = "def @main(%x: float32) { arange(0f, %x, 1f) }"
    fails_everywhere(text, DimOverflow, np.float32(np.inf))
    assert run_everywhere(text, np.float32(np.nan)).shape == (0,)
    assert run_everywhere(text, np.float32(-np.inf)).shape == (0,)
