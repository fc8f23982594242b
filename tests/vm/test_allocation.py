"""Allocations of the library fail while Python loads, binds and runs: a typed error or the right result, no leak, and
the next time the right result (tests/native/test_trust.py does it from C, under sanitizers)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import nimblevm as nvm
from nimblevm.bench.workloads import lstm, treelstm

ROOT = Path(__file__).resolve().parents[2]
BUILD = """
import runpy, sys
runpy.run_path("native/build_ffi.py")["ffibuilder"].compile(tmpdir=sys.argv[1], target="_native.abi3.so")
"""
LATE = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 5), float32], %w: Tensor[(20, 5), float32], %b: Tensor[(20), float32])
    -> Tensor[(?n, 20), float32] { tanh(nn.dense(%x, %w) + %b) }
"""


def _python(*words: str, **settings: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NVM_")} | settings
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
def test_failing_allocations(tmp_path: Path) -> None:
    _python("-c", BUILD, str(tmp_path), NVM_TEST="1")
    for name, text, params in (
        ("lstm", lstm.text(4, 8), lstm.params(4, 8)),
        ("treelstm", treelstm.text(4, 8), treelstm.params(4, 8)),
    ):
        nvm.compile(nvm.relay.parse(text), params=params).save(tmp_path / f"{name}.nvm")
    weights = {
        "w": np.linspace(-1, 1, 100, dtype=np.float32).reshape(20, 5),
        "b": np.ones(20, np.float32),
    }
    exe = nvm.compile(nvm.relay.parse(LATE), late_bound=list(weights), native=False)
    exe.save(tmp_path / "late.nvm")
    np.savez(tmp_path / "late.npz", **weights)  # type: ignore[arg-type]
    save_file(weights, tmp_path / "late.safetensors")
    found = json.loads(_python("-m", "tests.vm.allocation_runner", str(tmp_path)))
    print(found)
    assert len(found) == 13
    assert all(failed >= 10 and refused >= 5 for failed, refused in found.values()), found
    assert sum(failed for failed, _ in found.values()) > 1500
