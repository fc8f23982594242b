"""A group of several results can't have a tuple among them: its fields would lie one deeper than they are looked for."""

from __future__ import annotations

import numpy as np

from tests.properties.everywhere import run_everywhere


def test_an_operand_of_meshgrid_that_is_a_result_too() -> None:
    text = """def @main(%x: Tensor[(?), float32], %r: int32) {
      let %ref = ref(%r);
      let %v = minimum(%x, 1f);
      let %m = meshgrid((%x, tanh(%v)));
      let %u = ref_read(%ref);
      (%v, %m.0, %m.1, %u)
    }"""
    run_everywhere(text, np.asarray([0.5, 2.0, -1.0], "float32"), np.int32(3))
