"""What may fail fails whether or not a fused kernel needs the element."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import DivisionByZero, IndexOutOfRange
from tests.properties.everywhere import PLAIN, fails_everywhere

DIVISIONS = {
    "operand ignored": "zeros_like(divide(%x, %y))",
    "slice": "strided_slice(divide(%x, %y), begin=[0], end=[1])",
    "take": "take(divide(%x, %y), full(0, shape=[1], dtype='int32'), axis=0)".replace("'", '"'),
    "split": "split(divide(%x, %y), indices_or_sections=3, axis=0).0",
    "empty result": 'maximum(divide(%x, %y), full(1, shape=[0, 3], dtype="int32"))',
    "branch of where": "where(less(%x, %x), divide(%x, %y), %x)",
    "times zero": "multiply(divide(%x, %y), 0)",
    "used twice": "add(strided_slice(divide(%x, %y), begin=[0], end=[1]), 1)",
}
TAKES = {
    "of a scalar": 'take(full(0f, shape=[2], dtype="float32"), %i, axis=0, mode="fast")',
    "of what ignores its operand": 'take(zeros_like(%x), %i, axis=0, mode="fast")',
    "of a tensor": 'take(tanh(%x), %i, axis=0, mode="fast")',
    "ignored": 'zeros_like(take(%x, %i, axis=0, mode="fast"))',
}


@pytest.mark.parametrize("case", DIVISIONS)
def test_division(case: str) -> None:
    text = f"def @main(%x: Tensor[(3), int32], %y: Tensor[(3), int32]) {{ {DIVISIONS[case]} }}"
    fails_everywhere(text, DivisionByZero, np.ones(3, "int32"), np.array([2, 0, 1], "int32"))


@pytest.mark.parametrize("case", TAKES)
def test_take(case: str) -> None:
    text = f"def @main(%x: Tensor[(2), float32], %i: Tensor[(1), int64]) {{ {TAKES[case]} }}"
    fails_everywhere(text, IndexOutOfRange, np.ones(2, "float32"), np.array([2], "int64"))


@pytest.mark.parametrize(
    "text",
    [
        "def @main(%x: Tensor[(1, 1), int32]) { let %v = divide(%x, %x); 1 }",
        "def @main(%x: Tensor[(1, 1), int32]) { let %v = divide(%x, %x); %x + 1 }",
        "def @main(%x: Tensor[(1, 1), int32]) { let %v = (divide(%x, %x), 2); %x }",
        """def @main(%x: Tensor[(1, 1), int32]) {
           if (True) { let %v = divide(full(1, shape=[1, 1], dtype="int32"), %x); 1 } else { 2 } }""",
    ],
)
def test_what_nothing_reads_fails_where_nothing_dead_is_removed(text: str) -> None:
    """The kernel of a division that nothing reads had no output, and so nothing to compute."""
    mod = nvm.relay.parse(f'#[version = "0.0.5"]\n{text}')
    exe = nvm.compile(mod, **PLAIN)
    for native in (True, False):
        vm = nvm.VirtualMachine(nvm.load(exe.to_bytes(), native=native))
        with pytest.raises(DivisionByZero):
            vm.run(np.zeros((1, 1), "int32"))
