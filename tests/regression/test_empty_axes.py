"""Taking nothing from an empty axis gives nothing; taking something is one error on every path. Arguments whose named
dims differ are InvalidInput, in the oracle as in the VM.
"""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import InvalidInput, ShapeMismatch
from tests.properties.everywhere import fails_everywhere, module, run_everywhere

TEXT = """def @main(%x: Tensor[({rows}, 2), float32], %i: Tensor[(?m), int32]) {{
  take(%x, %i, {axis}mode="{mode}")
}}"""


@pytest.mark.parametrize("rows", ["0", "?n"])
@pytest.mark.parametrize("axis", ["axis=0, ", ""])
def test_take_from_an_empty_axis(rows: str, axis: str) -> None:
    for mode in ("clip", "wrap", "fast"):
        text = TEXT.format(rows=rows, axis=axis, mode=mode)
        empty, none = np.zeros((0, 2), "float32"), np.zeros(0, "int32")
        assert run_everywhere(text, empty, none).size == 0
        fails_everywhere(text, ShapeMismatch, empty, np.zeros(1, "int32"))


def test_the_message_says_that_the_axis_is_empty() -> None:
    exe = nvm.compile(module(TEXT.format(rows="?n", axis="axis=0, ", mode="clip")), native=False)
    with nvm.VirtualMachine(exe) as vm, pytest.raises(ShapeMismatch, match="must not be empty"):
        vm.run(np.zeros((0, 2), "float32"), np.zeros(1, "int32"))


def test_arguments_that_disagree() -> None:
    text = "def @main(%x: Tensor[(?n), float32], %y: Tensor[(?n), float32]) { %x + %y }"
    fails_everywhere(text, InvalidInput, np.zeros(2, "float32"), np.zeros(1, "float32"))
