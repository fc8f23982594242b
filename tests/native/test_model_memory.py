"""Runs of whole models with repeated sizes do without the system's allocator, counted in C."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import lstm, treelstm
from tests.native.build import run_target


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(("model", "inputs", "hidden"), [(lstm, 300, 512), (treelstm, 300, 150)])
def test_no_allocation_between_run_10_and_run_1000(
    model: Any, inputs: int, hidden: int, tmp_path: Path
) -> None:
    exe = nvm.compile(
        nvm.relay.parse(model.text(inputs, hidden)), params=model.params(inputs, hidden)
    )
    exe.save(tmp_path / "model.nvm")
    print(run_target("count", f"FILE={tmp_path / 'model.nvm'}", f"INPUTS={inputs}"))
