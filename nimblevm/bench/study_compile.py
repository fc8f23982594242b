"""The compile-time study: seconds of each stage from text to a loaded executable, on the clock and of the CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from nimblevm.bench.study_models import MODELS, Model
from nimblevm.bytecode.executable import Executable
from nimblevm.driver import compile_to_bytes

TARGETS = {"lstm": 2.0, "bert": 15.0}  # seconds in all, issue of CPU speed
STAGES = ("parse", "infer", "passes", "emit", "machine code", "file", "load")
ROUNDS = 3


@dataclass(slots=True)
class Stopwatch:
    """Time by stage: [clock, CPU of this process and its children], seconds."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {s: [0.0, 0.0] for s in STAGES})
    stage: str = "parse"
    since: tuple[float, float] = field(default_factory=lambda: _now())

    def begin(self, stage: str) -> None:
        now = _now()
        total = self.seconds[self.stage]
        total[0] += now[0] - self.since[0]
        total[1] += now[1] - self.since[1]
        self.stage, self.since = stage, now

    def progress(self, name: str, done: int, total: int) -> None:
        """As compile's `progress`."""
        own = {
            "infer_type": "infer",
            "emit": "emit",
            "machine code": "machine code",
            "file": "file",
        }
        self.begin(own.get(name, "passes"))


def _now() -> tuple[float, float]:
    used = os.times()
    return (
        time.perf_counter(),
        used.user + used.system + used.children_user + used.children_system,
    )


@dataclass(frozen=True, slots=True)
class CompileLine:
    """One model: seconds by stage as (clock, CPU), and the file's bytes. The stages of the fastest of some rounds."""

    model: str
    stages: dict[str, tuple[float, float]]
    bytes: int

    @property
    def total(self) -> tuple[float, float]:
        clock, cpu = zip(*self.stages.values(), strict=True)
        return sum(clock), sum(cpu)


def measure(quick: bool, log: Callable[[str], None]) -> list[CompileLine]:
    """All models; quick: a small one."""
    found = []
    for name in ("lstm-tiny",) if quick else MODELS:
        log(f"compiling {name}")
        model = Model.of(name, "chain100" if name == "chain" else "main")
        rounds = [_once(name, model) for _ in range(1 if quick else ROUNDS)]
        found.append(min(rounds, key=lambda line: line.total[1]))
    return found


def _once(name: str, model: Model) -> CompileLine:
    watch = Stopwatch()
    mod = model.module()
    data = compile_to_bytes(mod, model.bound(mod), progress=watch.progress)
    watch.begin("load")
    Executable.from_bytes(data).close()
    watch.begin("load")
    return CompileLine(name, {s: (t[0], t[1]) for s, t in watch.seconds.items()}, len(data))


def to_json(lines: Sequence[CompileLine]) -> list[dict[str, Any]]:
    return [
        {**asdict(line), "total": line.total, "target": TARGETS.get(line.model)} for line in lines
    ]


def show(console: Console, lines: Sequence[CompileLine]) -> None:
    """CPU seconds by stage, and both sums."""
    table = Table(title="compile times: CPU seconds by stage, and seconds on the clock")
    for name in ("model", *STAGES, "CPU", "clock", "target", "file, MB"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for line in lines:
        clock, cpu = line.total
        target = TARGETS.get(line.model)
        colour = "green" if target is None or clock <= target else "red"
        table.add_row(
            line.model,
            *(f"{line.stages[s][1]:.2f}" for s in STAGES),
            f"{cpu:.2f}",
            f"[{colour}]{clock:.2f}[/]",
            "-" if target is None else f"{target:g}",
            f"{line.bytes / 1e6:.1f}",
        )
    console.print(table)


__all__ = ["CompileLine", "STAGES", "Stopwatch", "measure", "show", "to_json"]
