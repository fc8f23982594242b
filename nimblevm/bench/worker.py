"""One side of a comparison in a process of its own; main() takes the CPU cores from the command line.

The parent writes pickled (command, arguments) to stdin and reads pickled ("ok", value) or ("error", kind, text) from
the stdout that this process started with; what libraries print goes to stderr. Between turns the parent stops the
process, so that threads which spin take nothing from the other side.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from resource import RUSAGE_SELF, getrusage
from typing import Any, BinaryIO

SLICE = 1e-3  # seconds; shorter calls are repeated within a slice
WARM = 0.02  # seconds of calls before a turn is measured: the other side has had the caches
# No machine leaves a process alone for long: a slice longer than this many seconds may have had switches if its threads
# waited for a core for no more than this share of it.
LONG, WAITED = 0.02, 0.002
LONG_CALL = 0.25  # seconds
# The same for a call in parts, each of which counts where its threads waited least.
WAITED_IN_PARTS = 0.005
_TASKS = "/proc/self/task"
_END = object()


@dataclass(frozen=True, slots=True)
class Turn:
    """seconds a call for each case, None if every slice was disturbed; slices taken and dropped; tolerated: long ones
    that were kept in spite of switches.
    """

    seconds: tuple[float | None, ...]
    taken: int
    dropped: int
    tolerated: int = 0


class Side:
    """A prepared model and its inputs."""

    def __init__(self, prepared: Any, cases: Sequence[Any]) -> None:
        self._prepared = prepared
        self._run = prepared.run
        self._values = [prepared.load(case) for case in cases]
        self._least = [SLICE] * len(cases)  # seconds a call

    def outputs(self) -> list[list[Any]]:
        """What the model gives for each case, copied."""
        return [[array.copy() for array in self._run(value)] for value in self._values]

    def share(self) -> float | None:
        """The VM's own share of the run time; None for peers."""
        share = self._prepared.share
        return None if share is None else float(share())

    def warm(self, seconds: float) -> None:
        """Run all cases for about so long, and learn how long each takes."""
        end = time.perf_counter() + seconds
        least = [float("inf")] * len(self._values)
        while True:
            for i, value in enumerate(self._values):
                start = time.perf_counter()
                self._run(value)
                least[i] = min(least[i], time.perf_counter() - start)
            if time.perf_counter() >= end:
                break
        self._least = least

    def turn(self, attempts: int, lenient: bool = False) -> Turn:
        """A clean slice of every case, one without an involuntary context switch of any thread, in so many attempts.

        lenient: if there is none, the shortest.
        """
        self._refill()
        taken = dropped = tolerated = 0
        found: list[float | None] = []
        for value, least in zip(self._values, self._least, strict=True):
            if self._prepared.parts is not None:
                seconds, passes = self._in_parts(value, attempts, lenient)
                found.append(seconds)
                taken += passes
                dropped += passes - (seconds is not None)
                continue
            repeats = max(1, round(SLICE / least))
            if least < LONG:
                self._run(value)
            clean, disturbed = None, []
            for _ in range(attempts):
                took, switches, waited = _slice(self._run, value, repeats)
                taken += 1
                length = took * repeats
                if not switches or (length > LONG and waited <= WAITED * length):
                    tolerated += bool(switches)
                    clean = took
                    break
                dropped += 1
                disturbed.append(took)
            found.append(min(disturbed) if lenient and clean is None else clean)
        return Turn(tuple(found), taken, dropped, tolerated)

    def _in_parts(self, value: Any, attempts: int, lenient: bool) -> tuple[float | None, int]:
        """(seconds, passes) of a call that is timed part by part, again and again until its threads waited for no more
        than WAITED_IN_PARTS of it; a part counts as in that pass in which they waited least, whatever it took.
        """
        best: list[tuple[float, float]] = []
        for passes in range(1, attempts + 1):
            times = _pass(self._prepared.parts, value)
            best = [min(pair) for pair in zip(best or times, times, strict=True)]
            waited, seconds = (sum(column) for column in zip(*best, strict=True))
            if waited <= WAITED_IN_PARTS * seconds:
                return seconds, passes
        return (seconds if lenient else None), attempts

    def _refill(self) -> None:
        """Get the caches back, by the short cases first; a call of more than LONG_CALL does so itself."""
        order = sorted(range(len(self._values)), key=lambda i: self._least[i])
        if self._least[order[0]] > LONG_CALL:
            return
        end = time.perf_counter() + WARM
        i = 0
        while i == 0 or time.perf_counter() < end:
            self._run(self._values[order[i % len(order)]])
            i += 1


def _slice(run: Any, value: Any, repeats: int) -> tuple[float, int, float]:
    """(seconds a call, involuntary context switches, seconds that threads waited for a core)."""
    gc.collect(0)
    gc.disable()
    waited = _waited()
    before = getrusage(RUSAGE_SELF).ru_nivcsw
    start = time.perf_counter_ns()
    for _ in range(repeats):
        run(value)
    took = time.perf_counter_ns() - start
    switches = getrusage(RUSAGE_SELF).ru_nivcsw - before
    gc.enable()
    return took / repeats * 1e-9, switches, (_waited() - waited) if switches else 0.0


def _pass(parts: Any, value: Any) -> list[tuple[float, float]]:
    """(seconds that threads waited for a core, seconds) of each part."""
    gc.collect(0)
    gc.disable()
    found = []
    going = parts(value)
    while True:
        waited, start = _waited(), time.perf_counter_ns()
        ended = next(going, _END) is _END
        took = time.perf_counter_ns() - start
        found.append((_waited() - waited, took * 1e-9))
        if ended:
            gc.enable()
            return found


def _waited() -> float:
    """Seconds that threads of this process were ready but had no core; infinite where Linux does not tell."""
    total = 0
    try:
        for task in os.listdir(_TASKS):
            with open(f"{_TASKS}/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return float("inf")
    return total * 1e-9


class _Commands:
    """What the parent may ask."""

    def __init__(self) -> None:
        self._side: Side | None = None

    def prepare(self, peer: str, row: str, threads: int, short: bool) -> dict[str, Any]:
        """Import the adapter, build the model; what the report says of it."""
        peers = importlib.import_module("nimblevm.bench.peers")
        rows = importlib.import_module("nimblevm.bench.rows")
        known = peers.PEERS[peer]
        adapter = importlib.import_module(known.module)
        wanted = rows.ROWS[row].shortened() if short else rows.ROWS[row]
        prepared = adapter.prepare(wanted, threads, known.variant)
        self._side = Side(prepared, wanted.cases())
        return {
            "version": adapter.version(), "options": prepared.options, "seconds": prepared.seconds,
        }  # fmt: skip

    def outputs(self) -> list[list[Any]]:
        return self._ready().outputs()

    def warm(self, seconds: float) -> None:
        self._ready().warm(seconds)

    def share(self) -> float | None:
        return self._ready().share()

    def turn(self, attempts: int, lenient: bool = False) -> Turn:
        return self._ready().turn(attempts, lenient)

    def _ready(self) -> Side:
        if self._side is None:
            raise RuntimeError("prepare comes first")
        return self._side


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the parent closes the pipe."""
    commands = _Commands()
    while True:
        try:
            name, args = pickle.load(requests)
        except EOFError:
            return
        answer: tuple[Any, ...]
        try:
            answer = ("ok", getattr(commands, name)(*args))
        except Exception as error:  # whatever a peer raises is reported, not fatal
            answer = ("error", type(error).__name__, str(error))
        pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


def main() -> None:
    """Pin the process before any library starts threads, keep stdout for answers."""
    os.sched_setaffinity(0, {int(core) for core in sys.argv[1].split(",")})
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)


__all__ = ["Side", "Turn", "main", "serve"]
