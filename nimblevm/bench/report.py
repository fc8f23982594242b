"""The table for the terminal, and everything as JSON."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nimblevm.bench.cases import Case
from nimblevm.bench.evaluate import FAIL, NONE, PASS, Line
from nimblevm.bench.limits import Limits
from nimblevm.bench.peers import OURS
from nimblevm.bench.rows import Seconds, fixed, slope
from nimblevm.bench.session import RowResult
from nimblevm.bench.statistics import Interval, median_interval

_COLOURS = {PASS: "green", FAIL: "red"}


def show(
    console: Console,
    lines: Sequence[Line],
    results: Sequence[RowResult],
    limits: Limits | None,
    quick: bool = False,
) -> None:
    """Limits, the table, and what each side was. quick: say that it is no result."""
    if limits is not None:
        console.print(_limits_table(limits))
    console.print(_table(lines))
    if quick:
        console.print("A quick look, no result: few inputs, and disturbed slices count.")
    console.print(_peers_table(lines))
    console.print(_share_table(results))
    for text in notes(results):
        console.print(text, markup=False, highlight=False)


def _table(lines: Sequence[Line]) -> Table:
    table = Table(title="nimblevm and the fastest peer of each row: medians")
    for name in (
        "row",
        "thr",
        "ours",
        "best peer",
        "theirs",
        "ratio, 95 %",
        "target",
        "x floor",
        "verdict",
    ):
        table.add_column(
            name, justify="left" if name in ("row", "best peer", "verdict") else "right"
        )
    for line in lines:
        metric, best = line.metric, line.best
        scale = metric.scale
        colour = _COLOURS.get(line.verdict)
        table.add_row(
            f"{line.result.row.name}, {metric.name}",
            str(line.result.threads),
            f"{_number(line.ours.value / scale)} {metric.unit}",
            best.peer if best else "-",
            _number(best.theirs.value / scale) if best else "-",
            _interval(best.ratio) if best else "-",
            _target(line),
            f"{line.over_floor:.2f}" if line.over_floor is not None else "-",
            f"[{colour}]{line.verdict}[/]" if colour else line.verdict,
        )
    return table


def _target(line: Line) -> str:
    metric = line.metric
    if metric.ratio is not None:
        return f"{metric.ratio:.2f}"
    if metric.absolute is not None:
        return f"{metric.absolute / metric.scale:.3g} {metric.unit}"
    return "-"


def _number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _interval(value: Interval) -> str:
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def _peers_table(lines: Sequence[Line]) -> Table:
    table = Table(title="all peers: medians and ratios, 95 % intervals")
    for name in ("row", "thr", "peer", "theirs", "ours / theirs", "faster", "test", "p, Holm"):
        table.add_column(name, justify="left" if name in ("row", "peer", "test") else "right")
    for line in lines:
        scale = line.metric.scale
        for c in sorted(line.comparisons, key=lambda c: c.theirs.value):
            low, middle, high = (v / scale for v in (c.theirs.low, c.theirs.value, c.theirs.high))
            table.add_row(
                f"{line.result.row.name}, {line.metric.name}",
                str(line.result.threads),
                c.peer,
                f"{_number(middle)} [{_number(low)}, {_number(high)}]",
                _interval(c.ratio),
                "yes" if c.faster else "no",
                c.test.name,
                f"{c.p:.2g}",
            )
    return table


def _share_table(results: Sequence[RowResult]) -> Table:
    """What of the run is not kernels, and how long compiling took."""
    table = Table(title="our own share and compile time")
    for name in ("row", "thr", "VM's share", "target", "verdict", "compile"):
        table.add_column(name, justify="left" if name in ("row", "verdict") else "right")
    for result in results:
        if result.share is None:
            continue
        target, verdict = result.row.vm_share, share_verdict(result)
        colour = _COLOURS.get(verdict)
        table.add_row(
            result.row.name,
            str(result.threads),
            f"{result.share:.2%}",
            "-" if target is None else f"{target:.0%}",
            f"[{colour}]{verdict}[/]" if colour else verdict,
            f"{result.sides[OURS].setup_seconds:.1f} s",
        )
    return table


def c_verdict(result: RowResult) -> str:
    """Whether a call from C, its operators apart, costs no more than the row's target: the median's whole interval."""
    if result.from_c is None or result.row.from_c is None:
        return NONE
    return PASS if _from_c(result, fixed).high <= result.row.from_c else FAIL


def _from_c(result: RowResult, value: Callable[[Sequence[Case], Seconds], float]) -> Interval:
    """Seconds: each round gives a line over its cases."""
    return median_interval([value(result.cases, taken) for taken in result.from_c or ()])


def share_verdict(result: RowResult) -> str:
    """Whether the VM's own share of the run time is at most the row's target."""
    target = result.row.vm_share
    if target is None or result.share is None:
        return NONE
    return PASS if result.share <= target else FAIL


def _limits_table(limits: Limits) -> Table:
    counts = sorted(limits.peak)
    heads = (
        f"{n} thread(s)" + (", disturbed: no floor" if n in limits.void else "") for n in counts
    )
    table = Table("limit", *heads, title="what the machine can do")
    table.add_row("float32 FMA, GFLOP/s", *(f"{limits.peak[n] / 1e9:.0f}" for n in counts))
    for level, rates in limits.read.items():
        table.add_row(f"read {level.upper()}, GB/s", *(f"{rates[n] / 1e9:.1f}" for n in counts))
    if limits.hand_off:
        table.add_row("hand-off there and back, us", f"{limits.hand_off * 1e6:.2f}")
    return table


def notes(results: Sequence[RowResult]) -> list[str]:
    """Who took part with which options, who did not and why, and what was dropped."""
    found: list[str] = []
    for result in results:
        head = f"{result.row.title}, {result.threads} thread(s)"
        taken = sum(side.taken for side in result.sides.values())
        dropped = sum(side.dropped for side in result.sides.values())
        tolerated = sum(side.tolerated for side in result.sides.values())
        found.append(
            f"{head}: {result.rounds} rounds, {result.rounds_dropped} dropped; "
            f"{dropped} of {taken} slices dropped for context switches, {tolerated} long ones kept with some"
        )
        if result.from_c is not None and result.row.from_c is not None:
            cost, each = (_from_c(result, f) for f in (fixed, slope))
            found.append(
                f"  a call from C: {cost.value * 1e6:.2f} us [{cost.low * 1e6:.2f}, {cost.high * 1e6:.2f}] "
                f"and {each.value * 1e6:.3f} us an operator; "
                f"target {result.row.from_c * 1e6:.2f} us: {c_verdict(result)}"
            )
        for name, side in result.sides.items():
            if side.problem:
                found.append(f"  {name} left out: {side.problem}")
            else:
                found.append(
                    f"  {name} {side.version}: {side.options}; ready in {side.setup_seconds:.1f} s"
                )
    return found


def to_json(
    lines: Sequence[Line],
    results: Sequence[RowResult],
    limits: Limits | None,
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that was measured: seconds, all rounds included."""
    return {
        "machine": {
            "cpu": _cpu(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "limits": None if limits is None else asdict(limits),
        "lines": [_line_json(line) for line in lines],
        "rows": [_result_json(result) for result in results],
        **extra,
    }


def _line_json(line: Line) -> dict[str, Any]:
    return {
        "row": line.result.row.name,
        "metric": line.metric.name,
        "unit": line.metric.unit,
        "seconds_a_unit": line.metric.scale,
        "threads": line.result.threads,
        "ours": asdict(line.ours),
        "best_peer": line.best.peer if line.best else None,
        "target_ratio": line.metric.ratio,
        "target_absolute": line.metric.absolute,
        "floor": line.floor,
        "verdict": line.verdict,
        "reasons": list(line.reasons),
        "comparisons": [asdict(c) | {"faster": c.faster} for c in line.comparisons],
    }


def _result_json(result: RowResult) -> dict[str, Any]:
    return {
        "row": result.row.name,
        "threads": result.threads,
        "cases": [{"units": c.units, "size": c.size} for c in result.cases],
        "rounds_dropped": result.rounds_dropped,
        "from_c": result.from_c,
        "from_c_verdict": c_verdict(result),
        "vm_share": result.share,
        "vm_share_target": result.row.vm_share,
        "vm_share_verdict": share_verdict(result),
        "sides": {name: asdict(side) for name, side in result.sides.items()},
    }


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [
        row.partition(":")[2].strip() for row in text.splitlines() if row.startswith("model name")
    ]
    return names[0] if names else platform.processor()


__all__ = ["c_verdict", "notes", "share_verdict", "show", "to_json"]
