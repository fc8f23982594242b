"""Register tiles by target: how many panels fit beside how many rows, and that no micro-kernel's loop leaves registers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from nimblevm.kernels import llvm, llvm_beside, llvm_panels, llvm_windows
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
    assert not _spilled(body.replace("internal ", ""), info.features)


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("strides", [(64, 16, 512, 16, 8192), (64, 16, 512, 64, 16)])
def test_rows_beside_keep_sums_in_registers(turns: int, strides: tuple[int, ...]) -> None:
    """Two turns of a row's depth beside one of 8 rows': with twice of both in a loop a step was 1.15 times as slow."""
    info = llvm.parse_target("x86-64-v4")
    assert info is not None
    alone = PanelCalls.of_row("float32", PLAIN, *strides[:2])
    body = llvm_beside.module_text("beside", llvm_beside.Form(turns, *strides), alone)
    assert not _spilled(body, info.features, optimised=True)


def _spilled(body: str, target: Sequence[str], optimised: bool = False) -> list[str]:
    """Stores of vectors on the stack in the code of micro-kernels; optimised: by all of LLVM, for Zen 4."""
    tune = ' "tune-cpu"="znver4"' if optimised else ""
    features = ",".join(f"+{f}" for f in target)
    text = f"""target triple = "x86_64-unknown-linux-gnu"
    declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
    {body}
    attributes #2 = {{ nounwind "target-features"="{features}"{tune} }}"""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(
        cpu="x86-64", features=features, opt=3
    )
    module = binding.parse_assembly(text)
    if optimised:
        module.data_layout = str(machine.target_data)
        options = binding.create_pipeline_tuning_options(speed_level=2)
        builder = binding.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    assembly = machine.emit_assembly(module)
    assert "fmadd231p" in assembly
    return re.findall(r"v?mov[au]p[sd]\s+%[xyz]mm\d+, -?\d*\(%rsp\)", assembly)
