"""A size that reshape copies may be 0: what the other sizes must be does not follow from the number of elements then,
and -1 is found from the axes that are not copied, whether sizes are known or not.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.properties.everywhere import run_everywhere

CASES: list[tuple[tuple[int, ...], str, tuple[int, ...]]] = [
    ((0, 3), "0, -1", (0, 3)),
    ((3, 0), "-1, 0", (3, 0)),
    ((0, 3), "0, 5", (0, 5)),
    ((0, 3, 4), "0, -1, 2, 2", (0, 3, 2, 2)),
    ((0, 3, 4), "-3, -1", (0, 4)),
    ((0, 3), "-1", (0,)),
]


@pytest.mark.parametrize(("sizes", "newshape", "expected"), CASES)
def test_reshape(sizes: tuple[int, ...], newshape: str, expected: tuple[int, ...]) -> None:
    data = np.zeros(sizes, "float32")
    for dims in (", ".join("?" for _ in sizes), ", ".join(map(str, sizes))):
        text = f"def @main(%x: Tensor[({dims}), float32]) {{ reshape(%x, newshape=[{newshape}]) }}"
        assert run_everywhere(text, data, native=False).shape == expected


@pytest.mark.parametrize("entries", [(0, -1), (0, 5), (-1, 0)])
def test_dyn_reshape(entries: tuple[int, int]) -> None:
    sizes = (3, 0) if entries[0] else (0, 3)
    text = (
        """def @main(%x: Tensor[(?, ?), float32], %s: Tensor[(2), int32]) { dyn.reshape(%x, %s) }"""
    )
    found = run_everywhere(
        text, np.zeros(sizes, "float32"), np.asarray(entries, "int32"), native=False
    )
    assert found.shape == tuple(e if e > 0 else n for e, n in zip(entries, sizes, strict=True))


def test_reshape_like_with_a_shared_dim_of_zero() -> None:
    text = """def @main(%x: Tensor[(?n, ?), float32], %y: Tensor[(5, ?n), bool]) { reshape_like(%x, %y) }"""
    found = run_everywhere(
        text, np.zeros((0, 3), "float32"), np.zeros((5, 0), "bool"), native=False
    )
    assert found.shape == (5, 0)
