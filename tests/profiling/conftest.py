"""Profiles of small programs, and ones made by hand from events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bytecode import serialize as s
from nimblevm.profiling import Machine
from nimblevm.vm.kernel_work import Work
from nimblevm.vm.profiler import EVENT, Events, KernelTime, Places, Profile, Sizes, Time

TREE = """#[version = "0.0.5"]
type Tree { Leaf, Node(Tree, Tree) }
def @walk(%t: Tree, %x: Tensor[(4), float32]) -> Tensor[(4), float32] {
  match (%t) { Leaf => exp(%x), Node(%l, %r) => add(@walk(%l, %x), @walk(%r, %x)) }
}
def @main(%t: Tree, %x: Tensor[(4), float32]) -> Tensor[(4), float32] { @walk(%t, %x) }
"""

Event = tuple[int, int, int, int, int, int]
"""at, a, b, kind, index, shape"""
Make = Callable[..., Profile]


@pytest.fixture(scope="session")
def machine() -> Machine:
    read = {"l2": {1: 60e9, 2: 120e9}, "l3": {1: 20e9, 2: 40e9}, "dram": {1: 8e9, 2: 10e9}}
    return Machine({1: 50e9, 2: 100e9}, read, 1 << 20, 32 << 20)


@pytest.fixture(scope="session")
def tree_profile() -> Profile:
    """Two runs of a recursive program over a tree of five leaves."""
    exe = nvm.compile(nvm.relay.parse(TREE, source_name="tree.rly"), native=False)
    node, leaf = exe.constructor("Node"), exe.constructor("Leaf")
    tree = node(node(node(leaf(), leaf()), leaf()), node(leaf(), leaf()))
    with nvm.VirtualMachine(exe, profile="events") as vm:
        for _ in range(2):
            vm.run(tree, np.ones(4, "float32"))
        return vm.profile()


def _function(name: str) -> s.FunctionRecord:
    return s.FunctionRecord(name, (), 0, 0, 0, [0] * 10, spans=(s.SpanEntry(0, 0, 7, 1),))


@pytest.fixture
def make() -> Make:
    """make(events, functions=..., kernel=..., dropped=...): a profile whose cycles are nanoseconds."""

    def profile(
        events: Sequence[Event] = (),
        functions: Sequence[str] = ("main", "f", "g"),
        kernel: str = "k",
        source: str = "m.rly",
        dropped: int = 0,
        **others: object,
    ) -> Profile:
        rows = np.array([(*event, 0) for event in events], dtype=EVENT)
        places = Places(s.ProgramRecord(tuple(map(_function, functions)), sources=(source,)))
        sizes = Sizes((("?n", 3),), ("float32[3]",), 1, 1e-6, Work(3.0, 12.0, 12.0))
        found = KernelTime(kernel, 2, 3e-6, 0, Work(6.0, 24.0, 24.0), (sizes,))
        made = {
            "runs": 1,
            "seconds": 1e-5,
            "kernels": (found,),
            "instructions": (Time("CallKernel", 2, 4e-6),),
            "events": Events(rows, dropped, 1e9, ((0, sizes),), places),
        }
        return Profile(**(made | others))  # type: ignore[arg-type]

    return profile
