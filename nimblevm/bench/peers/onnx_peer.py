"""What the peers that read ONNX models share: the choice between ways to run a model, and a decoder's loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.bench.cases import Array, Case
from nimblevm.bench.peers import Parts, Prepared, whole
from nimblevm.bench.peers.choose import Run, fastest
from nimblevm.bench.peers.onnx_models import arrays, models
from nimblevm.bench.rows import Row

# (ids, caches) -> the next id (1) and caches; a runtime keeps caches in a form of its own.
Step = Callable[[Array, Any], tuple[Array, Any]]


@dataclass(frozen=True, slots=True)
class Runtime:
    """How to compile a model (`session`) and to run it.

    options   for the report; what is chosen stands behind it
    contrib   whether it has the operators of com.microsoft
    runs      by name, "" for the plain one: ways to pass tensors
    decoder   a step with the caches before the first token, and its name
    """

    options: str
    contrib: bool
    session: Callable[[bytes], Any]
    runs: Callable[[Any], Mapping[str, Run]]
    decoder: Callable[[Any, Row], tuple[str, Step, Any]]

    def prepare(self, row: Row) -> Prepared:
        """The fastest of the ways to write the model and to pass tensors, for each program."""
        start = time.perf_counter()
        chosen: dict[str, tuple[str, Run]] = {}
        decoders: dict[str, Parts] = {}
        for program, ways in models(row, contrib=self.contrib).items():
            candidates: dict[str, Run] = {}
            for way, model in ways.items():
                session = self.session(model)
                if row.kind == "gpt2":
                    how, step, caches = self.decoder(session, row)
                    parts = decoders[_label(way, how)] = _greedy(step, caches)
                    candidates[_label(way, how)] = whole(parts)
                else:
                    candidates |= {_label(way, how): run for how, run in self.runs(session).items()}
            values = [arrays(row, case) for case in row.cases() if case.program == program]
            if row.kind == "gpt2":
                values = [(values[0][0], 4)]  # a few tokens tell which is fastest
            chosen[program] = fastest(candidates, values[:4])
        seconds = time.perf_counter() - start

        def load(case: Case) -> Any:
            return chosen[case.program][1], arrays(row, case)

        options = ", ".join([self.options, *dict.fromkeys(way for way, _ in chosen.values())])
        if not decoders:
            return Prepared(_run, options, seconds, load)
        decoder = decoders[chosen["main"][0]]
        return Prepared(_run, options, seconds, load, parts=lambda loaded: decoder(loaded[1]))


def _label(way: str, how: str) -> str:
    return f"{way}, {how}" if how else way


def _greedy(step: Step, caches: Any) -> Parts:
    """A loop in Python around a step, which is a part."""

    def run(inputs: Any) -> Generator[None, None, Sequence[Any]]:
        prompt, steps = inputs
        ids, kept, out = prompt[None].astype(np.int64), caches, []
        for _ in range(int(steps)):
            found, kept = step(ids, kept)
            ids = found[None]
            out.append(int(ids[0, 0]))
            yield
        return [np.array(out, np.int32)]

    return run


def _run(loaded: Any) -> Sequence[Any]:
    run, inputs = loaded
    found: Sequence[Any] = run(inputs)
    return found


def no_caches(row: Row) -> Array:
    """One cache (1, heads, n, d) before the first token."""
    config = row.sizes["config"]
    return np.zeros((1, config.heads, 0, config.hidden // config.heads), np.float32)


__all__ = ["Runtime", "Step", "no_caches"]
