"""What a program is placed and partitioned to does not depend on the order of sets: hash seeds change nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.driver import compile_to_bytes
from tests.bytecode.models import models

ROOT = Path(__file__).parent.parent.parent
SEEDS = ("0", "1", "77")
MIXED = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 24), float32], %q: Tensor[(?m, 32), int8],
          %w: Tensor[(20, 24), float32], %v: Tensor[(16, 32), int8]) {
  let %h = tanh(nn.dense(%x, %w));
  let %a = nn.dense(%q, %v, out_dtype="int32");
  let %b = cast(clip(right_shift(%a, 7), a_min=-128f64, a_max=127f64), dtype="int8");
  (nn.relu(%h + nn.relu(%h)), %b, sum(cast(%b, dtype="float32"), axis=[1]))
}"""
"""Products for blas, for VTA, and kernels of ours between them."""


def programs() -> dict[str, tuple[bytes, str]]:
    """The file and the placement report of each program."""
    weights = np.arange(480, dtype=np.float32).reshape(20, 24) / 480
    mixed = {"w": weights, "v": np.arange(-256, 256).astype(np.int8).reshape(16, 32)}
    small = models()
    rows = {
        "lstm": (small["lstm"].module(), small["lstm"].params, "simulated", ()),
        "detector": (small["ssd"].module(), small["ssd"].params, "simulated", ()),
        "mixed": (nvm.relay.parse(MIXED), mixed, "simulated,vta", "blas"),
    }
    found: dict[str, tuple[bytes, str]] = {}
    for name, (mod, params, device, external) in rows.items():
        reports: list[object] = []
        data = compile_to_bytes(
            mod, params, native=False, device=device, external=external, on_placement=reports.append
        )
        found[name] = data, "\n".join(map(str, reports))
    return found


def _built(folder: Path, seed: str) -> subprocess.Popen[bytes]:
    """A process with that hash seed which writes the programs into a folder."""
    folder.mkdir()
    script = (
        "import sys; from pathlib import Path; from tests.devices.test_reproducible import programs\n"
        "for name, (data, report) in programs().items():\n"
        "    Path(sys.argv[1], name).write_bytes(data)\n"
        "    Path(sys.argv[1], name + '.txt').write_text(report)\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", script, str(folder)], cwd=ROOT, env=environment)


@pytest.mark.slow
def test_hash_seeds_change_neither_bytes_nor_placement(tmp_path: Path) -> None:
    running = [_built(tmp_path / seed, seed) for seed in SEEDS]
    assert [process.wait() for process in running] == [0] * len(SEEDS)
    first = tmp_path / SEEDS[0]
    names = sorted(path.name for path in first.iterdir())
    assert len(names) == 6
    for name in names:
        found = {(tmp_path / seed / name).read_bytes() for seed in SEEDS}
        assert len(found) == 1, name
    report = (first / "mixed.txt").read_text()
    assert "external code for blas" in report
    assert "external code for vta" in report
