"""nimblevm profile as a user sees it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nimblevm as nvm
from nimblevm.bench.limits import Limits as BenchLimits
from nimblevm.bench.limits import LimitsUnavailable
from nimblevm.cli import profile as command
from nimblevm.cli.sources import find_sources
from nimblevm.profiling import Machine
from nimblevm.profiling.machine import load_machine, save_machine
from tests.cli.conftest import Cli

RUN = ("profile", "model.nvm", "x=x.npy", "y=y.npy", "k=4")
READ = {"l2": {1: 2e10}, "l3": {1: 1e10}, "dram": {1: 5e9}}


@pytest.fixture
def limits(folder: Path) -> Path:
    save_machine(Machine({1: 5e10}, READ, 1 << 20, 1 << 25), folder / "limits.json")
    return folder / "limits.json"


def test_tables(folder: Path, cli: Cli, limits: Path) -> None:
    done = cli(*RUN, "--limits", "limits.json", "--runs", "2")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("2 runs, ")
    for text in ("kernel calls", "of limit", "GFLOP/s", "the machine at most: 50 GFLOP/s", "model.rly:4", "@main_loop",
                 "CallKernel", "let %loop"):  # fmt: skip
        assert text in done.out
    assert "of limit" not in cli(*RUN, "--limits", "none").out


def test_json(folder: Path, cli: Cli, limits: Path) -> None:
    found: dict[str, Any] = json.loads(cli(*RUN, "--json", "--limits", "limits.json").out)
    assert (found["runs"], found["threads"]) == (3, 1)
    assert sum(k["calls"] for k in found["kernels"]) == 3 * len(found["kernels"])  # 4 steps a call
    assert all(k["operations"] > 0 and k["seconds_at_least"] > 0 for k in found["kernels"])
    assert Machine.from_json(found["machine"]) == load_machine(limits)
    assert {row["source"] for row in found["lines"]} == {"model.rly"}


def test_files(folder: Path, cli: Cli) -> None:
    done = cli(*RUN, "--limits", "none", "--trace", "t.json", "--html", "p.html")
    assert done.code == 0
    assert "wrote t.json" in done.out
    assert "wrote p.html" in done.out
    rows = json.loads(Path("t.json").read_text())["traceEvents"]
    assert sum(row.get("cat") == "run" for row in rows) == 3
    text = Path("p.html").read_text()
    assert "let %loop" in text  # lines of model.rly, which lies beside it
    assert text.startswith("<!doctype html>")
    few = cli(*RUN, "--limits", "none", "--html", "p.html", "--max-events", "5")
    assert few.code == 0
    assert '"dropped":0' not in Path("p.html").read_text()


def test_mistakes(folder: Path, cli: Cli) -> None:
    assert "no such file" in cli(*RUN, "--limits", "nothing.json").err.lower()
    done = cli(*RUN, "--limits", "list.json")
    assert (done.code, "no limits of a machine" in done.err) == (2, True)
    done = cli(*RUN, "--limits", "broken.json")
    assert (done.code, "--limits broken.json: no JSON: line 2, column 3" in done.err) == (2, True)
    done = cli(*RUN, "--limits", "x.npy")
    assert (done.code, "--limits x.npy: it is no text" in done.err) == (2, True)
    assert cli(*RUN, "--runs", "0").code == 2
    assert cli(*RUN, "--limits", "none", "--html", "none/p.html").code == 2
    assert "missing argument" in cli("profile", "model.nvm", "--limits", "none").err


def test_limits_are_measured_once(
    folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked: list[Any] = []

    def measured(cores: Any, report: Any) -> BenchLimits:
        report("ten seconds", 0, 3)
        asked.append(cores)
        return BenchLimits({1: 7e10}, READ, 1 << 20, 1 << 25, 0.0)

    monkeypatch.setattr(command, "measure_limits", measured)
    for _ in range(2):
        assert "at most: 70 GFLOP/s" in cli(*RUN).out
    assert len(asked) == 1
    assert "at most: 70 GFLOP/s" in cli(*RUN, "--limits", "measure").out
    assert len(asked) == 2


def test_disturbed_limits_are_left_out(
    folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    read = {level: {**rates, 2: 2 * rates[1]} for level, rates in READ.items()}

    def measured(void: tuple[int, ...]) -> BenchLimits:
        return BenchLimits({1: 7e10, 2: 7.1e10}, read, 1 << 20, 1 << 25, 0.0, void)

    monkeypatch.setattr(command, "measure_limits", lambda cores, report: measured((2,)))
    done = cli(*RUN, "--threads", "2")
    assert (done.code, "at most: 70 GFLOP/s" in done.out) == (0, True)
    assert "with 2 thread(s) the machine gave much less" in done.err
    monkeypatch.setattr(command, "measure_limits", lambda cores, report: measured((1, 2)))
    done = cli(*RUN, "--limits", "measure")
    assert (done.code, "the machine was busy" in done.err) == (2, True)


def test_limits_that_can_not_be_measured(
    folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def measured(cores: Any, report: Any) -> BenchLimits:
        raise LimitsUnavailable("needs the source tree")

    monkeypatch.setattr(command, "measure_limits", measured)
    done = cli(*RUN)
    assert (done.code, "limits are not known: needs the source tree" in done.err) == (0, True)
    assert cli(*RUN, "--limits", "measure").code == 2


def test_limits_of_the_host_are_none_of_a_device(
    folder: Path, cli: Cli, limits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is measured for them; a file with the device's own limits is taken."""
    backends = {
        name: replace(row, host_code=name != "cpu") for name, row in nvm.devices.backends().items()
    }
    monkeypatch.setattr(nvm.devices, "backends", lambda: backends)
    done = cli(*RUN)
    assert (done.code, "the host's are no measure of cpu" in done.err) == (0, True)
    assert "of limit" not in done.out
    assert "of limit" in cli(*RUN, "--limits", "limits.json").out


def test_sources_stay_in_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "models"
    (inside / "sub").mkdir(parents=True)
    (inside / "m.rly").write_text("one\ntwo")
    (inside / "sub" / "n.rly").write_text("three")
    (inside / "bad.rly").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "secret").write_text("secret")
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "loop").symlink_to("loop")
    monkeypatch.chdir(inside)
    names = [
        "m.rly",
        "sub/n.rly",
        "../secret",
        str(tmp_path / "secret"),
        "link",
        "loop",
        "bad.rly",
        "",
        "sub",
        "a\0b",
        "no",
    ]
    found = find_sources(names, inside / "m.nvm")
    assert found == {"m.rly": ["one", "two"], "sub/n.rly": ["three"]}
    given = find_sources(["x", "y"], inside / "m.nvm", tmp_path / "secret")
    assert given == {"x": ["secret"], "y": ["secret"]}
