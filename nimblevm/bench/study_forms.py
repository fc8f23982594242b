"""The forms study: models compiled for less than this CPU, and with weights in 16 bits, against the usual form.

All forms of a model are in one process and take every input in turns. A round is the sum over a row's inputs, each the
lesser of two runs; ratios are of rounds that were neighbours in time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

import nimblevm as nvm
from nimblevm.bench.statistics import Interval, ratio_interval
from nimblevm.bench.study_models import Model, runner
from nimblevm.kernels import llvm, targets

MODELS = ("lstm", "lstm2", "gru", "treelstm", "minilm", "resnet18")
SECONDS = 12.0  # of measuring, a model at one number of threads
MOST_THREADS = 2
USUAL = "native"
_WEIGHTS = ("bfloat16", "float16")
_COLUMNS = ("model", "threads", "form", "a unit, us", "over native, 95 %")


@dataclass(frozen=True, slots=True)
class FormLine:
    """One form of a model: median seconds a unit (token, word), and the ratio to the usual form, None for that one."""

    model: str
    threads: int
    form: str
    seconds: float
    ratio: Interval | None


def forms() -> dict[str, tuple[str, str]]:
    """Target and dtype of weights, by name: the usual form first; levels that ask for less than this CPU has."""
    native = llvm.parse_target(USUAL)
    if native is None:
        raise RuntimeError(
            "the study of forms needs machine code: pip install 'nimblevm[compiler]'"
        )
    have = set(native.features)
    less = [
        level.name
        for level in targets.BY_NAME.values()
        if level.arch == native.arch and set(level.features) < have
    ]
    return {
        USUAL: (USUAL, "float32"),
        **{name: (name, "float32") for name in less},
        **{f"{USUAL}, {dtype}": (USUAL, dtype) for dtype in _WEIGHTS},
    }


def measure(quick: bool, log: Callable[[str], None]) -> list[FormLine]:
    """All models, with one thread and with two, if there are cores for them; quick: a small model."""
    lines: list[FormLine] = []
    counts = range(1, min(MOST_THREADS, len(os.sched_getaffinity(0))) + 1)
    for name in ("lstm-tiny",) if quick else MODELS:
        model = Model.of(name)
        log(f"forms: compiling {name}")
        with ExitStack() as stack:
            mod = model.module()
            bound = model.bound(mod)
            found = {
                form: stack.enter_context(nvm.compile(mod, bound, target, weights=weights))
                for form, (target, weights) in forms().items()
            }
            for threads in counts:
                log(f"forms of {name} with {threads} thread(s)")
                rounds = _rounds(model, found, threads, 0.1 if quick else SECONDS)
                units = sum(case.units for case in model.row.cases())
                lines += lines_of(name, threads, units, rounds)
    return lines


def _rounds(
    model: Model, exes: Mapping[str, Any], threads: int, seconds: float
) -> dict[str, list[float]]:
    """Seconds of each round by form; every other round takes the forms in the other order."""
    with ExitStack() as stack:
        runs: dict[str, list[Callable[[], Any]]] = {}
        for form, exe in exes.items():
            vm = stack.enter_context(nvm.VirtualMachine(exe, threads=threads))
            runs[form] = [runner(model, exe, vm, case) for case in model.row.cases()]
        taken: dict[str, list[float]] = {form: [] for form in exes}
        order, end = list(exes), time.perf_counter() + seconds
        while time.perf_counter() < end or len(taken[order[0]]) < 2:
            for form in order:
                runs[form][0]()  # the others have had the caches
                taken[form].append(sum(min(_timed(run), _timed(run)) for run in runs[form]))
            order.reverse()
    return taken


def _timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def lines_of(
    model: str, threads: int, units: int, rounds: Mapping[str, Sequence[float]]
) -> list[FormLine]:
    """From seconds of rounds of so many units, by form."""
    usual = rounds[USUAL]
    return [
        FormLine(
            model, threads, form, median(taken) / units,
            None if form == USUAL else ratio_interval(taken, usual),
        )
        for form, taken in rounds.items()
    ]  # fmt: skip


def to_json(lines: Sequence[FormLine]) -> list[dict[str, Any]]:
    return [asdict(line) for line in lines]


def show(console: Console, lines: Sequence[FormLine]) -> None:
    """One row a form."""
    table = Table(title="forms of a model")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in ("model", "form") else "right")
    for line in lines:
        ratio = line.ratio
        over = "-" if ratio is None else f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
        table.add_row(line.model, str(line.threads), line.form, f"{line.seconds * 1e6:.2f}", over)
    console.print(table)


__all__ = ["FormLine", "forms", "lines_of", "measure", "show", "to_json"]
