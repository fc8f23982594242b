"""reshape where the number of elements is too large an expression for dims.py to keep."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import ShapeMismatch
from nimblevm.relay.interpreter import evaluate

PROGRAM = """#[version = "0.0.5"]
def @main(%x: Tensor[(?a, 6, ?b, ?c, ?d), float32], %w: Tensor[(?e, ?f, ?g, ?h, ?i), float32]) {
  reshape(nn.conv3d(%x, %w, strides=[3, 3, 1], padding=[1, 2, 2], dilation=[1, 2, 2], groups=3,
    kernel_layout="DHWIO"), newshape=NEWSHAPE)
}
"""


@pytest.mark.parametrize("newshape", ["[-1, 2]", "[1, 9, -1, 4]", "[6, 6, 6]", "[-3, -3, -2]"])
def test_sizes_are_counted_by_names(newshape: str) -> None:
    mod = nvm.relay.parse(PROGRAM.replace("NEWSHAPE", newshape))
    values = np.random.default_rng(1)
    args = [values.random(s, np.float32) for s in ((2, 6, 4, 5, 6), (2, 2, 3, 2, 3))]
    want = evaluate(mod, args, "main")
    got = nvm.VirtualMachine(nvm.compile(mod)).run(*args)
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)


def test_a_number_that_does_not_fit_is_found_at_run_time() -> None:
    vm = nvm.VirtualMachine(nvm.compile(nvm.relay.parse(PROGRAM.replace("NEWSHAPE", "[2, 3, 25]"))))
    with pytest.raises(ShapeMismatch, match="argument data of reshape"):
        vm.run(np.ones((2, 6, 4, 5, 6), np.float32), np.ones((2, 2, 3, 2, 3), np.float32))
