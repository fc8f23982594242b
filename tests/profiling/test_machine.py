"""Limits of a machine: kept, read, and what they say of work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nimblevm.profiling import Machine
from nimblevm.profiling.machine import cache_file, load_machine, save_machine
from nimblevm.vm.kernel_work import Work


def test_round_trip(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "machine.json"
    save_machine(machine, path)
    assert load_machine(path) == machine


def test_floor_is_the_roofline(machine: Machine) -> None:
    assert machine.floor(Work(50e9, 1.0, 0.0), 1, 1) == pytest.approx(1.0)  # computing
    assert machine.floor(Work(50e9, 1.0, 0.0), 1, 2) == pytest.approx(0.5)
    assert machine.floor(Work(0.0, 500e3, 500e3), 1, 1) == pytest.approx(1e6 / 60e9)  # from L2
    assert machine.floor(Work(0.0, 20e6, 0.0), 1, 1) == pytest.approx(20e6 / 20e9)  # from L3
    assert machine.floor(Work(None, 100e6, 0.0), 1, 1) == pytest.approx(100e6 / 8e9)  # memory
    assert machine.floor(Work(0.0, 100e6, 0.0), 1000, 1) == pytest.approx(
        100e6 / 60e9
    )  # small calls
    assert machine.floor(Work(0.0, 0.0, 0.0), 0, 1) == 0.0


def test_thread_counts_between_measured_ones(machine: Machine) -> None:
    assert machine.peak_of(1) == 50e9
    assert machine.peak_of(7) == 100e9


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", "1", '{"peak": {}, "read": {"l2": {}, "l3": {}, "dram": {}}, "l2_bytes": 1, "l3_bytes": 1}',
     '{"peak": {"1": -5}, "read": {"l2": {"1": 1}, "l3": {"1": 1}, "dram": {"1": 1}}, "l2_bytes": 1, "l3_bytes": 1}',
     '{"peak": {"1": 5}, "read": {"l2": {"1": 1}, "l3": {"1": 1}, "dram": {"1": 1}}, "l2_bytes": 1e999, "l3_bytes": 1}',
     '{"peak": {"1": 5}, "read": {"l2": {"2": 1}, "l3": {"1": 1}, "dram": {"1": 1}}, "l2_bytes": 1, "l3_bytes": 1}'],
)  # fmt: skip
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no limits of a machine"):
        Machine.from_json(json.loads(text))


def test_files_that_nest_too_deep_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="no limits of a machine"):
        load_machine(path)


def test_cache_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_file() == tmp_path / "nimblevm" / "machine.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_file().is_relative_to(tmp_path)
