"""Functions of micro-kernels: what they are made for, that programs share them, and what few passes of LLVM do to
them and to those of windows.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from nimblevm.kernels import llvm
from nimblevm.kernels.llvm_ops import SCHEDULED
from nimblevm.kernels.llvm_panel_calls import ANY, PanelCalls
from nimblevm.kernels.loop_ir import Kernel, PanelProduct
from nimblevm.kernels.lower import lower_primitive
from nimblevm.kernels.panel_tile import LOW, MAX_PANELS
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule import schedule
from nimblevm.kernels.variants import PLAIN
from tests.kernels.native import parsed

pytest.importorskip("llvmlite")
WIDE = PanelCalls("float32", "float32", PLAIN, w_step=64, w_panel=16)


def _kernel(rows: str, units: int, width: int, depth: int = 21) -> Kernel:
    panels = -(-units // width)
    text = f"""def @main(%x: Tensor[({rows}, {depth}), float32], %w: Tensor[({panels}, {depth}, {width}), float32]) {{
      nn.contrib_dense_pack(%x, %w, weight_layout="NC{width}n", units={units}) }}"""
    return lower_primitive(parsed(text)[1]).kernel


def _conv() -> Kernel:
    text = """def @main(%x: Tensor[(1, ?h, ?w, 8), float32], %w: Tensor[(4, 72, 16), float32]) {
      nn.contrib_conv2d_pack(%x, %w, channels=64, kernel_size=[3, 3]) }"""
    return lower_primitive(parsed(text)[1]).kernel


def _calls(kernel: Kernel) -> PanelCalls:
    body = schedule(kernel, ("avx512f",)).body
    (product,) = [s for s in all_statements(body) if isinstance(s, PanelProduct)]
    return PanelCalls.of(product)


@pytest.mark.parametrize(
    ("rows", "units", "width", "expected"),
    [
        ("?m", 128, 64, replace(WIDE, panels_known=4)),
        ("?m", 130, 64, WIDE),
        ("?m", 40, 16, replace(WIDE, panels_known=3, w_step=16, w_panel=None)),
        ("1", 256, 64, replace(WIDE, most_rows=1, panels_known=4)),
        ("5", 256, 64, replace(WIDE, most_rows=LOW, panels_known=4)),
        ("0", 256, 64, replace(WIDE, most_rows=LOW, panels_known=4)),
    ],
)
def test_what_calls_are_told_apart_by(
    rows: str, units: int, width: int, expected: PanelCalls
) -> None:
    assert _calls(_kernel(rows, units, width)) == expected


def test_which_functions_do_for_which_calls() -> None:
    four = replace(WIDE, panels_known=MAX_PANELS)
    low, one = replace(four, most_rows=LOW), replace(four, most_rows=1)
    narrow = replace(WIDE, w_step=16, w_panel=None)
    assert all(WIDE.serves(other) for other in (WIDE, four, low))
    assert four.serves(low)
    assert replace(one, panels_known=ANY).serves(one)
    assert not any(low.serves(other) for other in (WIDE, four, one))
    assert not any(WIDE.serves(other) for other in (one, narrow))


def test_sizes_are_those_that_the_panels_need() -> None:
    def sizes(panels: int, most: int) -> list[int]:
        return replace(WIDE, panels_known=panels).sizes(most)

    assert sizes(ANY, 4) == [4, 2, 1]
    assert sizes(ANY, 2) == [2, 1]
    assert [sizes(p, 4) for p in (1, 2, 3, 4, 5, 7)] == [[1], [2], [2, 1], [4], [4, 1], [4, 2, 1]]
    assert [sizes(p, 2) for p in (1, 3, 4, 7)] == [[1], [2, 1], [2], [2, 1]]
    assert sizes(4, 1) == [1]


def _modules(kernels: list[Kernel], target: str = "x86-64-v4") -> list[str]:
    info = llvm.parse_target(target)
    assert info is not None
    return [text for text in llvm.module_texts(kernels, info)[0] if SCHEDULED in text]


def test_programs_share_modules() -> None:
    """Whatever the depths, columns and rows: the second program compiles none anew."""
    first = _modules([_kernel("?m", 128, 64), _kernel("1", 256, 64)])
    second = _modules([_kernel("?n", 64, 64, depth=300), _kernel("1", 64, 64, depth=5)])
    assert len(first) == 2
    assert first == second


def test_a_program_has_one_function_for_what_one_does() -> None:
    kernels = [_kernel("?m", 128, 64), _kernel("5", 130, 64), _kernel("?m", 130, 64)]
    (text,) = _modules(kernels)
    assert WIDE.symbol in text
    elf = llvm.build(kernels, "x86-64-v4")
    assert elf is not None
    assert elf.functions == (0, 1, 2)


def test_a_step_of_one_row_needs_loops_of_one_row_alone() -> None:
    (text,) = _modules([_kernel("1", 256, 64)])
    assert re.findall(r"define internal void @\S+\.(\d+x\d+)\(", text) == ["1x4"]


def _functions(assembly: str) -> dict[str, list[str]]:
    """The lines of each micro-kernel, labels among them."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in assembly.splitlines():
        if re.match(r"(panels|windows)\S+x\d(\.only)?:", line):
            lines = found.setdefault(line.split(":")[0], [])
        elif re.match(r"\s+\.size", line):
            lines = []
        elif re.match(r"\.L\w+:|\s+[a-z]", line):
            lines.append(line.strip())
    return found


def _loops(text: str, info: llvm.TargetInfo) -> dict[str, list[str]]:
    """By micro-kernel the instructions of its innermost loop with the most sums of products."""
    machine, module = llvm.prepared(text, info)
    found: dict[str, list[str]] = {}
    for name, lines in _functions(machine.emit_assembly(module)).items():
        labels = {line.split(":")[0]: i for i, line in enumerate(lines) if line.startswith(".L")}
        jumps = [(labels.get(line.split()[-1], len(lines)), i) for i, line in enumerate(lines)]
        bodies = [lines[start + 1 : end + 1] for start, end in jumps if start < end]
        innermost = [body for body in bodies if not any(x.startswith(".L") for x in body)]
        found[name] = max(innermost, key=_sums)
    return found


def _sums(body: list[str]) -> int:
    return sum(line.startswith(("vfmadd", "fmla")) for line in body)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_few_passes_give_the_loops_that_all_give(target: str) -> None:
    info = llvm.parse_target(target)
    assert info is not None
    (text,) = _modules([_kernel("?m", 130, 64)], target)
    few, every = _loops(text, info), _loops(text.replace(SCHEDULED, ""), info)
    assert len(few) >= 9
    assert few.keys() == every.keys()
    for name, body in few.items():
        assert _sums(body) == _sums(every[name]), name
        assert len(body) <= len(every[name]) + 1, name
        assert not any("(%rsp)" in line or "[sp" in line for line in body), name


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_few_passes_do_for_windows(target: str) -> None:
    """But for two turns at once of loops with a sum or two, and 4 instructions of 39 for 3 rows on AArch64."""
    info = llvm.parse_target(target)
    assert info is not None
    (text,) = _modules([_conv()], target)
    text = text.replace("internal ", "")  # all passes would inline the micro-kernels
    few, every = _loops(text, info), _loops(text.replace(SCHEDULED, ""), info)
    assert len(few) >= 9
    assert few.keys() == every.keys()
    for name, body in few.items():
        assert _sums(body) == _sums(every[name]) or 2 * _sums(body) == _sums(every[name]) <= 4, name
        assert 8 * len(body) <= 9 * len(every[name]), name
        assert not any("(%rsp)" in line or "[sp" in line for line in body), name
