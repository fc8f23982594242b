"""A whole run: limits first, then every row at every thread count, then the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from nimblevm.bench.evaluate import evaluate
from nimblevm.bench.from_c import calls_from_c
from nimblevm.bench.limits import Limits, LimitsUnavailable, measure_limits
from nimblevm.bench.peers import OURS, PEERS
from nimblevm.bench.report import show, to_json
from nimblevm.bench.rows import HIDDEN, ROWS, Row
from nimblevm.bench.session import RowResult, WorkerError, cores_for, measure

QUICK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured; `seconds` a row and thread count."""

    rows: tuple[Row, ...]
    peers: tuple[str, ...] | None  # None: those that each row names
    threads: tuple[int, ...]
    seconds: float
    quick: bool

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        peers: Sequence[str] | None,
        threads: Sequence[int],
        seconds: float,
        quick: bool,
    ) -> Plan:
        """Checked; ValueError says what is wrong."""
        unknown = [name for name in names if name not in ROWS]
        if unknown:
            raise ValueError(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
        strange = [name for name in peers or () if name not in PEERS or name == OURS]
        if strange:
            known = ", ".join(name for name in PEERS if name != OURS)
            raise ValueError(f"no peer {', '.join(strange)}; there are {known}")
        for count in threads:
            if count < 1:
                raise ValueError(f"a thread count must be at least 1, not {count}")
            cores_for(count)
        chosen = [ROWS[name] for name in names or (n for n in ROWS if n not in HIDDEN)]
        if quick:
            chosen, seconds = [row.shortened() for row in chosen], min(seconds, QUICK_SECONDS)
        return cls(
            tuple(chosen), None if peers is None else tuple(peers), tuple(threads), seconds, quick
        )


def titles() -> dict[str, str]:
    """Names and titles of the rows."""
    return {name: row.title for name, row in ROWS.items() if name not in HIDDEN}


def run(
    plan: Plan, console: Console, log: Callable[[str], None], plots: Path | None
) -> dict[str, Any]:
    """Measure, show, plot; gives what goes into the JSON file."""
    limits = None if plan.quick else _limits(max(plan.threads), log)
    results: list[RowResult] = []
    for row in plan.rows:
        peers = row.peers if plan.peers is None else [p for p in row.peers if p in plan.peers]
        for threads in plan.threads:
            try:
                found = measure(row, peers, threads, plan.seconds, plan.quick, log)
            except WorkerError as error:
                log(f"{row.title}, {threads} thread(s): no result: {error}")
                continue
            results.append(_with_c(found, log) if row.from_c is not None else found)
    lines = evaluate(results, limits)
    show(console, lines, results, limits, plan.quick)
    if plots is not None:
        from nimblevm.bench.plots import write_plots  # noqa: PLC0415 - matplotlib is slow to load

        for path in write_plots(plots, lines, results):
            log(f"wrote {path}")
    return to_json(lines, results, limits, {"seconds_a_row": plan.seconds, "quick": plan.quick})


def _with_c(result: RowResult, log: Callable[[str], None]) -> RowResult:
    """What a call costs from C, where a compiler is at hand."""
    try:
        return replace(result, from_c=calls_from_c(result.row, cores_for(1)[0]))
    except LimitsUnavailable as error:
        log(f"{result.row.title}: not called from C: {error}")
        return result


def _limits(threads: int, log: Callable[[str], None]) -> Limits | None:
    log("measuring what the machine can do")
    try:
        return measure_limits(cores_for(threads))
    except LimitsUnavailable as error:
        log(f"no limits, so no floors: {error}")
        return None


__all__ = ["Plan", "run", "titles"]
