"""The memory study: what plan_memory and static shapes change, and what allocating costs.

As in Nimble (arXiv 2006.03031, section 5.3), which counts allocations with and without a plan, and compares the memory
of a model with dynamic shapes to the same model compiled for the shapes at hand.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

import nimblevm as nvm
from nimblevm.bench.cases import Case
from nimblevm.bench.study_models import MODELS, Model, runner
from nimblevm.vm.profiler import Time

PEAK_TARGET, TIME_TARGET = 1.08, 0.01
ROUNDS, ROUND = 12, 2e-3  # rounds, and the seconds of one
QUICK_MODELS = ("lstm-tiny", "chain")
_COLUMNS = (
    "model", "size", "compiled", "blocks", "allocated, KB", "peak, KB", "held, KB", "peak / static", "allocation",
)  # fmt: skip
_ALLOCATING = ("AllocStorage", "AllocTensor", "AllocADT", "AllocClosure", "AllocRef")


@dataclass(frozen=True, slots=True)
class Use:
    """One run. allocations: blocks; allocated: their bytes, all together; peak: bytes that lived at once; held: bytes
    that the VM had taken from the system.
    """

    allocations: int
    allocated: int
    peak: int
    held: int


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """One model at one size. share: of the run's time spent in instructions that allocate."""

    model: str
    size: int
    planned: Use
    unplanned: Use
    static: Use | None
    share: float

    @property
    def over_static(self) -> float | None:
        """Peak, dynamic / static shapes."""
        return self.planned.peak / self.static.peak if self.static and self.static.peak else None


def measure(quick: bool, log: Callable[[str], None]) -> list[MemoryLine]:
    """All models; quick: two small ones."""
    found: list[MemoryLine] = []
    for name in QUICK_MODELS if quick else MODELS:
        log(f"memory of {name}")
        found += _model(name)
    return found


def _model(name: str) -> list[MemoryLine]:
    cases = _few(Model.of(name).row.cases()) if name != "chain" else Model.of(name).row.cases()
    lines = []
    program = None
    for case in cases:
        if case.program != program:
            program = case.program
            model = Model.of(name, program)
            planned, unplanned = _compiled(model), _compiled(model, plan_memory=False)
        text = model.static_text(case)
        with planned.vm() as vm, planned.vm(profile="instructions") as profiled:
            plain, timed = (runner(model, planned.exe, v, case) for v in (vm, profiled))
            share = alloc_share(plain, timed, profiled)
        static = None
        if text is not None:
            with _compiled(model, text).exe as exe:
                static = _use(model, exe, case)
        uses = [_use(model, compiled.exe, case) for compiled in (planned, unplanned)]
        lines.append(MemoryLine(name, case.size, uses[0], uses[1], static, share))
    return lines


def _few(cases: Sequence[Case]) -> list[Case]:
    """The smallest, a middle one and the largest."""
    ordered = sorted(cases, key=lambda case: case.size)
    return [ordered[i] for i in sorted({0, len(ordered) // 2, len(ordered) - 1})]


@dataclass(frozen=True, slots=True)
class _Compiled:
    exe: Any

    def vm(self, **options: Any) -> Any:
        return nvm.VirtualMachine(self.exe, **options)


def _compiled(model: Model, text: str | None = None, **options: Any) -> _Compiled:
    mod = model.module(text)
    return _Compiled(nvm.compile(mod, params=model.bound(mod), **options))


def _use(model: Model, exe: Any, case: Case) -> Use:
    """The second run of a fresh VM: the first one also fills its caches of places and texts."""
    with nvm.VirtualMachine(exe) as vm:
        run = runner(model, exe, vm, case)
        run()
        before = vm.stats()
        run()
        after = vm.stats()
    count, size = (after[key] - before[key] for key in ("allocations", "allocated_bytes"))
    return Use(count, size, after["peak_bytes"], after["pool_bytes"] + after["live_bytes"])


def alloc_share(plain: Callable[[], Any], timed: Callable[[], Any], vm: Any) -> float:
    """The share of a run's time in instructions that allocate: their least time in rounds of `timed` on `vm`, which
    profiles instructions, less that of reading the clock (the mean of the cheapest instruction), over the least time
    of `plain`.
    """
    start = time.perf_counter()
    plain()
    turns = max(1, round(ROUND / (time.perf_counter() - start)))
    whole, spent = math.inf, math.inf
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(turns):
            plain()
        whole = min(whole, (time.perf_counter() - start) / turns)
        vm.reset_profile()
        for _ in range(turns):
            timed()
        spent = min(spent, alloc_seconds(vm.profile().instructions) / turns)
    return spent / whole


def alloc_seconds(instructions: Sequence[Time]) -> float:
    """Seconds of those that allocate, without the clock's."""
    clock = min((row.seconds / row.calls for row in instructions), default=0.0)
    found = 0.0
    for row in instructions:
        if row.name in _ALLOCATING:
            found += max(0.0, row.seconds - row.calls * clock)
    return found


def to_json(lines: Sequence[MemoryLine]) -> list[dict[str, Any]]:
    return [{**asdict(line), "peak_over_static": line.over_static} for line in lines]


def show(console: Console, lines: Sequence[MemoryLine]) -> None:
    """The table, and which targets are missed."""
    table = Table(title="memory of one run")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in ("model", "compiled") else "right")
    for line in lines:
        over = line.over_static
        last = (
            "-" if over is None else _coloured(f"{over:.3f}", over <= PEAK_TARGET),
            _coloured(f"{line.share:.2%}", line.share <= TIME_TARGET),
        )
        table.add_row(line.model, str(line.size), *_cells("with plan", line.planned), *last)
        table.add_row("", "", *_cells("without", line.unplanned))
        if line.static is not None:
            table.add_row("", "", *_cells("static", line.static))
    console.print(table)
    console.print(
        "Models without static shapes: trees have none to fix, the cache of gpt2 grows in the run."
    )


def _cells(name: str, use: Use) -> list[str]:
    sizes = (use.allocated, use.peak, use.held)
    return [name, str(use.allocations), *(f"{size / 1e3:,.1f}" for size in sizes)]


def _coloured(text: str, good: bool) -> str:
    return f"[{'green' if good else 'red'}]{text}[/]"


__all__ = ["MemoryLine", "Use", "alloc_seconds", "alloc_share", "measure", "show", "to_json"]
