"""Runs one row: a worker process a side, turns in alternating order on the same cores, results compared first."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from nimblevm.bench.cases import Case
from nimblevm.bench.peers import OURS
from nimblevm.bench.rows import Row
from nimblevm.bench.worker import Turn

ATTEMPTS = 6  # slices of a case in one turn, until one is undisturbed
WARM_UP = 0.3  # seconds, once a worker
LEAST_ROUNDS, MOST_ROUNDS = 8, 400
PATIENCE = 10  # times the seconds of a row, until it ends with fewer rounds
_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip

_START = "from nimblevm.bench.worker import main; main()"

Log = Callable[[str], None]


class WorkerError(Exception):
    """A worker's command failed; the text says how."""


class Measurable(Protocol):
    """What a round needs of a side."""

    def turn(self, attempts: int, lenient: bool) -> Turn: ...


class Worker:
    """A worker process, stopped (SIGSTOP) whenever it has nothing to do."""

    def __init__(self, peer: str, threads: int, cores: Sequence[int]) -> None:
        self.peer = peer
        environment = dict(os.environ)
        environment.update(dict.fromkeys(_VARIABLES, str(threads)))
        environment["OMP_PROC_BIND"] = "true" if threads > 1 else "false"
        command = [sys.executable, "-c", _START, ",".join(map(str, cores))]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment
        )  # fmt: skip

    def call(self, name: str, *args: Any) -> Any:
        """Run a command of worker.py. Raises WorkerError."""
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise WorkerError("the worker has no pipes")
        self._signal(signal.SIGCONT)
        try:
            pickle.dump((name, args), requests)
            requests.flush()
            answer = pickle.load(answers)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise WorkerError(f"the process ended: {self._last_words()}") from None
        self._signal(signal.SIGSTOP)
        if answer[0] == "error":
            raise WorkerError(f"{answer[1]}: {answer[2]}")
        return answer[1]

    def turn(self, attempts: int, lenient: bool) -> Turn:
        found: Turn = self.call("turn", attempts, lenient)
        return found

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def _last_words(self) -> str:
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self._process.returncode}"

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
        self._errors.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(slots=True)
class SideResult:
    """What one side showed: `rounds` are seconds a call for each case, all clean."""

    name: str
    version: str = ""
    options: str = ""
    setup_seconds: float = 0.0
    rounds: list[tuple[float, ...]] = field(default_factory=list)
    taken: int = 0
    dropped: int = 0
    tolerated: int = 0
    problem: str = ""  # why it does not take part


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row at one thread count. `sides` starts with ours; the k-th rounds of all sides that take part are neighbours
    in time.
    """

    row: Row
    cases: tuple[Case, ...]
    threads: int
    sides: Mapping[str, SideResult]
    rounds: int
    rounds_dropped: int
    share: float | None = None  # of our run time that is not spent in kernels
    from_c: tuple[tuple[float, ...], ...] | None = None  # rounds of our calls, without Python


def cores_for(threads: int) -> list[int]:
    """The last `threads` cores that this process may use (the first serve most interrupts)."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < threads:
        raise ValueError(f"{threads} threads need as many cores; there are {len(available)}")
    return available[-threads:]


def measure(
    row: Row, peers: Sequence[str], threads: int, seconds: float, short: bool, log: Log
) -> RowResult:
    """Start the sides, compare results, take rounds for about `seconds`. A side that fails is reported and left out.

    Raises WorkerError if our own side fails.
    """
    cores = cores_for(threads)
    cases = row.cases()
    sides = {name: SideResult(name) for name in (OURS, *peers)}
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name, side in sides.items():
            log(f"{row.title}, {threads} thread(s): preparing {name}")
            worker = stack.enter_context(Worker(name, threads, cores))
            try:
                told = worker.call("prepare", name, row.name, threads, short)
                side.version, side.options = told["version"], told["options"]
                side.setup_seconds = told["seconds"]
                workers[name] = worker
            except WorkerError as error:
                if name == OURS:
                    raise
                side.problem = str(error)
                worker.close()
        _compare(row, cases, workers, sides)
        for name in [name for name in workers if sides[name].problem]:
            workers.pop(name).close()
        log(f"{row.title}, {threads} thread(s): measuring {', '.join(workers)}")
        for worker in workers.values():
            worker.call("warm", WARM_UP)
        rounds, dropped = take_rounds(workers, sides, seconds, lenient=short)
        share = workers[OURS].call("share")
    return RowResult(row, tuple(cases), threads, sides, rounds, dropped, share)


def _compare(
    row: Row, cases: Sequence[Case], workers: Mapping[str, Worker], sides: Mapping[str, SideResult]
) -> None:
    """All sides give what numpy gives, for every case; raises WorkerError for ours."""
    weights = row.params()
    wanted = [row.reference(weights, case) for case in cases]
    for name, worker in workers.items():
        try:
            problem = difference(row, wanted, worker.call("outputs"))
        except WorkerError as error:
            problem = str(error)
        if problem and name == OURS:
            raise WorkerError(f"{row.title}: {problem}")
        sides[name].problem = problem


def difference(row: Row, wanted: Sequence[Sequence[Any]], got: Sequence[Sequence[Any]]) -> str:
    """Where results differ by more than the row's tolerance, "" if nowhere."""
    relative, absolute = row.tolerance
    for k, (want, have) in enumerate(zip(wanted, got, strict=True)):
        if len(want) != len(have):
            return f"results differ: case {k} has {len(have)} outputs, expected {len(want)}"
        for a, b in zip(want, have, strict=True):
            if np.size(a) != np.size(b):
                return f"results differ: case {k} has shape {np.shape(b)}, expected {np.shape(a)}"
            flat = np.reshape(b, np.shape(a))
            if not np.allclose(flat, a, rtol=relative, atol=absolute):
                return f"results differ: case {k} by up to {np.max(np.abs(flat - a)):.3g}"
    return ""


def take_rounds(
    workers: Mapping[str, Measurable],
    sides: Mapping[str, SideResult],
    seconds: float,
    lenient: bool = False,
) -> tuple[int, int]:
    """(rounds kept, rounds dropped). A round is a turn of every side; the order rotates. A round in which a side has a
    case without an undisturbed slice is dropped for all; lenient ones take disturbed slices then.
    """
    names = list(workers)
    start = time.monotonic()
    kept = dropped = 0
    while kept < MOST_ROUNDS:
        passed = time.monotonic() - start
        enough = kept >= LEAST_ROUNDS or dropped >= 3 * LEAST_ROUNDS
        if passed >= seconds and (enough or passed >= PATIENCE * seconds > 0):
            break
        turns: dict[str, Turn] = {}
        first = (kept + dropped) % len(names)
        for name in names[first:] + names[:first]:
            turn = workers[name].turn(2 if lenient else ATTEMPTS, lenient)
            sides[name].taken += turn.taken
            sides[name].dropped += turn.dropped
            sides[name].tolerated += turn.tolerated
            turns[name] = turn
        clean = {
            name: tuple(s for s in turn.seconds if s is not None) for name, turn in turns.items()
        }
        if any(len(clean[name]) < len(turns[name].seconds) for name in names):
            dropped += 1
            continue
        kept += 1
        for name in names:
            sides[name].rounds.append(clean[name])
    return kept, dropped


__all__ = [
    "RowResult", "SideResult", "Worker", "WorkerError", "cores_for", "difference", "measure", "take_rounds",
]  # fmt: skip
