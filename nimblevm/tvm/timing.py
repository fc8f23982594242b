"""What `benchmark` of a GraphModule and of a VirtualMachine measures and gives."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nimblevm.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Seconds a run."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.results))

    @property
    def median(self) -> float:
        return float(np.median(self.results))

    @property
    def min(self) -> float:
        return float(np.min(self.results))

    @property
    def max(self) -> float:
        return float(np.max(self.results))

    @property
    def std(self) -> float:
        return float(np.std(self.results))

    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        heads = " ".join(f"{f'{name} (ms)':>13}" for name in names)
        return f"{heads}\n" + " ".join(f"{getattr(self, name) * 1e3:13.4f}" for name in names)


def benchmark(
    run: Callable[[], object],
    repeat: int,
    number: int,
    min_repeat_ms: int | None,
    cooldown_interval_ms: int,
    repeats_to_cooldown: int,
) -> BenchmarkResult:
    """The mean of `number` runs, `repeat` times, each for at least min_repeat_ms; a pause of cooldown_interval_ms
    after every repeats_to_cooldown of them. InvalidInput for counts below 1."""
    for name, count in (
        ("repeat", repeat),
        ("number", number),
        ("repeats_to_cooldown", repeats_to_cooldown),
    ):
        if count < 1:
            raise InvalidInput(f"benchmark: {name} must be at least 1, not {count}")
    seconds = []
    for turn in range(repeat):
        if turn and turn % repeats_to_cooldown == 0:
            time.sleep(cooldown_interval_ms / 1e3)
        start, runs = time.perf_counter(), 0
        while runs < number or (time.perf_counter() - start) * 1e3 < (min_repeat_ms or 0):
            run()
            runs += 1
        seconds.append((time.perf_counter() - start) / runs)
    return BenchmarkResult(tuple(seconds))


__all__ = ["BenchmarkResult", "benchmark"]
