"""run_on_gpu.sh works: over the fake driver it runs to its end and writes its table."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from nimblevm.kernels import llvm
from tests.devices.rehearsal import ROOT


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("gcc") is None or not llvm.HAVE_LLVM, reason="no gcc, or no llvmlite"
)
def test_the_script_runs_to_its_end() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.devices.rehearsal"],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "passed" in done.stdout
    assert "no CUDA driver" not in done.stdout
    assert "| softmax, 4 x 40 |" in done.stdout
