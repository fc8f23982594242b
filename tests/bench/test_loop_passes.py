"""What each pass on loops and products gives: us a step or word with it left out, the sides taking turns, least of short runs.

.venv/bin/python -m pytest -m bench -s tests/bench/test_loop_passes.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import gru, lstm, treelstm

pytestmark = pytest.mark.bench
PASSES = (
    "split_inputs",
    "split_loops",
    "hoist_projection",
    "batch_leaves",
    "batch_levels",
    "split_products",
)
STEPS, WORDS, ROUNDS = 26, 21, 40


def sequence(model: Any, *sizes: int) -> Callable[[tuple[str, ...]], Callable[[], object]]:
    """A maker of runs over STEPS rows, for a set of passes that are off."""
    params = model.params(*sizes)
    x = np.random.default_rng(1).standard_normal((STEPS, sizes[0])).astype(np.float32)

    def make(off: tuple[str, ...]) -> Callable[[], object]:
        vm = nvm.VirtualMachine(
            nvm.compile(nvm.relay.parse(model.text(*sizes)), params=params, passes_off=off)
        )
        return lambda: vm.run(x)

    return make


def tree(*sizes: int) -> Callable[[tuple[str, ...]], Callable[[], object]]:
    """A maker of runs over a tree of WORDS words."""
    params = treelstm.params(*sizes)
    drawn = treelstm.random_tree(WORDS, np.random.default_rng(2), sizes[0])

    def make(off: tuple[str, ...]) -> Callable[[], object]:
        exe = nvm.compile(nvm.relay.parse(treelstm.text(*sizes)), params=params, passes_off=off)
        vm = nvm.VirtualMachine(exe)
        value = treelstm.fold(drawn, exe.constructor("Leaf"), exe.constructor("Node"))
        return lambda: vm.run(value)

    return make


CASES: dict[str, tuple[Callable[[tuple[str, ...]], Callable[[], object]], int, tuple[str, ...]]] = {
    "LSTM 300->512": (
        sequence(lstm, 300, 512), STEPS, ("split_inputs", "hoist_projection", "split_products")),
    "LSTM 300->512, 2 layers": (
        sequence(lstm, 300, 512, 2), STEPS, ("split_inputs", "split_loops", "hoist_projection", "split_products")),
    "GRU 300->512": (sequence(gru, 300, 512), STEPS, ("hoist_projection", "split_products")),
    "TreeLSTM 300->150": (tree(300, 150), WORDS, ("split_inputs", "batch_levels", "split_products")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_a_pass_gives(name: str, request: pytest.FixtureRequest) -> None:
    make, units, passes = CASES[name]
    sides = {"all on": (), **{f"no {p}": (p,) for p in passes}, "all off": PASSES}
    quick = request.config.getoption("benchmark_disable")
    runs = {side: make(off) for side, off in sides.items()}
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(1 if quick else ROUNDS):
        for side, run in runs.items():
            start = time.perf_counter()
            run()
            best[side] = min(best[side], time.perf_counter() - start)
    row = ", ".join(f"{side} {seconds / units * 1e6:.1f}" for side, seconds in best.items())
    print(f"\n{name}, us: {row}")
