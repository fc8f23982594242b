"""The result of a scatter can't lie where the updates are: data is copied to it before they are read."""

from __future__ import annotations

import numpy as np
import pytest

from tests.properties.everywhere import run_everywhere


@pytest.mark.parametrize("mode", ["min", "add", "update"])
def test_scatter_nd_of_whole_tensors(mode: str) -> None:
    """No index: every element of updates is written at its own place."""
    text = f"""def @main(%x: Tensor[(3), int32], %y: Tensor[(3), int32], %i: Tensor[(0), int64]) {{
      scatter_nd(%x + 1, %i, %y * 2, mode="{mode}")
    }}"""
    x, y, none = (
        np.asarray(v, d) for v, d in (([0, 6, 0], "int32"), ([3, -7, 8], "int32"), ([], "int64"))
    )
    expected = {"min": [1, -14, 1], "add": [7, -7, 17], "update": [6, -14, 16]}
    assert run_everywhere(text, x, y, none).tolist() == expected[mode]
