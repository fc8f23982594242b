"""Several ways to run the same model: the fastest on this machine is what takes part."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Run = Callable[[Any], Sequence[Any]]


def fastest(
    ways: Mapping[str, Run], values: Sequence[Any], seconds: float = 1.0
) -> tuple[str, Run]:
    """(name, way) with the least time over all values, minima of interleaved turns, after a warm-up.

    A way that raises is left out; its error is raised if none is left.
    """
    if len(ways) == 1:
        return next(iter(ways.items()))
    best: dict[str, list[float]] = {}
    failure: Exception | None = None
    for name, run in ways.items():
        try:
            for value in values:
                run(value)
        except Exception as error:
            failure = error
        else:
            best[name] = [float("inf")] * len(values)
    if not best:
        raise failure or ValueError("there is no way to run the model")
    end = time.perf_counter() + seconds
    turns = 0
    while turns < 3 or time.perf_counter() < end:
        turns += 1
        for name, times in best.items():
            for i, value in enumerate(values):
                start = time.perf_counter()
                ways[name](value)
                times[i] = min(times[i], time.perf_counter() - start)
    chosen = min(best, key=lambda name: sum(best[name]))
    return chosen, ways[chosen]


__all__ = ["Run", "fastest"]
