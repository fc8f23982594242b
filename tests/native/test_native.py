"""Builds and runs the C tests of the VM, plain and (slow) in the variants: sanitizers, switch dispatch, failing allocations."""

from __future__ import annotations

import shutil

import pytest

from tests.native.build import run_target


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_native() -> None:
    run_target("run")


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
    run_target("run", **variant)


@pytest.mark.bench
def test_budgets_are_printed() -> None:
    """Times of the budgets of docs/performance.md, in ns: `pytest -m bench -s tests/native`."""
    print(run_target("bench"))
