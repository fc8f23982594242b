"""An empty axis splits into as many pieces as any other."""

from __future__ import annotations

import numpy as np

from tests.properties.everywhere import run_everywhere


def test_split_of_an_empty_axis() -> None:
    text = """def @main(%x: Tensor[(?, 0), float32]) {
      let %p = split(tanh(%x), indices_or_sections=3, axis=1); (exp(%p.2), exp(%p.0)) }"""
    first, second = run_everywhere(text, np.zeros((2, 0), "float32"))
    assert first.shape == second.shape == (2, 0)
