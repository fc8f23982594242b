"""Builds and runs the C tests of the VM, plain and (slow) in the variants: sanitizers, switch dispatch, failing allocations."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run_make(target: str, **variant: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NVM_")} | variant
    done = subprocess.run(
        ["make", "-s", "-C", str(HERE), target],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{variant}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_native() -> None:
    run_make("run")


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        {"NVM_SANITIZE": "address,undefined", "NVM_TEST": "1"},
        {"NVM_SANITIZE": "thread"},
        {"NVM_DISPATCH": "switch"},
    ],
    ids=["asan", "tsan", "switch"],
)
def test_native_variant(variant: dict[str, str]) -> None:
    run_make("run", **variant)


@pytest.mark.bench
def test_budgets_are_printed() -> None:
    """Times of the budgets of docs/performance.md, in ns: `pytest -m bench -s tests/native`."""
    print(run_make("bench"))
