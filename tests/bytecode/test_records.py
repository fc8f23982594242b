"""Sizes of operands that are expressions of dims: as text, as numbers, and as loop IR."""

from __future__ import annotations

from dataclasses import replace

import pytest

import nimblevm as nvm
from nimblevm.abi import DimWord
from nimblevm.bytecode import serialize as s
from nimblevm.bytecode.describe import axis_text
from nimblevm.bytecode.records import axis_size
from nimblevm.cli.kernel_text import kernel_text
from nimblevm.vm.kernel_work import operand_shapes

HEADER = '#[version = "0.0.5"]\n'
# (n + 3) * max(n, 2), then min(floordiv(n, 2) - floormod(m, 5), 7).
EXPRS = (
    DimWord.END,
    DimWord.REF, 0, DimWord.CONST, 3, DimWord.ADD, DimWord.REF, 0, DimWord.CONST, 2, DimWord.MAX, DimWord.MUL, DimWord.END,
    DimWord.REF, 0, DimWord.CONST, 2, DimWord.FLOORDIV, DimWord.REF, 1, DimWord.CONST, 5, DimWord.FLOORMOD, DimWord.SUB,
    DimWord.CONST, 7, DimWord.MIN, DimWord.END,
)  # fmt: skip


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (s.AxisRecord(s.AXIS_CONST, 5), "5"),
        (s.AxisRecord(s.AXIS_DIM, 1), "m"),
        (s.AxisRecord(s.AXIS_EXPR, 1), "((n 2 3) 4 (n 8 2))"),
        (s.AxisRecord(s.AXIS_EXPR, 13), "(((n 5 2) 3 (m 6 5)) 7 7)"),
    ],
)
def test_each_word_is_read_once_in_order(axis: s.AxisRecord, expected: str) -> None:
    names = ("n", "m")
    found = axis_size(EXPRS, axis, str, names.__getitem__, lambda op, x, y: f"({x} {op} {y})")
    assert found == expected


def test_text_numbers_and_loop_ir_agree() -> None:
    """The compiler passes such sizes as dims, other writers of files need not."""
    source = "def @main(%x: Tensor[(?n, ?m), float32]) { exp(%x) }"
    exe = nvm.compile(nvm.relay.parse(HEADER + source), native=False)
    (kernel,) = exe.program_record().kernels
    axes = (s.AxisRecord(s.AXIS_EXPR, 1), s.AxisRecord(s.AXIS_EXPR, 13))
    result = replace(kernel.operands[-1], axes=axes)
    changed = replace(kernel, operands=(*kernel.operands[:-1], result), exprs=EXPRS)
    assert kernel.dims == ("?n", "?m")
    texts = ("(?n + 3) * max(?n, 2)", "min((floordiv(?n, 2) - floormod(?m, 5)), 7)")
    assert tuple(axis_text(changed, axis) for axis in axes) == texts
    assert axis_text(changed, replace(axes[0], broadcast=True)) == f"{texts[0]} or 1"
    assert f"out out0: float32[({texts[0]}), {texts[1]}]" in kernel_text(changed)
    for n, m in ((9, 7), (1, 4), (100, 0)):
        wanted = ((n + 3) * max(n, 2), min(n // 2 - m % 5, 7))
        assert operand_shapes(changed, [n, m]) == [("float32", (n, m)), ("float32", wanted)]
