"""The C tests of the VM, built for aarch64 and run under qemu-user; what is read there is what is read here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import nimblevm as nvm
from tests.native.aarch64 import CROSS, built, emulated, nvm_run, tools_are_missing

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(tools_are_missing()), reason=tools_are_missing() or "all are there"),
]


@pytest.mark.parametrize("name", ["cpu", "args", "random", "sort", "vm"])
def test_c_tests_pass(name: str) -> None:
    program = f"{built()}/tests/test_{name}"
    settings = [f"{key}={value}" for key, value in CROSS.items()]
    relative = f"../../native/{CROSS['BUILD']}/tests/test_{name}"
    made = subprocess.run(
        ["make", "-s", "-C", str(HERE), relative, *settings],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    done = emulated(program)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_the_best_section_for_this_cpu(tmp_path: Path) -> None:
    """One file for all machines; threads too."""
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(?n, 40), float32], %w: Tensor[(70, 40), float32]) { nn.dense(%x, %w) }
    def @half(%x: Tensor[(?n), float16]) { cast(%x * 3f16, dtype="float32") }
    """
    targets = "x86-64-v2,aarch64,x86-64-v4"
    with nvm.compile(nvm.relay.parse(text), target=targets) as exe:
        exe.save(tmp_path / "m.nvm")
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((300, 40), (70, 40)))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "w.npy", w)
    said = nvm_run(tmp_path, "m.nvm", "x.npy", "w.npy", "-o", "y.npy", "--threads", "4")
    assert "machine code of section 5 (aarch64:+neon) is used" in said
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), x @ w.T, rtol=1e-4, atol=1e-5)
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    np.save(tmp_path / "h.npy", halves)
    for flags in ((), ("--no-native",)):
        nvm_run(tmp_path, "m.nvm", "h.npy", "-f", "half", "-o", "f.npy", *flags)
        with np.errstate(all="ignore"):
            expected = (halves * np.float16(3)).astype(np.float32)
        np.testing.assert_array_equal(np.load(tmp_path / "f.npy"), expected)
    said = emulated(
        str(built() / "nvm-run"), "m.nvm", "--list", cwd=tmp_path, NVM_CPU="x86-64"
    ).stderr
    assert "NVM_CPU names no level of this CPU" in said or said == ""
