"""From rounds to lines of the table: medians, ratios, tests and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nimblevm.bench.limits import Limits
from nimblevm.bench.peers import OURS
from nimblevm.bench.roofline import floors
from nimblevm.bench.rows import Metric
from nimblevm.bench.session import RowResult
from nimblevm.bench.statistics import (
    ALPHA,
    Interval,
    Test,
    faster,
    holm,
    median_interval,
    ratio_interval,
)

NEAR_FLOOR = 1.15
PASS, FAIL, NONE = "pass", "FAIL", "-"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours and one peer in one metric. `p` is Holm's over the whole run."""

    peer: str
    theirs: Interval  # seconds a unit
    ratio: Interval  # ours / theirs
    test: Test
    p: float

    @property
    def faster(self) -> bool:
        return self.p < ALPHA


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of a row at one thread count. Times in seconds a unit; `best`: the fastest peer's comparison."""

    result: RowResult
    metric: Metric
    ours: Interval
    comparisons: tuple[Comparison, ...]
    best: Comparison | None
    floor: float | None
    verdict: str
    reasons: tuple[str, ...]

    @property
    def over_floor(self) -> float | None:
        return None if not self.floor else self.ours.value / self.floor


def evaluate(results: Sequence[RowResult], limits: Limits | None) -> list[Line]:
    """A line for every metric of every row that has rounds; tests are corrected over all of them."""
    lines = [
        line
        for result in results
        if result.sides[OURS].rounds
        for line in (_line(result, metric, limits) for metric in result.row.metrics)
    ]
    corrected = iter(holm([c.test.p for line in lines for c in line.comparisons]))
    return [
        _judged(line, [replace(c, p=next(corrected)) for c in line.comparisons]) for line in lines
    ]


def _line(result: RowResult, metric: Metric, limits: Limits | None) -> Line:
    def samples(name: str) -> list[float]:
        return [metric.value(result.cases, seconds) for seconds in result.sides[name].rounds]

    ours = samples(OURS)
    comparisons = []
    for name, side in result.sides.items():
        if name != OURS and side.rounds:
            theirs = samples(name)
            test = faster(ours, theirs)
            found = median_interval(theirs)
            comparisons.append(Comparison(name, found, ratio_interval(ours, theirs), test, test.p))
    floor = None
    if limits is not None and metric.floor:
        least = floors(result.row, result.cases, limits, result.threads)
        floor = None if least is None else metric.value(result.cases, least)
    best = _best(comparisons)
    return Line(result, metric, median_interval(ours), tuple(comparisons), best, floor, NONE, ())


def _best(comparisons: Sequence[Comparison]) -> Comparison | None:
    return min(comparisons, key=lambda c: c.theirs.value, default=None)


def _judged(line: Line, comparisons: Sequence[Comparison]) -> Line:
    line = replace(line, comparisons=tuple(comparisons), best=_best(comparisons))
    verdict, reasons = judge(line)
    return replace(line, verdict=verdict, reasons=tuple(reasons))


def judge(line: Line) -> tuple[str, list[str]]:
    """(verdict, reasons). The ratio's whole interval must lie under its target, or our median within 1.15 of the
    floor; absolute targets and those against single peers must be met besides.
    """
    metric = line.metric
    outcomes: list[bool] = []
    reasons: list[str] = []
    if metric.ratio is not None and line.best is not None:
        under = line.best.ratio.high <= metric.ratio
        near = line.over_floor is not None and line.over_floor <= NEAR_FLOOR
        outcomes.append(under or near)
        reasons.append(
            f"ratio to {line.best.peer} <= {line.best.ratio.high:.2f}, target {metric.ratio:.2f}"
        )
        if line.over_floor is not None:
            reasons.append(f"{line.over_floor:.2f} x floor")
    if metric.absolute is not None:
        outcomes.append(line.ours.high <= metric.absolute)
        reasons.append(
            f"<= {line.ours.high / metric.scale:.3g} {metric.unit}, target {metric.absolute / metric.scale:.3g}"
        )
    for comparison in line.comparisons:
        target = metric.against.get(comparison.peer)
        if target is not None:
            outcomes.append(comparison.ratio.high <= target)
            reasons.append(
                f"{1 / comparison.ratio.high:.1f} times as fast as {comparison.peer}, target {1 / target:.1f}"
            )
    if not outcomes:
        return NONE, reasons
    return (PASS if all(outcomes) else FAIL), reasons


__all__ = ["FAIL", "NONE", "PASS", "Comparison", "Line", "evaluate", "judge"]
