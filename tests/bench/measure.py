"""Short rounds, their minimum, and what a budget's unit costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# A round is shorter than a time slice of the machine, so that the minimum is of rounds that ran alone.
ROUNDS = 300
ROWS: dict[str, dict[str, float]] = {}


def nanoseconds(benchmark: Any, run: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Benchmark `run`; the minimum of the rounds in ns."""
    benchmark.pedantic(run, rounds=rounds, iterations=1, warmup_rounds=3)
    return 0.0 if benchmark.stats is None else float(benchmark.stats.stats.min) * 1e9


def record(benchmark: Any, name: str, side: str, value: float, budget: float | None) -> None:
    """Keep ns a unit for the table and for the file that --benchmark-json writes."""
    row = ROWS.setdefault(name, {})
    row[side] = value
    if budget is not None:
        row["budget"] = budget
    benchmark.group = name
    benchmark.extra_info["ns_a_unit"] = round(value, 2)
    if budget is not None:
        benchmark.extra_info["budget"] = budget


__all__ = ["ROUNDS", "ROWS", "nanoseconds", "record"]
