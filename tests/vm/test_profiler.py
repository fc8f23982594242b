"""Times by kernel and by instruction."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import InvalidInput
from nimblevm.vm.profiler import Profile

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 8), float32], %steps: int64) -> Tensor[(?n, 8), float32] {
  if (less(%steps, 1i64)) { %x } else { @main(tanh(%x), subtract(%steps, 1i64)) }
}
"""


@pytest.fixture(scope="module")
def exe() -> nvm.Executable:
    return nvm.compile(nvm.relay.parse(TEXT))


def test_kernels_are_counted(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe, profile=True) as vm:
        assert vm.profile().runs == 0
        assert vm.profile().vm_share == 0.0
        for _ in range(3):
            vm.run(np.ones((400, 8), "float32"), 5)
        found = vm.profile()
        assert (found.runs, [row.calls for row in found.kernels]) == (3, [15])
        assert found.instructions == ()
        assert 0 < found.kernel_seconds < found.seconds < 1
        assert 0 < found.vm_share < 1
        assert "3 runs" in str(found)
        assert found.kernels[0].name in str(found)
        vm.reset_profile()
        assert (vm.profile().runs, vm.profile().kernels) == (0, ())


def test_instructions_are_counted(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe, profile="instructions") as vm:
        vm.run(np.ones((3, 8), "float32"), 5)
        found = vm.profile()
    calls = {row.name: row.calls for row in found.instructions}
    assert calls["CallKernel"] == 5
    assert calls["Ret"] == 1
    times = {row.name: row.seconds for row in found.instructions}
    assert times["CallKernel"] >= found.kernel_seconds
    assert sum(times.values()) < found.seconds
    assert "CallKernel" in str(found)


def test_a_run_that_fails_is_counted_too(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe, profile="instructions", limits=nvm.Limits(instructions=40)) as vm:
        with pytest.raises(nvm.NimbleError):
            vm.run(np.ones((3, 8), "float32"), 10**9)
        assert vm.profile().runs == 1


def test_results_do_not_depend_on_it(exe: nvm.Executable) -> None:
    x = np.linspace(-2, 2, 24, dtype="float32").reshape(3, 8)
    results: list[Any] = []
    for profile in (False, True, "instructions"):
        with nvm.VirtualMachine(exe, profile=profile) as vm:
            results.append(vm.run(x, 4).numpy().copy())
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_mistakes(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm:
        with pytest.raises(InvalidInput, match="without a profile"):
            vm.profile()
        with pytest.raises(InvalidInput, match="without a profile"):
            vm.reset_profile()
    with pytest.raises(ValueError, match="profile must be"):
        nvm.VirtualMachine(exe, profile="calls")


# --- details --------------------------------------------------------------------------------------

KINDS = {
    "run": 0,
    "end": 1,
    "enter": 2,
    "tail": 3,
    "leave": 4,
    "kernel": 5,
    "piece": 6,
    "memory": 7,
}

TREE = """#[version = "0.0.5"]
type Tree { Leaf, Node(Tree, Tree) }
def @walk(%t: Tree, %x: Tensor[(4), float32]) -> Tensor[(4), float32] {
  match (%t) { Leaf => exp(%x), Node(%l, %r) => add(@walk(%l, %x), @walk(%r, %x)) }
}
def @main(%t: Tree, %x: Tensor[(4), float32]) -> Tensor[(4), float32] { @walk(%t, %x) }
"""


def kinds(profile: Profile) -> list[int]:
    assert profile.events is not None
    return [int(kind) for kind in profile.events.rows["kind"]]


def test_lines_add_up_to_the_instructions(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe, profile="instructions") as vm:
        vm.run(np.ones((3, 8), "float32"), 5)
        found = vm.profile()
    assert sum(row.calls for row in found.lines) == sum(row.calls for row in found.instructions)
    assert sum(row.seconds for row in found.lines) == pytest.approx(
        sum(row.seconds for row in found.instructions)
    )
    assert {row.function for row in found.lines} == {"main"}
    assert {row.line for row in found.lines if row.source} <= {2, 3}


def test_events_tell_a_run_in_order(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe, profile="events") as vm:
        vm.run(np.ones((400, 8), "float32"), 3)
        profile = vm.profile()
    found = kinds(profile)
    assert profile.events is not None
    assert profile.events.dropped == 0
    assert found.count(KINDS["kernel"]) == 3
    assert found.count(KINDS["enter"]) == found.count(KINDS["leave"]) == 1
    assert found.count(KINDS["tail"]) == 3
    assert (found[0], found[-1]) == (KINDS["run"], KINDS["end"])
    rows = profile.events.rows
    times = [int(r["at"]) for r in rows if r["kind"] not in (KINDS["kernel"], KINDS["piece"])]
    assert times == sorted(times)
    memory = rows[rows["kind"] == KINDS["memory"]]
    assert max(int(r["a"]) for r in memory) >= 400 * 8 * 4
    shapes = [
        profile.events.sizes[int(r["shape"])][1] for r in rows if r["kind"] == KINDS["kernel"]
    ]
    assert all("float32[400, 8]" in row.shapes for row in shapes)


def test_events_of_recursion_are_balanced() -> None:
    made = nvm.compile(nvm.relay.parse(TREE), native=False)
    node, leaf = made.constructor("Node"), made.constructor("Leaf")
    tree = node(node(leaf(), leaf()), leaf())
    with nvm.VirtualMachine(made, profile="events") as vm:
        vm.run(tree, np.ones(4, "float32"))
        profile = vm.profile()
    found = kinds(profile)
    assert found.count(KINDS["enter"]) == found.count(KINDS["leave"])
    assert profile.events is not None
    depths = [int(r["a"]) for r in profile.events.rows if r["kind"] == KINDS["enter"]]
    assert max(depths) >= 3


def test_events_beyond_the_room_are_counted(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm:
        vm.start_profile("events", max_events=10)
        for _ in range(3):
            vm.run(np.ones((2, 8), "float32"), 20)
        profile = vm.profile()
        assert profile.events is not None
        assert len(profile.events.rows) == 10
        assert profile.events.dropped > 100
        assert profile.kernels[0].calls == 60  # sums stay exact
        vm.reset_profile()
        profile = vm.profile()
        assert profile.events is not None
        assert len(profile.events.rows) == profile.events.dropped == 0
        vm.start_profile("events", max_events=0)
        vm.run(np.ones((2, 8), "float32"), 2)
        profile = vm.profile()
        assert profile.events is not None
        assert profile.events.dropped > 0


def test_a_profile_can_be_started_and_stopped(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm:
        vm.start_profile(True)
        vm.run(np.ones((2, 8), "float32"), 2)
        assert vm.profile().runs == 1
        assert vm.profile().events is None
        vm.start_profile(False)
        vm.run(np.ones((2, 8), "float32"), 2)
        with pytest.raises(InvalidInput, match="without a profile"):
            vm.profile()
        with pytest.raises(ValueError, match="level must be"):
            vm.start_profile("calls")
        with pytest.raises(InvalidInput, match="room for"):
            vm.start_profile("events", max_events=2**63)


def test_events_of_a_run_that_fails_end(exe: nvm.Executable) -> None:
    limits = nvm.Limits(instructions=40)
    with nvm.VirtualMachine(exe, profile="events", limits=limits) as vm:
        with pytest.raises(nvm.NimbleError):
            vm.run(np.ones((3, 8), "float32"), 10**9)
        profile = vm.profile()
    assert profile.events is not None
    last = profile.events.rows[-1]
    assert (int(last["kind"]), int(last["a"]) != 0) == (KINDS["end"], True)


def test_pieces_of_parallel_loops_are_events() -> None:
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(?n, 512), float32]) { exp(exp(exp(exp(%x)))) }"""
    made = nvm.compile(nvm.relay.parse(text))
    with nvm.VirtualMachine(made, profile="events", threads=2) as vm:
        vm.run(np.zeros((2000, 512), "float32"))
        profile = vm.profile()
    pieces = kinds(profile).count(KINDS["piece"])
    assert pieces >= 1


def test_many_sizes(exe: nvm.Executable) -> None:
    """More than are told apart: the figures of a kernel stay those of all its calls."""
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(?n), float32]) { exp(%x) }'
    made = nvm.compile(nvm.relay.parse(text), native=False)
    with nvm.VirtualMachine(made, profile=True) as vm:
        for n in range(1, 300):
            vm.run(np.zeros(n, "float32"))
        (kernel,) = vm.profile().kernels
    assert len(kernel.sizes) == kernel.calls == 299
    assert kernel.work.operations == sum(range(1, 300))


def test_the_interpreter_without_a_profile_has_no_trace_of_it() -> None:
    """One place, which only a table of the profiled runs leads to, calls the profile; none calls the log."""
    interp = Path(__file__).parents[2] / "native" / "build" / "src" / "interp.o"
    if shutil.which("objdump") is None or not interp.exists():
        pytest.skip("needs objdump and the objects of the C library")
    done = subprocess.run(
        ["objdump", "--disassemble", "--reloc", interp], capture_output=True, text=True, check=True
    )
    assert "nvm_interpret" in done.stdout
    assert done.stdout.count("nvm_profile") == done.stdout.count("nvm_profile_step") == 1
    assert "nvm_log" not in done.stdout
