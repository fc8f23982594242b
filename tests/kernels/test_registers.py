"""Register tiles by target: how many panels fit beside how many rows, and that no micro-kernel's loop leaves registers."""

from __future__ import annotations

import re

import pytest

from nimblevm.kernels import llvm, llvm_panels, llvm_windows
from nimblevm.kernels.llvm_panel_calls import PanelCalls
from nimblevm.kernels.registers import Registers
from nimblevm.kernels.variants import PLAIN

binding = pytest.importorskip("llvmlite.binding")


@pytest.mark.parametrize(
    ("features", "panels", "of_doubles"),
    [
        (("avx512f",), [4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2], [4, 4, 4, 2, 2, 2, 1, 1, 1, 1, 1, 1]),
        (("avx", "avx2", "fma"), [4, 2, 2, 1, 1, 1, 0], [2, 1, 1, 0]),
        (("avx",), [4, 2, 1, 1, 1, 1, 0], [2, 1, 0]),
        (("neon",), [4, 2, 2, 1, 1, 1, 0], [2, 1, 1, 0]),
        ((), [2, 1, 0], [1, 0]),
    ],
)
def test_panels_by_rows(
    features: tuple[str, ...], panels: list[int], of_doubles: list[int]
) -> None:
    registers = Registers.of(features)
    assert [registers.panels(r, 4) for r in range(1, len(panels) + 1)] == panels
    assert [registers.panels(r, 8) for r in range(1, len(of_doubles) + 1)] == of_doubles
    assert registers.max_rows(4, 12) == (panels.index(0) if 0 in panels else 12)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_loops_keep_sums_in_registers(target: str, dtype: str) -> None:
    """Three rows and two panels of AVX2 were twice as slow as they must be: sums went through memory in each turn."""
    info = llvm.parse_target(target)
    assert info is not None
    body = llvm_panels.module_text(PanelCalls(dtype, dtype, PLAIN), info.features)
    body += llvm_windows.module_text(dtype, info.features)
    features = ",".join(f"+{f}" for f in info.features)
    text = f"""target triple = "x86_64-unknown-linux-gnu"
    declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
    {body.replace("internal ", "")}
    attributes #2 = {{ nounwind "target-features"="{features}" }}"""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(
        cpu="x86-64", features=features, opt=3
    )
    assembly = machine.emit_assembly(binding.parse_assembly(text))
    spilled = re.findall(r"v?mov[au]p[sd]\s+%[xyz]mm\d+, -?\d*\(%rsp\)", assembly)
    assert "fmadd231p" in assembly
    assert not spilled
