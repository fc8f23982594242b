"""disasm says which kernels have code for devices and runtimes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgpack
import pytest

from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import DEVICE_CODE, EXTERNAL, SectionRecord, serialize
from nimblevm.kernels import loop_ir_form
from nimblevm.kernels.loop_ir import Axis, Buffer, Const, Kernel
from tests.cli.conftest import Cli

GOLDEN = Path(__file__).parent.parent / "golden" / "disasm" / "devices.txt"
TEXT = """
.device "cpu"
.device "opencl,cuda"
.type Tensor[(4), float32]
.kernel "double" ir
  .in float32 [4]
  .out float32 [4]
  .ir hex "{ir}"
.end
.kernel "acc_dense" external
  .in float32 [4]
  .out float32 [4]
.end
.kernel "relu" external
  .in float32 [4]
  .out float32 [4]
.end
.func @main public [%x: t0] -> t0
  AllocTensor r1, _, 0, [4], float32, dev0
  CallKernel k1, [r0, r1], [], []
  Ret r1
.end
"""
FOUR = (Axis(Const("int64", 4)),)
DOUBLE = Kernel(
    "double", (Buffer("x", "float32", "in", FOUR), Buffer("y", "float32", "out", FOUR)), (), ()
)
LAUNCH = ["k0_0", [[0, 1]] * 3, [4, 1, 1], [0, 1], [], 0, 0]


def sections() -> tuple[SectionRecord, ...]:
    rows = {
        (DEVICE_CODE, "opencl"): {"source": b"__kernel ...", "kernels": {0: [LAUNCH]}},
        (DEVICE_CODE, "cuda:sm_70"): {"source": b".visible ...", "kernels": {0: [LAUNCH, LAUNCH]}},
        (DEVICE_CODE, "abacus"): {"beads": 9},
        (EXTERNAL, "acc"): {0: b"", 1: bytes(1234), 2: b"x"},
        (EXTERNAL, "other"): {2: b"xy"},
    }
    return tuple(SectionRecord(k, msgpack.packb(v), t) for (k, t), v in rows.items())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    program = assemble(TEXT.format(ir=loop_ir_form.serialize(DOUBLE).hex()))
    path = tmp_path / "devices.nvm"
    path.write_bytes(serialize(replace(program, sections=sections())))
    return path


def test_golden(file: Path, cli: Cli, request: pytest.FixtureRequest) -> None:
    out = cli("disasm", str(file)).out
    assert "acc_dense" in out
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(out)
    assert out == GOLDEN.read_text()


def test_of_some_kernels(file: Path, cli: Cli) -> None:
    out = cli("disasm", str(file), "--kernel", "relu").out
    assert "k2 relu  acc, 1 byte; other, 2 bytes (no kernel IR)" in out
    assert "k0 double" not in out
    assert "for acc" not in cli("disasm", str(file), "--function", "main").out
