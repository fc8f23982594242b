"""Memory of long use from Python: flat over runs of random sizes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import lstm, treelstm

STATM = Path("/proc/self/statm")
PAGE = 4096
SLACK = 2 << 20
HEADER = '#[version = "0.0.5"]\n'
# Cons cells, closures that capture, a ref that closes a cycle, tensors of the size that comes in.
VALUES = f"""{HEADER}
type List[A] {{ Nil, Cons(A, List[A]) }}
type Thunk {{ Thunk(fn () -> int64), Empty }}
def @build(%n: int64, %x: Tensor[(?m), float32], %list: List[Tensor[(?), float32]]) -> List[Tensor[(?), float32]] {{
  if (less(0i64, %n)) {{ @build(%n - 1i64, %x, Cons(tanh(%x), %list)) }} else {{ %list }}
}}
def @length(%list: List[Tensor[(?), float32]], %sum: int64) -> int64 {{
  match (%list) {{ Nil => {{ %sum }}, Cons(_, %rest) => {{ @length(%rest, %sum + 1i64) }} }}
}}
def @main(%n: int64, %x: Tensor[(?m), float32]) -> (int64, Tensor[(?), float32], List[Tensor[(?), float32]]) {{
  let %list = @build(%n, %x, Nil);
  let %cell = ref(Empty);
  let %again = fn () -> int64 {{ let %kept = ref_read(%cell); @length(%list, 0i64) }};
  let %u = ref_write(%cell, Thunk(%again));
  let %grow = fn (%y: Tensor[(?), float32]) -> Tensor[(?), float32] {{ concatenate((%x, %y)) }};
  (%again(), %grow(%grow(%x)), %list)
}}
"""


def resident() -> int:
    gc.collect()
    return int(STATM.read_text().split()[1]) * PAGE


def values_run() -> Callable[[np.random.Generator], object]:
    vm = nvm.VirtualMachine(nvm.compile(nvm.relay.parse(VALUES)))

    def run(rng: np.random.Generator) -> object:
        count, size = int(rng.integers(0, 20)), int(rng.integers(1, 400))
        found, grown, items = vm.run(count, rng.random(size, np.float32))
        assert (int(found), grown.shape) == (count, (3 * size,))
        return items

    return run


def lstm_run() -> Callable[[np.random.Generator], object]:
    vm = compiled(lstm)
    return lambda rng: vm.run(rng.random((int(rng.integers(1, 12)), 12), np.float32))


def treelstm_run() -> Callable[[np.random.Generator], object]:
    vm = compiled(treelstm)
    leaf, node = (vm.executable.constructor(name) for name in ("Leaf", "Node"))

    def run(rng: np.random.Generator) -> object:
        tree = treelstm.random_tree(int(rng.integers(1, 8)), rng, 12)
        return vm.run(treelstm.fold(tree, leaf, node))

    return run


def compiled(model: Any) -> nvm.VirtualMachine:
    exe = nvm.compile(nvm.relay.parse(model.text(12, 16)), params=model.params(12, 16))
    return nvm.VirtualMachine(exe)


@pytest.mark.slow
@pytest.mark.skipif(not STATM.exists(), reason="reads /proc/self/statm")
@pytest.mark.parametrize("make", [values_run, lstm_run, treelstm_run], ids=lambda f: f.__name__)
def test_resident_memory_is_flat(make: Callable[[], Callable[..., object]]) -> None:
    """After 10,000 runs of random sizes at most 2 MiB more than after 1,000."""
    run, rng = make(), np.random.default_rng(5)
    for _ in range(1000):
        run(rng)
    before = resident()
    for _ in range(9000):
        run(rng)
    assert resident() - before <= SLACK
