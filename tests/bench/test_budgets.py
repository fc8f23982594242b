"""The budgets of docs/performance.md, each beside the same work in plain C. Measured and printed; not asserted, machines differ."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.executable import Executable
from nimblevm.bytecode.serialize import serialize
from tests.bench.measure import nanoseconds, record
from tests.bench.reference import library

pytestmark = pytest.mark.bench
TURNS = 20_000
HEADER = '#[version = "0.0.5"]\n'


@dataclass(frozen=True)
class Case:
    """A function of budgets.nvmasm. ns a unit = (its time - time of `minus`) / (turns * units)."""

    name: str
    function: str
    reference: str
    budget: float
    units: int = 1
    minus: str = ""


CASES = [
    Case("plain instruction", "plain", "", 3, units=16, minus="base"),
    Case("loop of four instructions, a turn", "base", "loop", 12),
    Case("call and return", "calls", "calls", 15, minus="base"),
    Case("call chain, a level (call, return, 4 plain)", "chain", "chain", 15 + 4 * 3),
    Case("tail call and 3 plain", "tail", "loop", 8 + 3 * 3),
    Case("ADT allocation and release", "adts", "allocations", 30, minus="base"),
    Case("closure allocation and release", "closures", "allocations", 30, minus="base"),
]


@cache
def machine() -> nvm.VirtualMachine:
    text = Path(__file__).with_name("budgets.nvmasm").read_text()
    return nvm.VirtualMachine(Executable.from_bytes(serialize(assemble(text))))


def fastest(run: Callable[[], object]) -> float:
    """Minimum in ns of 100 runs."""
    best = float("inf")
    for _ in range(100):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best * 1e9


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.function)
def test_vm(benchmark: Any, case: Case) -> None:
    vm = machine()
    assert int(vm.invoke(case.function, TURNS)) in (TURNS, 0)
    base = fastest(lambda: vm.invoke(case.minus or "empty", TURNS))
    took = nanoseconds(benchmark, lambda: vm.invoke(case.function, TURNS))
    record(benchmark, case.name, "vm", (took - base) / (TURNS * case.units), case.budget)


@pytest.mark.parametrize("case", [c for c in CASES if c.reference], ids=lambda c: c.function)
def test_plain_c(benchmark: Any, case: Case) -> None:
    run = getattr(library(), f"ref_{case.reference}")
    took = nanoseconds(benchmark, lambda: run(TURNS))
    record(benchmark, case.name, "c", took / TURNS, None)


# --- from Relay text ---

COUNTED_LOOP = """
def @loop(%i: int64, %n: int64, %sum: int64) -> int64 {
  if (less(%i, %n)) { @loop(%i + 1i64, %n, %sum + %i) } else { %sum }
}
def @main(%n: int64) -> int64 { @loop(0i64, %n, 0i64) }
"""
# Reductions are not fused with each other: twenty kernels a turn, each with an output of its own.
CHAIN = 20
KERNELS = f"""
def @loop(%n: int64, %v0: Tensor[(1), float32]) -> Tensor[(1), float32] {{
  if (less(0i64, %n)) {{
    {" ".join(f"let %v{i + 1} = max(%v{i}, axis=[0], keepdims=True);" for i in range(CHAIN))}
    @loop(%n - 1i64, %v{CHAIN})
  }} else {{ %v0 }}
}}
def @main(%n: int64, %x: Tensor[(1), float32]) {{ @loop(%n, %x) }}
"""


def compiled(text: str, **options: Any) -> nvm.VirtualMachine:
    return nvm.VirtualMachine(nvm.compile(nvm.relay.parse(HEADER + text), **options))


LOOP_NAME = "counted loop by tail recursion, a turn"


def test_counted_loop(benchmark: Any) -> None:
    vm = compiled(COUNTED_LOOP)
    took = nanoseconds(benchmark, lambda: vm.run(TURNS))
    record(benchmark, LOOP_NAME, "vm", took / TURNS, 60)


def test_counted_loop_in_c(benchmark: Any) -> None:
    run = library().ref_sum
    took = nanoseconds(benchmark, lambda: run(TURNS))
    record(benchmark, LOOP_NAME, "c", took / TURNS, None)


@pytest.mark.parametrize("planned", [True, False], ids=["planned", "pool"])
def test_kernel_to_kernel(benchmark: Any, planned: bool) -> None:
    """With storage planned outputs reuse two blocks; without each comes from the pool."""
    name = f"kernel of 1 element, {'planned' if planned else 'pool'} output"
    vm = compiled(KERNELS, passes_off=() if planned else ("plan_memory",))
    turns, x = TURNS // CHAIN, np.ones(1, np.float32)
    took = nanoseconds(benchmark, lambda: vm.run(turns, x))
    record(benchmark, name, "vm", took / (turns * CHAIN), 60)


@pytest.mark.parametrize("planned", [True, False], ids=["planned", "pool"])
def test_kernel_to_kernel_in_c(benchmark: Any, planned: bool) -> None:
    name = f"kernel of 1 element, {'planned' if planned else 'pool'} output"
    run = library().ref_kernels
    took = nanoseconds(benchmark, lambda: run(TURNS))
    record(benchmark, name, "c", took / TURNS, None)


# --- from Python ---

CALLS = {
    "Python call: int in, int out": ("def @main(%n: int64) -> int64 { %n }", 0, 10_000.0),
    "Python call: 1 tensor in, 1 out": (
        "def @main(%x: Tensor[(?n), float32]) { add(%x, 1f) }", 1, 10_000.0,
    ),
    "Python call: 3 tensors in, 2 out": (
        "def @main(%x: Tensor[(?n), float32], %y: Tensor[(?n), float32], %z: Tensor[(?n), float32])"
        " { (add(%x, %y), add(%y, %z)) }", 3, 10_000.0,
    ),
}  # fmt: skip
REPEAT = 20


@pytest.mark.parametrize("name", CALLS)
def test_call_from_python(benchmark: Any, name: str) -> None:
    text, tensors, budget = CALLS[name]
    vm = compiled(text)
    args: tuple[Any, ...] = tuple(np.ones(4, np.float32) for _ in range(tensors)) or (7,)

    def calls() -> None:
        for _ in range(REPEAT):
            vm.run(*args)

    record(benchmark, name, "vm", nanoseconds(benchmark, calls) / REPEAT, budget)


def test_call_c_from_python(benchmark: Any) -> None:
    """The same empty call through ctypes."""
    empty = library().ref_empty

    def calls() -> None:
        for _ in range(REPEAT):
            empty(7)

    took = nanoseconds(benchmark, calls) / REPEAT
    record(benchmark, "Python call: int in, int out", "c", took, None)
