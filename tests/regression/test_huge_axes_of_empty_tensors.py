"""Loops around an empty axis turned as often as the other axes say: 2^40 times for these tensors of no element."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?a, ?b, ?c), float32]) {
  let %y = tanh(%x) * %x;
  (%y, transpose(%y), concatenate((%x, %y), axis=1), reshape(%x, newshape=[-1]), argmax(%y, axis=1))
}
"""


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("shape", [(1 << 20, 1 << 20, 0), (1 << 40, 1, 0)])
def test_no_elements_are_no_work(native: bool, shape: tuple[int, ...]) -> None:
    with nvm.compile(nvm.relay.parse(TEXT), native=native) as exe:
        with nvm.VirtualMachine(exe, limits=nvm.Limits(seconds=10)) as vm:
            got = vm.run(np.zeros(shape, "float32"))
    a, b, c = shape
    assert [v.shape for v in got] == [(a, b, c), (c, b, a), (a, 2 * b, c), (0,), (a, c)]
