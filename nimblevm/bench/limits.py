"""What the machine can do at most, measured by native/bench/limits.c in the same run as the benchmarks."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

NATIVE = Path(__file__).resolve().parents[2] / "native"
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
STEADY = 0.75
"""Of the best rate a thread: a thread count that stays below it was disturbed."""
ATTEMPTS = 3


class LimitsUnavailable(Exception):
    """The program can't be built or run here; the text says why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """By thread count: float32 multiply-adds (operations a second) and reading (bytes a second) from l2, l3, dram.

    Cache sizes in bytes; hand_off: seconds there and back between two spinning threads, 0 if there is one core.
    void: thread counts whose rates are not the machine's, since something else ran: no floor may come from them.
    """

    peak: Mapping[int, float]
    read: Mapping[str, Mapping[int, float]]
    l2_bytes: int
    l3_bytes: int
    hand_off: float
    void: tuple[int, ...] = ()

    def level(self, resident: float, threads: int) -> str:
        """The level that holds so many bytes, shared out between the threads."""
        if resident / threads <= self.l2_bytes:
            return "l2"
        return "l3" if resident <= self.l3_bytes else "dram"


def build(name: str) -> Path:
    """Build a program of native/bench. Raises LimitsUnavailable."""
    if not (NATIVE / "Makefile").exists():
        raise LimitsUnavailable("needs the source tree (native/Makefile)")
    target = Path("build") / name
    try:
        subprocess.run(
            ["make", "-s", "-C", str(NATIVE), str(target)],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stderr", None) or str(error)
        raise LimitsUnavailable(f"native/{target} can't be built: {told.strip()}") from None
    return NATIVE / target


def measure_limits(
    cores: Sequence[int], report: Callable[[str, int, int], None] | None = None
) -> Limits:
    """Run it on these cores: 1 thread up to one a core; again if something disturbed it. report: told which time it is.

    Takes about ten seconds a time. Raises LimitsUnavailable.
    """
    program, times = build("limits"), itertools.count()

    def measure() -> Limits:
        number = next(times)
        if report is not None:
            again = "ten seconds" if number == 0 else "again, since something else ran"
            report(again, number, ATTEMPTS)
        return _measured(program, cores)

    return steady(measure)


def steady(measure: Callable[[], Limits], attempts: int = ATTEMPTS) -> Limits:
    """The best of as many measurements as it takes until no thread count is disturbed; those that stay so are void."""
    found = measure()
    for _ in range(attempts - 1):
        if not disturbed(found):
            break
        found = _best(found, measure())
    return replace(found, void=disturbed(found))


def disturbed(limits: Limits) -> tuple[int, ...]:
    """Thread counts that had less than STEADY of the best rate a thread in what threads do not share.

    That is multiply-adds and each core's own L2. A second core on which something else runs, or that is the first
    one's other hardware thread, gives two threads the rate of one.
    """
    found: set[int] = set()
    for rates in (limits.peak, limits.read["l2"]):
        best = max(rate / threads for threads, rate in rates.items())
        found.update(n for n, rate in rates.items() if rate / n < STEADY * best)
    return tuple(sorted(found))


def _best(one: Limits, other: Limits) -> Limits:
    """Each rate is what was possible: the larger one counts."""

    def larger(a: Mapping[int, float], b: Mapping[int, float]) -> dict[int, float]:
        return {threads: max(rate, b[threads]) for threads, rate in a.items()}

    read = {level: larger(rates, other.read[level]) for level, rates in one.read.items()}
    hand_off = min(one.hand_off, other.hand_off)
    return replace(one, peak=larger(one.peak, other.peak), read=read, hand_off=hand_off)


def _measured(program: Path, cores: Sequence[int]) -> Limits:
    try:
        done = subprocess.run(
            [str(program), *map(str, cores)],
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LimitsUnavailable(f"{program.name}: {error}") from None
    return parse(json.loads(done.stdout), *cache_sizes())


def parse(found: Mapping[str, Any], l2_bytes: int, l3_bytes: int) -> Limits:
    """Limits from what the program prints."""

    def by_threads(rates: Mapping[str, float]) -> dict[int, float]:
        return {int(count): rate * 1e9 for count, rate in rates.items()}

    read = {level: by_threads(rates) for level, rates in found["read_gb_s"].items()}
    hand_off = found["hand_off_ns"] * 1e-9
    return Limits(by_threads(found["fma_gflops"]), read, l2_bytes, l3_bytes, hand_off)


def cache_sizes(folder: Path = _CACHES) -> tuple[int, int]:
    """Bytes of L2 (a core) and L3; 1 MiB and 32 MiB where the system does not say."""
    sizes = {2: 1 << 20, 3: 32 << 20}
    for index in sorted(folder.glob("index*")):
        try:
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if level in sizes and text.endswith("K"):
            sizes[level] = int(text[:-1]) * 1024
    return sizes[2], sizes[3]


__all__ = [
    "Limits",
    "LimitsUnavailable",
    "build",
    "cache_sizes",
    "disturbed",
    "measure_limits",
    "parse",
    "steady",
]
