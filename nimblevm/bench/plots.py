"""PNG plots: latency against length for each row, and bars of all rows with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import figure

from nimblevm.bench.evaluate import Line
from nimblevm.bench.peers import OURS, PEERS
from nimblevm.bench.session import RowResult

matplotlib.use("Agg")
_WIDEST = 3.0  # ratio; a fixed cost near zero has intervals without end
_COLOURS = {name: f"C{k}" for k, name in enumerate(PEERS)}


def write_plots(folder: Path, lines: Sequence[Line], results: Sequence[RowResult]) -> list[Path]:
    """Files written: <row>-<threads>.png and ratios.png."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for result in results:
        if len(result.cases) > 1 and result.rounds:
            path = folder / f"{result.row.name}-{result.threads}.png"
            _latency(result).savefig(path, dpi=120)
            written.append(path)
    if any(line.comparisons for line in lines):
        path = folder / "ratios.png"
        _bars(lines).savefig(path, dpi=120)
        written.append(path)
    return written


def _latency(result: RowResult) -> Any:
    """Median time of a call against the size of its input, quartiles as a band."""
    fig = figure.Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = fig.add_subplot()
    order = np.argsort([case.size for case in result.cases], kind="stable")
    sizes = np.array([case.size for case in result.cases])[order]
    for name, side in result.sides.items():
        if not side.rounds:
            continue
        times = np.array(side.rounds)[:, order] * 1e3
        low, middle, high = np.quantile(times, [0.25, 0.5, 0.75], axis=0)
        axes.plot(sizes, middle, marker="o", ms=3, label=name, color=_COLOURS.get(name))
        axes.fill_between(sizes, low, high, alpha=0.2, color=_COLOURS.get(name))
    axes.set_xlabel(result.row.size_name)
    axes.set_ylabel("ms a call")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{result.row.title}, {result.threads} thread(s)")
    axes.legend()
    return fig


def _bars(lines: Sequence[Line]) -> Any:
    """Each peer's time over ours, with the interval of the ratio; targets as ticks."""
    rows = [(line, c) for line in lines for c in line.comparisons]
    fig = figure.Figure(
        figsize=(8, 1.2 + 0.22 * len(rows) + 0.2 * len(lines)), layout="constrained"
    )
    axes = fig.add_subplot()
    at, places, labels = 0.0, [], []
    for line in lines:
        for c in line.comparisons:
            values = [[c.ratio.value - c.ratio.low], [c.ratio.high - c.ratio.value]]
            axes.barh(at, c.ratio.value, xerr=values, color=_COLOURS.get(c.peer), height=0.8)
            places.append(at)
            labels.append(
                f"{line.result.row.name}, {line.metric.name}, {line.result.threads} thr: {c.peer}"
            )
            if line.metric.ratio is not None and c is line.best:
                axes.plot([line.metric.ratio] * 2, [at - 0.45, at + 0.45], color="black")
            at += 1
        at += 0.6
    axes.axvline(1, color="grey", lw=0.8)
    axes.set_yticks(places, labels, fontsize=6)
    axes.invert_yaxis()
    axes.set_xlim(0, max(1.1, min(_WIDEST, max(c.ratio.high for _, c in rows))))
    axes.set_xlabel(f"{OURS} / peer, 95 % interval; ticks: targets against the best")
    return fig


__all__ = ["write_plots"]
