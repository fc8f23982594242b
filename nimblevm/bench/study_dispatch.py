"""The dispatch study: what loops for residues are worth where the number of rows is symbolic.

As in Nimble (arXiv 2006.03031, section 5.4): a product with any number of rows M, generated with a loop for every
residue, for some and for one only, against code generated for exactly that M. Our loops take 1 to 6 rows at once, up
to 12 where M is at most 24, so "all" is a residue in one loop each; with fewer loops a residue of 5 takes several.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import nimblevm as nvm
from nimblevm.kernels import llvm, tune
from nimblevm.kernels.variants import ROWS, Choices, Shape, Variant

VARIANTS: Mapping[str, tuple[int, ...]] = {
    "all": ROWS, "1 2 4 6": (1, 2, 4, 6), "1 2 4": (1, 2, 4), "1": (1,),
}  # fmt: skip
"""Counts of rows that have a loop of their own."""
STATIC = "static"
SHAPES = ((300, 512), (512, 512), (768, 768), (768, 3072), (3072, 768))  # K, N
MOST_ROWS = 40
ROUNDS, ROUND = 9, 0.4e-3  # rounds of each M, and the seconds of one


@dataclass(frozen=True, slots=True)
class DispatchLine:
    """One shape: seconds of the kernel by variant, for each number of rows."""

    depth: int
    units: int
    rows: tuple[int, ...]
    seconds: dict[str, tuple[float, ...]]

    def slowdowns(self, variant: str) -> list[float]:
        """Against static, for each number of rows."""
        pairs = zip(self.seconds[variant], self.seconds[STATIC], strict=True)
        return [ours / static for ours, static in pairs]

    def mean(self, variant: str) -> float:
        return geometric_mean(self.slowdowns(variant))

    def worst(self, variant: str) -> tuple[float, int]:
        """The largest slow-down and its number of rows."""
        return max(zip(self.slowdowns(variant), self.rows, strict=True))


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def measure(quick: bool, log: Callable[[str], None]) -> list[DispatchLine]:
    """All shapes and rows; quick: one shape, few rows, few rounds."""
    shapes, rows = (((64, 64),), (1, 5, 6)) if quick else (SHAPES, range(1, MOST_ROWS + 1))
    found = []
    for depth, units in shapes:
        log(f"products with {depth} x {units} weights")
        found.append(_shape(depth, units, tuple(rows), 2 if quick else ROUNDS))
    return found


def _shape(depth: int, units: int, rows: tuple[int, ...], rounds: int) -> DispatchLine:
    seconds: dict[str, list[float]] = {name: [] for name in (*VARIANTS, STATIC)}
    with ExitStack() as stack:
        vms = {
            name: stack.enter_context(_product(None, depth, units, Variant(loops)))
            for name, loops in VARIANTS.items()
        }
        for m in rows:
            with _product(m, depth, units, Variant()) as static:
                least = _least({**vms, STATIC: static}, np.ones((m, depth), np.float32), rounds)
            for name, value in least.items():
                seconds[name].append(value)
    return DispatchLine(depth, units, rows, {name: tuple(s) for name, s in seconds.items()})


def _product(m: int | None, depth: int, units: int, variant: Variant) -> Any:
    """A VM whose main multiplies (m, depth) by constant weights; None: any number of rows."""
    info = llvm.parse_target("native")
    if info is None:
        raise RuntimeError(
            "the study of dispatch needs machine code: pip install 'nimblevm[compiler]'"
        )
    x = f"Tensor[({'?m' if m is None else m}, {depth}), float32]"
    text = f'#[version = "0.0.5"]\ndef @main(%x: {x}, %w: Tensor[({units}, {depth}), float32]) {{ nn.dense(%x, %w) }}'
    chosen = Choices({Shape("float32", "float32", depth, units): variant})
    exe = nvm.compile(
        nvm.relay.parse(text),
        params={"w": np.ones((units, depth), np.float32)},
        tuning=tune.to_json(info.text, chosen),
    )
    return nvm.VirtualMachine(exe, profile=True)


def _least(vms: Mapping[str, Any], x: Any, rounds: int) -> dict[str, float]:
    """Seconds in the kernel, the least of some rounds in turns; every round starts with a run that is not counted,
    for the others have had the caches.
    """
    least = dict.fromkeys(vms, math.inf)
    start = time.perf_counter()
    next(iter(vms.values())).run(x)
    turns = max(1, round(ROUND / (time.perf_counter() - start)))
    for _ in range(rounds):
        for name, vm in vms.items():
            vm.run(x)
            vm.reset_profile()
            for _ in range(turns):
                vm.run(x)
            profile = vm.profile()
            least[name] = min(least[name], profile.kernel_seconds / profile.runs)
    return least


def to_json(lines: Sequence[DispatchLine]) -> list[dict[str, Any]]:
    return [{**asdict(line), "mean": {v: line.mean(v) for v in VARIANTS}} for line in lines]


def show(console: Console, lines: Sequence[DispatchLine]) -> None:
    """Mean and worst slow-downs against static."""
    table = Table(
        title="products with symbolic rows, time / time of code for that number of rows: mean (worst, at M)"
    )
    for name in ("K x N", *(f"loops {v}" for v in VARIANTS)):
        table.add_column(name, justify="left" if name == "K x N" else "right")
    for line in lines:
        worst = {v: line.worst(v) for v in VARIANTS}
        table.add_row(
            f"{line.depth} x {line.units}",
            *(f"{line.mean(v):.3f} ({worst[v][0]:.2f}, {worst[v][1]})" for v in VARIANTS),
        )
    table.add_row(
        "all", *(f"{geometric_mean([line.mean(v) for line in lines]):.3f}" for v in VARIANTS)
    )
    console.print(table)


__all__ = ["DispatchLine", "STATIC", "VARIANTS", "geometric_mean", "measure", "show", "to_json"]
