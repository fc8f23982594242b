"""GRU, CharRNN, Child-Sum TreeLSTM, two-layer LSTM, seq2seq: compiled = numpy on 20 random sizes, saved, native off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import charrnn, childsum, gru, lstm, seq2seq

SIZES = {"inputs": 12, "hidden": 16}
Case = tuple[
    str, dict[str, Any], Callable[[np.random.Generator], tuple[Any, ...]], Callable[..., Any]
]


def sequence(rng: np.random.Generator) -> tuple[Any, ...]:
    return (rng.standard_normal((int(rng.integers(0, 40)), SIZES["inputs"])).astype(np.float32),)


CASES: dict[str, Case] = {
    "gru": (gru.text(**SIZES), gru.params(**SIZES), sequence, gru.reference),
    "lstm, 2 layers": (
        lstm.text(**SIZES, layers=2),
        lstm.params(**SIZES, layers=2),
        lambda rng: (sequence(rng)[0][:30],) if rng.integers(2) else sequence(rng),
        lstm.reference,
    ),
    "charrnn": (
        charrnn.text(20, 16),
        charrnn.params(20, 16),
        lambda rng: (
            rng.random(int(rng.integers(0, 60))).astype(np.float32),
            int(rng.integers(20)),
        ),
        charrnn.reference,
    ),
    "seq2seq": (
        seq2seq.text(30, 16),
        seq2seq.params(30, 16),
        lambda rng: (rng.integers(0, 30, int(rng.integers(0, 20))).astype(np.int32), 25),
        seq2seq.reference,
    ),
    "childsum": (
        childsum.text(**SIZES),
        childsum.params(**SIZES),
        lambda rng: (childsum.random_tree(int(rng.integers(1, 40)), rng, SIZES["inputs"]),),
        childsum.reference,
    ),
}


@pytest.mark.parametrize("turns", [5, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_random_sizes(name: str, turns: int) -> None:
    text, params, draw, reference = CASES[name]
    exe = nvm.compile(nvm.relay.parse(text, source_name=f"{name}.rly"), params=params)
    blob = exe.to_bytes()
    rng = np.random.default_rng(5)
    machines = [nvm.VirtualMachine(e) for e in (exe, nvm.load(blob), nvm.load(blob, native=False))]
    for _ in range(turns):
        args = draw(rng)
        want = reference(*args, **params)
        for vm in machines:
            given = [
                childsum.to_adt(a, vm.executable.constructor) if isinstance(a, childsum.Tree) else a
                for a in args
            ]
            compare(vm.run(*given), want)
    for vm in machines:
        vm.close()


def compare(got: Any, want: Any) -> None:
    if isinstance(want, tuple):
        for have, expected in zip(got, want, strict=True):
            compare(have, expected)
        return
    array = got.numpy()
    assert (array.dtype, array.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(array, want, rtol=1e-4, atol=1e-6)
