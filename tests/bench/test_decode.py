"""What a decoder's step costs besides attention must not grow with its cache: ns a step, by the VM's own profile.

GPT-2 small's layers: their weights come from memory at every step. Those of a model that fits the last-level cache are
pushed out of it by a cache that grows, which is no work of the VM.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import gpt2
from tests.bench.measure import nanoseconds, record

pytestmark = pytest.mark.bench
CONFIG = gpt2.Config(vocabulary=2000, context=1600)
ROUNDS = 60


@pytest.fixture(scope="module")
def exe() -> nvm.Executable:
    return nvm.compile(gpt2.module(gpt2.params(CONFIG), CONFIG))


@pytest.mark.parametrize("tokens", [16, 256, 1024])
def test_a_step(benchmark: Any, exe: nvm.Executable, tokens: int) -> None:
    vm = nvm.VirtualMachine(exe, profile=True)
    prompt = np.arange(tokens, dtype=np.int32) % CONFIG.vocabulary
    token, _, state = vm.run(prompt, gpt2.empty_state(CONFIG))
    rest: list[float] = []

    def step() -> None:
        nonlocal token, state
        vm.reset_profile()
        token, _, state = vm.run(token, nvm.move(state))
        profile = vm.profile()
        attention = sum(k.seconds for k in profile.kernels if "einsum" in k.name)
        rest.append(1e9 * (profile.seconds - attention))

    whole = nanoseconds(benchmark, step, ROUNDS)
    name = f"GPT-2 small behind {tokens} tokens, a step"
    record(benchmark, name, "vm", whole, None)
    record(benchmark, f"{name} less attention", "vm", min(rest), None)
