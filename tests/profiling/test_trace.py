"""The trace has the structure of the Trace Event Format, and complete events nest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nimblevm.profiling import trace, write_trace
from nimblevm.vm.profiler import Profile
from tests.profiling.conftest import Make

REQUIRED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid"},
    "M": {"name", "pid", "args"},
    "C": {"name", "ts", "pid", "args"},
}


def check_structure(made: dict[str, Any]) -> None:
    """What viewers ask for; raises AssertionError."""
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    threads: dict[int, list[dict[str, Any]]] = {}
    for row in made["traceEvents"]:
        assert REQUIRED[row["ph"]] <= set(row), row
        assert isinstance(row["pid"], int)
        assert row.get("ts", 0) >= 0
        if row["ph"] == "X":
            assert row["dur"] >= 0
            threads.setdefault(row["tid"], []).append(row)
        if row["ph"] == "C":
            assert all(isinstance(v, int) and v >= 0 for v in row["args"].values())
    named = {r["tid"] for r in made["traceEvents"] if r["ph"] == "M" and r["name"] == "thread_name"}
    assert set(threads) <= named
    for rows in threads.values():
        open_until: list[int] = []
        last = 0
        for row in rows:
            start, took = round(1000 * row["ts"]), round(1000 * row["dur"])
            assert start >= last, "sorted by start"
            last = start
            while open_until and open_until[-1] <= start and took:
                open_until.pop()
            assert not open_until or start + took <= open_until[-1], "inside the one around it"
            open_until.append(start + took)


def test_structure(tree_profile: Profile, tmp_path: Path) -> None:
    made = trace(tree_profile, "tree.nvm @main")
    check_structure(made)
    kinds = {row["cat"] for row in made["traceEvents"] if row["ph"] == "X"}
    assert kinds == {"run", "function", "kernel"}
    write_trace(tree_profile, tmp_path / "trace.json", "tree.nvm @main")
    assert json.loads((tmp_path / "trace.json").read_text()) == made
    assert made["displayTimeUnit"] == "ns"


def test_kernels_carry_their_sizes_and_place(tree_profile: Profile) -> None:
    rows = [r for r in trace(tree_profile)["traceEvents"] if r.get("cat") == "kernel"]
    assert len(rows) == sum(k.calls for k in tree_profile.kernels)
    for row in rows:
        assert row["args"]["operands"] == ["float32[4]"] * len(row["args"]["operands"])
        assert row["args"]["bytes"] > 0
        assert row["args"]["function"] in ("@walk", "@main")
        assert row["args"]["source"].startswith("tree.rly:")


def test_empty_and_hostile(make: Make) -> None:
    made = trace(make())
    check_structure(made)
    assert {row["ph"] for row in made["traceEvents"]} == {"M"}
    name = '</script>"\\\u2028\ud7ff'
    made = trace(make([(0, 0, 5, 0, 0, 0), (9, 1, 0, 1, 0, 0)], functions=(name,)), name)
    check_structure(made)
    assert any(row["name"] == f"run @{name}" for row in made["traceEvents"])
    with pytest.raises(ValueError, match="no events"):
        trace(Profile(0, 0.0, (), ()))
