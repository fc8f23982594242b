"""Layouts of weights that a file asks for: what they give, and which are refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import serialize
from nimblevm.errors import InvalidExecutable
from tests.bytecode.late_weights import LATE_ASM, layout_program

MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("constant", "message"),
    [
        ('float32 [4] of "w" [0, 1, 4, 1]', "a layout of 4 words"),
        ('float32 [4] of "w" [0]', "a layout of 1 words"),
        ('float32 [1] of "w" [0, 1' + ", 1" * 27 + "]", "a layout of 29 words"),
        ('float32 [4] of "w" [0, 1, 5, 1, 0]', "sizes do not give 4 elements"),
        (f'float32 [4] of "w" [0, 1, {MOST}, {MOST}, 1, 1, 0, 0]', "sizes do not give 4"),
        ('float32 [79] of "w" [0, 1, 79, 0, 0]', ""),
        ('float32 [80] of "w" [0, 1, 80, 0, 0]', "80 elements of a weight of 4"),
        ('float64 [4] of "w" [0, 1, 4, 1, 0]', "dtype float64 of a weight of float32"),
        (f'float32 [4] of "w" [{MOST}, 1, 4, 1, 0]', "too large"),
        (f'float32 [4] of "w" [0, 1, 4, {MOST}, 0]', "too large"),
        (f'float32 [4] of "w" [0, 1, 4, 1, {MOST}]', "too large"),
    ],
)
def test_layouts_of_no_sense(constant: str, message: str) -> None:
    data = layout_program(constant)
    if not message:
        nvm.load(data)
        return
    with pytest.raises(InvalidExecutable, match=re.escape(message)):
        nvm.load(data)


def many_layouts(count: int) -> nvm.Executable:
    """A program that wants a weight of 256 KiB in `count` layouts 16 times as large."""
    constants = "".join(
        f'.const float32 [1048576] of "w" [{base}, 1, 1048576, 0, 0]\n' for base in range(count)
    )
    head = '.type Tensor[(1048576), float32]\n.weight "w" float32 [65536] ""\n'
    return nvm.load(serialize(assemble(head + constants + LATE_ASM)))


def test_layouts_are_bounded_by_the_weights() -> None:
    """A hostile header asks for one weight again and again: 16 times the weights and 16 MiB are the most."""
    w = {"w": np.zeros(65536, np.float32)}
    assert many_layouts(5).bind(w).is_bound
    with pytest.raises(nvm.errors.MemoryLimit, match="more than 20971520 bytes, which is 16 times"):
        many_layouts(6).bind(w)
    assert many_layouts(6).bind(w, max_bytes=24 << 20).is_bound
    with pytest.raises(nvm.errors.MemoryLimit, match="more than 1000 bytes, which is the limit"):
        many_layouts(1).bind(w, max_bytes=1000)
    with pytest.raises(ValueError, match="max_bytes is 0"):
        many_layouts(1).bind(w, max_bytes=0)


@pytest.mark.parametrize(
    "layout",
    [
        "[1, 1, 4, 1, 0]", "[0, 1, 4, 2, 0]", "[4, 1, 4, 0, 0]", "[0, 1, 4, 1152921504606846976, 0]",
        "[0, 100, 4, 3, 1]", "[0, 1, 2, 2, 3, 1, 0, 0]",
    ],
)  # fmt: skip
def test_layouts_that_lead_out_of_the_weight(layout: str) -> None:
    exe = nvm.load(layout_program(f'float32 [4] of "w" {layout}'))
    with pytest.raises(InvalidExecutable, match="the layout of w leads out of it"):
        exe.bind({"w": np.zeros(4, np.float32)})


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        ('float32 [4] of "w" [0, 1, 4, 1, 0]', [1, 2, 3, 4]),
        ('float32 [2] of "w" [2, 1, 2, 1, 0]', [3, 4]),
        ('float32 [2, 2] of "w" [0, 1, 2, 2, 1, 2, 0, 0]', [[1, 3], [2, 4]]),
        ('float32 [4] of "w" [0, 1, 2, 2, 1, 2, 0, 0]', [1, 3, 2, 4]),
        ('float32 [2, 3] of "w" [0, 4, 2, 3, 2, 1, 3, 1]', [[1, 2, 3], [3, 0, 0]]),
        ('float32 [3] of "w" [3, 2, 3, 7, 2]', [4, 0, 0]),
        ('float32 [] of "w" [3, 1]', 4),
        ('float32 [] of "w" [3, 0]', 0),
        ('float32 [1, 1] of "w" [3, 1]', [[4]]),
        ('float32 [0, 3] of "w" [99, 1, 0, 3, 7, 7, 0, 0]', np.zeros((0, 3))),
        (f'float32 [0, 3] of "w" [{MOST}, 1, 0, 3, {MOST}, 1, 0, {MOST}]', np.zeros((0, 3))),
        ('float32 [2, 1, 2] of "w" [1, 9, 2, 1, 2, 1, 5, 1, 1, 9, 1]', [[[2, 3]], [[3, 4]]]),
    ],
)
def test_layouts(constant: str, expected: Any) -> None:
    for verify in (None, "full"):
        exe = nvm.load(layout_program(constant), verify=verify)
        bound = exe.bind({"w": np.arange(1, 5, dtype=np.float32)})
        np.testing.assert_array_equal(nvm.VirtualMachine(bound).run().numpy(), expected)
