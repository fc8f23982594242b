"""Turns, dropped slices and compared results, with workers that only pretend."""

from __future__ import annotations

import gc
import io
import pickle
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from nimblevm.bench import worker
from nimblevm.bench.peers import Prepared, whole
from nimblevm.bench.rows import ROWS
from nimblevm.bench.session import SideResult, WorkerError, cores_for, difference, take_rounds
from nimblevm.bench.worker import Side, Turn


@dataclass
class Fake:
    """Gives the same times; `broken`: the turns in which the second case is disturbed."""

    name: str
    order: list[str]
    broken: tuple[int, ...] = ()
    turns: int = field(default=0)

    def turn(self, attempts: int, lenient: bool) -> Turn:
        self.order.append(self.name)
        self.turns += 1
        second = None if self.turns in self.broken else 2.0
        return Turn((1.0, second), attempts, attempts - 1)


def test_a_round_with_a_disturbed_side_is_dropped_for_all() -> None:
    order: list[str] = []
    workers = {"a": Fake("a", order), "b": Fake("b", order, broken=(2, 5))}
    sides = {name: SideResult(name) for name in workers}
    kept, dropped = take_rounds(workers, sides, 0)
    assert (kept, dropped) == (8, 2)
    assert len(sides["a"].rounds) == len(sides["b"].rounds) == 8
    assert sides["a"].taken == 10 * 6
    assert sides["a"].dropped == 10 * 5
    assert order[:6] == ["a", "b", "b", "a", "a", "b"]  # who goes first alternates


def test_a_machine_without_a_quiet_moment_ends_the_row() -> None:
    workers = {"a": Fake("a", [], broken=tuple(range(1000)))}
    assert take_rounds(workers, {"a": SideResult("a")}, 0) == (0, 24)


def test_slices_with_context_switches_are_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = iter([1, 2, 0] + [3] * 6)
    monkeypatch.setattr(worker, "_slice", lambda run, value, repeats: (0.25, next(switches), 1.0))
    monkeypatch.setattr(worker, "WARM", 0.0)
    side = Side(Prepared(lambda value: [value], "none"), [ROWS["lstm-tiny"].cases()[0]] * 2)
    assert side.turn(6) == Turn((0.25, None), 9, 8)


def decode(value: Any) -> Generator[None, None, list[Any]]:
    yield
    yield
    return [value]


IN_PARTS = Prepared(whole(decode), "none", parts=decode)


def test_a_call_in_parts_is_one_call() -> None:
    assert IN_PARTS.run("x") == ["x"]


def test_parts_count_where_threads_waited_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """(waited, seconds) of the parts in each pass; the faster part does not count if its threads waited longer."""
    passes = iter([
        [(0.0, 1.0), (0.1, 0.5)], [(0.2, 0.8), (0.0, 1.5)],
        *[[(0.1, 1.0), (0.1, 1.0)]] * 3,
        *[[(0.1, 1.0), (0.1, 1.0)]] * 2,
    ])  # fmt: skip
    monkeypatch.setattr(worker, "_pass", lambda parts, value: next(passes))
    monkeypatch.setattr(worker, "WARM", 0.0)
    side = Side(IN_PARTS, ROWS["lstm-tiny"].cases()[:1])
    assert side.turn(3) == Turn((2.5,), 2, 1)
    assert side.turn(3) == Turn((None,), 3, 3)
    assert side.turn(2, lenient=True) == Turn((2.0,), 2, 1)


def test_each_part_is_timed() -> None:
    times = worker._pass(decode, 0)
    assert len(times) == 3
    assert all(waited >= 0 and seconds > 0 for waited, seconds in times)
    assert gc.isenabled()


def test_short_calls_are_repeated_within_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SLICE", 0.01)
    calls: list[int] = []

    def call(value: object) -> tuple[()]:
        calls.append(1)
        return ()

    side = Side(Prepared(call, "none"), ROWS["lstm-tiny"].cases()[:1])
    side.warm(0.0)
    calls.clear()
    found = side.turn(50)
    assert len(calls) > 100
    assert found.seconds[0] is None or found.seconds[0] < 1e-3


def test_results_are_compared() -> None:
    row = ROWS["lstm-tiny"]
    good = [np.ones((1, 4), np.float32)]
    assert difference(row, [good], [good]) == ""
    assert difference(row, [good], [[np.ones(4, np.float32)]]) == ""  # peers may drop axes of one
    assert "by up to" in difference(row, [good], [[good[0] + 0.1]])
    assert "by up to" in difference(row, [good], [[good[0] * np.nan]])
    assert "outputs" in difference(row, [good], [[]])
    assert "shape" in difference(row, [good], [[np.ones(3, np.float32)]])
    loose = replace(row, tolerance=(0.2, 0.0))
    assert difference(loose, [good], [[good[0] + 0.1]]) == ""


def ask(*requests: tuple[str, tuple[Any, ...]]) -> list[Any]:
    """Answers of a worker to these commands."""
    sent, answered = io.BytesIO(b"".join(map(pickle.dumps, requests))), io.BytesIO()
    worker.serve(sent, answered)
    answered.seek(0)
    return [pickle.load(answered) for _ in requests]


def test_a_worker_prepares_and_answers() -> None:
    told, outputs = ask(("prepare", ("numpy", "lstm-tiny", 1, True)), ("outputs", ()))
    assert told[0] == "ok"
    assert told[1]["version"] == np.__version__
    assert [len(case) for case in outputs[1]] == [1, 1, 1]


def test_a_worker_reports_errors_and_works_on() -> None:
    early, unknown, fine = ask(
        ("turn", (3,)), ("prepare", ("numpy", "bert", 1, True)), ("prepare", ("numpy", "lstm-tiny", 1, True))
    )  # fmt: skip
    assert early == ("error", "RuntimeError", "prepare comes first")
    assert unknown[:2] == ("error", "Unsupported")
    assert fine[0] == "ok"


def test_threads_need_cores() -> None:
    assert len(cores_for(1)) == 1
    with pytest.raises(ValueError, match="100000 threads"):
        cores_for(100000)
    assert issubclass(WorkerError, Exception)


def test_long_slices_may_have_switches_that_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = iter([(0.5, 3, 0.01), (0.5, 3, 0.0001), (0.01, 1, 0.0), (0.01, 0, 0.0)])
    monkeypatch.setattr(worker, "_slice", lambda run, value, repeats: next(slices))
    monkeypatch.setattr(worker, "WARM", 0.0)
    side = Side(Prepared(lambda value: [value], "none"), [ROWS["lstm-tiny"].cases()[0]] * 2)
    assert side.turn(6) == Turn((0.5, 0.01), 4, 2, 1)


def test_a_quick_look_takes_disturbed_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = iter([(0.5, 3, 0.1), (0.4, 3, 0.1), (0.3, 0, 0.0)])
    monkeypatch.setattr(worker, "_slice", lambda run, value, repeats: next(slices))
    monkeypatch.setattr(worker, "WARM", 0.0)
    side = Side(Prepared(lambda value: [value], "none"), [ROWS["lstm-tiny"].cases()[0]] * 2)
    assert side.turn(2, lenient=True) == Turn((0.4, 0.3), 3, 2)


def test_long_calls_need_no_warming(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(worker, "_slice", lambda run, value, repeats: (float(repeats), 0, 0.0))
    monkeypatch.setattr(worker, "LONG_CALL", 1e-9)
    monkeypatch.setattr(worker, "LONG", 1e-9)
    prepared = Prepared(lambda value: [calls.append(1)], "none")  # type: ignore[func-returns-value]
    side = Side(prepared, ROWS["lstm-tiny"].cases()[:1])
    side.warm(0.0)
    calls.clear()
    side.turn(3)
    assert not calls
