"""GPT-2 blocks with a growing cache: = numpy on 20 random sizes, saved, native off; 4,096 steps copy linearly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import gpt2

RTOL, ATOL = 1e-4, 1e-5
STEPS = 4096
# One head: attention writes 8 bytes a token and step, a copy of the cache would write 512.
LONG = replace(
    gpt2.SMALL, hidden=64, heads=1, layers=1, inner=64, vocabulary=40, context=STEPS + 10
)


def machines(config: gpt2.Config) -> list[nvm.VirtualMachine]:
    exe = nvm.compile(gpt2.module(gpt2.params(config), config))
    blob = exe.to_bytes()
    return [nvm.VirtualMachine(e) for e in (exe, nvm.load(blob), nvm.load(blob, native=False))]


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)])
def small(request: pytest.FixtureRequest) -> Iterator[nvm.VirtualMachine]:
    """Without native code and with it."""
    exe = nvm.compile(gpt2.module(gpt2.params()), native=request.param)
    with nvm.VirtualMachine(exe) as vm:
        yield vm


def close(got: Any, want: Any) -> None:
    if isinstance(want, tuple):
        for have, expected in zip(got, want, strict=True):
            close(have, expected)
        return
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got.numpy(), want, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize(
    ("gelu", "turns"),
    [("tanh", 5), *(pytest.param(g, 20, marks=pytest.mark.slow) for g in ("tanh", "erf"))],
)
def test_random_sizes(gelu: str, turns: int) -> None:
    """Prompts, parts of prompts and single tokens behind caches of any length, given away or kept."""
    config = replace(gpt2.SMALL, gelu=gelu)
    weights = gpt2.params(config)
    rng = np.random.default_rng(3)
    vms = machines(config)
    for _ in range(turns):
        ids = rng.integers(0, config.vocabulary, int(rng.integers(1, 40))).astype(np.int32)
        cuts = sorted({*map(int, rng.integers(1, len(ids) + 1, 3)), len(ids)})
        wants = [gpt2.reference(ids[:cut], weights, config) for cut in cuts]
        for vm in vms:
            state: Any = gpt2.empty_state(config)
            for start, cut, want in zip((0, *cuts), cuts, wants, strict=False):
                given = nvm.move(state) if rng.integers(2) else state
                *found, state = vm.run(ids[start:cut], given)
                close((*found, state), want)
    for vm in vms:
        vm.close()


@pytest.mark.parametrize("length", [1, 2, 9, 30])
def test_generate_takes_the_tokens_that_steps_take(small: nvm.VirtualMachine, length: int) -> None:
    weights = gpt2.params()
    ids = np.random.default_rng(length).integers(0, 60, length).astype(np.int32)
    tokens, state = small.invoke("generate", ids, 20)
    token, logits, own = small.run(ids, gpt2.empty_state())
    for position in range(20):
        seen = np.concatenate((ids, tokens.numpy()[:position]))
        want, want_logits, _ = gpt2.reference(seen, weights)
        np.testing.assert_allclose(logits, want_logits, rtol=RTOL, atol=ATOL)
        assert want[0] == token.numpy()[0] == tokens.numpy()[position]
        if position < 19:
            token, logits, own = small.run(token, nvm.move(own))
    for mine, theirs in zip(own, state, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_the_weights_may_be_arguments() -> None:
    weights = gpt2.params()
    exe = nvm.compile(nvm.relay.parse(gpt2.text()))
    ids = np.array([3, 1, 4], np.int32)
    with nvm.VirtualMachine(exe) as vm:
        close(vm.run(ids, gpt2.empty_state(), **weights), gpt2.reference(ids, weights))


def test_what_is_out_of_range_is_refused(small: nvm.VirtualMachine) -> None:
    vm, state = small, gpt2.empty_state()
    for ids in ([60], [-1], [0] * 65):
        with pytest.raises(nvm.errors.IndexOutOfRange):
            vm.run(np.array(ids, np.int32), state)
    with pytest.raises(nvm.errors.ShapeMismatch, match="must not be empty"):
        vm.run(np.zeros(0, np.int32), state)
    *_, state = vm.run(np.zeros(64, np.int32), state)
    with pytest.raises(nvm.errors.IndexOutOfRange):
        vm.run(np.zeros(1, np.int32), nvm.move(state))
    assert state[0][0].shape == (64, 16)


# --- bytes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_vm() -> Iterator[nvm.VirtualMachine]:
    with nvm.VirtualMachine(nvm.compile(gpt2.module(gpt2.params(LONG), LONG))) as vm:
        yield vm


def check_bytes(before: dict[str, int], after: dict[str, int], steps: int) -> None:
    """Copies are linear in the steps; what kernels write beyond that is attention's: a score, its softmax and what the
    mask takes, a token and step.
    """
    copied, written = (after[k] - before[k] for k in ("copied_bytes", "written_bytes"))
    cache = 2 * 4 * LONG.hidden * steps
    assert copied <= 6 * cache
    assert written <= 5000 * steps + 16 * steps * (steps + 1) // 2


@pytest.mark.slow
def test_a_loop_of_4096_steps_copies_linearly(long_vm: nvm.VirtualMachine) -> None:
    for steps in (512, STEPS):
        before = long_vm.stats()
        tokens, state = long_vm.invoke("generate", np.array([1, 2, 3], np.int32), steps)
        check_bytes(before, long_vm.stats(), steps)
        assert tokens.shape == (steps,)
        assert state[0][0].shape == (steps + 2, LONG.hidden)


@pytest.mark.slow
def test_4096_steps_with_moved_states_copy_linearly(long_vm: nvm.VirtualMachine) -> None:
    before = long_vm.stats()
    token, _, state = long_vm.run(np.array([1, 2, 3], np.int32), gpt2.empty_state(LONG))
    found, instructions = [token], set()
    for step in range(1, STEPS):
        start = long_vm.stats()["instructions"] if step % 64 == 0 else 0
        token, _, state = long_vm.run(token, nvm.move(state))
        found.append(token)
        if start:
            instructions.add(long_vm.stats()["instructions"] - start)
    check_bytes(before, long_vm.stats(), STEPS)
    assert len(instructions) == 1  # no step does more than another but in its kernels
    tokens, _ = long_vm.invoke("generate", np.array([1, 2, 3], np.int32), STEPS)
    np.testing.assert_array_equal(tokens, np.concatenate([t.numpy() for t in found]))
