"""`nimblevm bench` as a user calls it."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
pytest.importorskip("typer")

from nimblevm.bench.from_c import calls_from_c
from nimblevm.bench.limits import LimitsUnavailable, cache_sizes, measure_limits
from nimblevm.bench.rows import ROWS
from nimblevm.bench.run import Plan, titles
from nimblevm.bench.session import cores_for
from nimblevm.cli.app import run_app


def test_a_plan_is_checked() -> None:
    plan = Plan.of(["lstm"], ["numpy"], [1], 5, quick=True)
    assert plan.seconds == 2
    assert len(plan.rows[0].cases()) == 3
    assert len(Plan.of([], None, [1], 5, quick=False).rows) == len(titles())
    with pytest.raises(ValueError, match="no row nonsense; there are lstm"):
        Plan.of(["nonsense"], None, [1], 5, quick=False)
    with pytest.raises(ValueError, match="no peer jax; there are onnxruntime"):
        Plan.of([], ["jax"], [1], 5, quick=False)
    with pytest.raises(ValueError, match="at least 1"):
        Plan.of([], None, [0], 5, quick=False)


def test_cache_sizes_come_from_the_system(tmp_path: Path) -> None:
    assert cache_sizes(tmp_path) == (1 << 20, 32 << 20)
    for index, (level, size) in enumerate([("1", "32K"), ("2", "512K"), ("3", "16384K")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "level").write_text(level)
        (folder / "size").write_text(size + "\n")
    assert cache_sizes(tmp_path) == (512 << 10, 16 << 20)


@pytest.mark.slow
def test_a_tiny_row_from_start_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "bench.json"
    arguments = ["lstm-tiny", "--threads", "1", "--seconds", "1", "--quick", "--json", str(data)]
    monkeypatch.setattr(
        sys, "argv", ["nimblevm", "bench", *arguments, "--plots", str(tmp_path / "plots")]
    )
    assert run_app() == 0, capsys.readouterr().err
    assert "numpy" in capsys.readouterr().out
    found = json.loads(data.read_text())
    sides = found["rows"][0]["sides"]
    assert set(sides) == {"nimblevm", "numpy"}
    assert not any(side["problem"] for side in sides.values())
    if sides["numpy"]["rounds"]:  # a crowded machine may have left none undisturbed
        assert (tmp_path / "plots" / "lstm-tiny-1.png").exists()


@pytest.mark.slow
def test_programs_are_called_from_c() -> None:
    try:
        rounds = calls_from_c(ROWS["chain"], cores_for(1)[0])
    except LimitsUnavailable as error:
        pytest.skip(str(error))
    short, long = (statistics.median(taken) for taken in zip(*rounds, strict=True))
    assert 1e-8 < short < long < 1e-3


@pytest.mark.slow
def test_limits_are_measured() -> None:
    try:
        limits = measure_limits(cores_for(1))
    except LimitsUnavailable as error:
        pytest.skip(str(error))
    assert limits.peak[1] > 1e9
    assert limits.read["l2"][1] > limits.read["dram"][1] > 1e8
