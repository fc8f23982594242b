"""Limits, cancel, Ctrl-C, a busy VM: a typed error each, after which the VM works on. Cycles, handles, threads."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import (
    Cancelled,
    Closed,
    FrameLimit,
    InstructionLimit,
    InvalidInput,
    LimitExceeded,
    MemoryLimit,
    ObjectLimit,
    TimeLimit,
    VMBusy,
)

TEXT = """#[version = "0.0.5"]
type List { Cons(int64, List), Nil }
type Thunk { Thunk(fn () -> int64), Empty }
def @forever(%i: int64) -> int64 { if (%i < 0i64) { %i } else { @forever(%i + 1i64) } }
def @spin() -> int64 { @forever(0i64) }
def @count(%n: int64) -> int64 {
  let %loop = fn (%i: int64) -> int64 { if (%i < %n) { %loop(%i + 1i64) } else { %i } }; %loop(0i64)
}
def @deep(%n: int64) -> int64 { if (%n < 1i64) { 0i64 } else { @deep(%n - 1i64) + 1i64 } }
def @build(%n: int64, %l: List) -> List { if (%n < 1i64) { %l } else { @build(%n - 1i64, Cons(%n, %l)) } }
def @length(%l: List, %n: int64) -> int64 { match (%l) { Nil => %n, Cons(_, %t) => @length(%t, %n + 1i64) } }
def @objects(%n: int64) -> int64 { @length(@build(%n, Nil), 0i64) }
def @product(%x: Tensor[(?n, ?k), float32], %w: Tensor[(?m, ?k), float32]) -> Tensor[(?n, ?m), float32] {
  nn.dense(%x, %w)
}
def @double(%n: int64, %x: Tensor[(?), float32]) -> Tensor[(?), float32] {
  if (%n < 1i64) { %x } else { @double(%n - 1i64, concatenate((%x, %x), axis=0)) }
}
def @long(%x: Tensor[(?n), float64]) -> Tensor[(?n), float64] { exp(tanh(exp(tanh(exp(tanh(exp(tanh(%x)))))))) }
def @cycle(%n: int64) -> int64 {
  if (%n < 1i64) { 0i64 } else {
    let %cell = ref(Empty);
    let %again = fn () -> int64 { match (ref_read(%cell)) { Thunk(_) => 1i64, Empty => 0i64 } };
    let %u = ref_write(%cell, Thunk(%again));
    @cycle(%n - 1i64)
  }
}
def @endless_cycles(%n: int64) -> int64 { if (%n < 0i64) { %n } else { let %u = @cycle(10i64); @endless_cycles(%n + 1i64) } }
def @cell(%x: Tensor[(?n), float32]) -> ref(Tensor[(?), float32]) { ref(%x) }
def @read(%r: ref(Tensor[(?), float32])) -> Tensor[(?), float32] { ref_read(%r) }
def @write(%r: ref(Tensor[(?), float32]), %x: Tensor[(?n), float32]) -> () { ref_write(%r, %x) }
def @counter() -> fn () -> int64 {
  let %r = ref(0i64);
  fn () -> int64 { let %old = ref_read(%r); let %u = ref_write(%r, %old + 1i64); %old }
}
def @call(%f: fn () -> int64) -> int64 { %f() }
def @main(%x: Tensor[(?n, 4), float32]) -> Tensor[(?n, 4), float32] { tanh(%x) + %x }
"""

X = np.ones((3, 4), np.float32)
SQUARE = np.ones((3000, 3000), np.float32)


@pytest.fixture(scope="module", params=[True, False], ids=["native", "ir"])
def exe(request: pytest.FixtureRequest) -> Iterator[nvm.Executable]:
    with nvm.compile(
        nvm.relay.parse(TEXT, source_name="limits.rly"), native=request.param
    ) as found:
        yield found


def works(vm: nvm.VirtualMachine) -> None:
    np.testing.assert_allclose(vm.run(X).numpy(), np.tanh(X) + X, rtol=1e-5)
    assert int(vm.invoke("count", 10)) == 10


# --- each limit ---------------------------------------------------------------------------------------

LIMITS: dict[str, tuple[nvm.Limits, str, tuple[Any, ...], type[LimitExceeded], str]] = {
    "instructions": (nvm.Limits(instructions=10_000), "spin", (), InstructionLimit, "10000"),
    "bytes": (nvm.Limits(bytes=1 << 20), "double", (30, X[0]), MemoryLimit, "bytes"),
    "objects": (nvm.Limits(objects=1000), "objects", (5000,), ObjectLimit, "1000"),
    "frames": (nvm.Limits(frames=100), "deep", (200,), FrameLimit, "100"),
    "seconds": (nvm.Limits(seconds=0.02), "spin", (), TimeLimit, "20 ms"),
    "seconds_in_a_product": (nvm.Limits(seconds=0.02), "product", (SQUARE, SQUARE), TimeLimit, "20 ms"),
    "own_bound_on_recursion": (nvm.Limits(), "deep", (10**9,), FrameLimit, "frames"),
}  # fmt: skip


SLOW_LIMITS = ("own_bound_on_recursion",)  # fills a million frames


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW_LIMITS else n for n in LIMITS]
)
def test_limit(exe: nvm.Executable, name: str) -> None:
    limits, function, args, error, words = LIMITS[name]
    with nvm.VirtualMachine(exe, limits=limits) as vm:
        for _ in range(2):  # not used up by the run before
            with pytest.raises(error) as caught:
                vm.invoke(function, *args)
            works(vm)
            assert vm.stats()["live_objects"] == 0
        assert isinstance(caught.value, LimitExceeded)
        message = str(caught.value)
        assert words in message, message
        assert "in @" in message, message
        assert "limits.rly:" in message, message


def test_limit_is_no_limit_for_less(exe: nvm.Executable) -> None:
    limits = nvm.Limits(instructions=100_000, bytes=1 << 20, objects=3000, frames=300, seconds=60)
    with nvm.VirtualMachine(exe, limits=limits) as vm:
        for _ in range(3):
            assert int(vm.invoke("deep", 200)) == 200
            assert int(vm.invoke("objects", 1000)) == 1000
            assert vm.invoke("double", 12, X[0]).shape == (4 << 12,)
        vm.set_limits(nvm.Limits(frames=50))
        with pytest.raises(FrameLimit):
            vm.invoke("deep", 200)
        vm.set_limits(nvm.Limits())
        assert int(vm.invoke("deep", 5000)) == 5000


def test_time_limit_in_a_long_elementwise_kernel() -> None:
    """One loop over many elements used to run to its end."""
    with nvm.compile(nvm.relay.parse(TEXT)) as exe:
        data = np.ones(4_000_000)
        with nvm.VirtualMachine(exe) as vm:
            vm.invoke("long", data)  # memory is in the pool from here on
            start = time.perf_counter()
            vm.invoke("long", data)
            whole = time.perf_counter() - start
            vm.set_limits(nvm.Limits(seconds=whole / 10))
            start = time.perf_counter()
            with pytest.raises(TimeLimit, match="inside kernel"):
                vm.invoke("long", data)
            assert time.perf_counter() - start < whole / 2
            works_with(vm)


def works_with(vm: nvm.VirtualMachine) -> None:
    vm.set_limits(nvm.Limits())
    works(vm)


@pytest.mark.parametrize(
    "values", [{"instructions": 0}, {"bytes": -1}, {"seconds": 0.0}, {"frames": 2**63}]
)
def test_limits_are_checked(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"limit {next(iter(values))} must be positive"):
        nvm.Limits(**values)


# --- cancel, busy ---------------------------------------------------------------------------------------


def running(vm: nvm.VirtualMachine, *call: Any) -> tuple[threading.Thread, list[Any]]:
    """A thread that runs a function of the VM; what it gave or raised is in the list when it has ended."""
    found: list[Any] = []

    def target() -> None:
        try:
            found.append(vm.invoke(*call))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    time.sleep(0.03)
    return thread, found


@pytest.mark.parametrize("call", [("spin",), ("product", SQUARE, SQUARE), ("endless_cycles", 0)])
def test_cancel(exe: nvm.Executable, call: tuple[Any, ...]) -> None:
    with nvm.VirtualMachine(exe) as vm:
        for _ in range(2):
            thread, found = running(vm, *call)
            start = time.perf_counter()
            vm.cancel()
            thread.join(10)
            assert time.perf_counter() - start < 0.5
            assert isinstance(found[0], Cancelled), found
            works(vm)
            assert vm.stats()["live_objects"] == 0


def test_cancel_of_an_idle_vm_does_no_harm(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm:
        vm.cancel()
        works(vm)


def test_second_run_is_refused(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm:
        thread, found = running(vm, "spin")
        for call in [("main", X), ("count", 1)]:
            with pytest.raises(VMBusy):
                vm.invoke(*call)
        for action in (vm.trim, lambda: vm.set_limits(nvm.Limits())):
            with pytest.raises(VMBusy):
                action()
        vm.cancel()
        thread.join(10)
        assert isinstance(found[0], Cancelled)
        works(vm)


CTRL_C = """
import os, signal, sys, threading, time
import numpy as np
import nimblevm as nvm
# A shell that starts tests in the background may have told them to ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
exe = nvm.load(sys.stdin.buffer.read(), native={native})
vm = nvm.VirtualMachine(exe)
square = np.ones((3000, 3000), np.float32)
for call in [("spin",), ("product", square, square), ("endless_cycles", 0)]:
    sent = []
    def interrupt():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(0.1, interrupt).start()
    try:
        vm.invoke(*call)
    except KeyboardInterrupt:
        took = time.perf_counter() - sent[0]
        print(call[0], "interrupted", "late" if took > 0.5 else "soon", int(vm.invoke("count", 7)))
class Own(Exception):
    pass
def handler(*_):
    raise Own
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    vm.invoke("spin")
except Own:
    print("own handler", int(vm.invoke("count", 7)))
"""


def test_ctrl_c(exe: nvm.Executable) -> None:
    code = textwrap.dedent(CTRL_C).format(native=True)
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=exe.to_bytes(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines() == [
        "spin interrupted soon 7",
        "product interrupted soon 7",
        "endless_cycles interrupted soon 7",
        "own handler 7",
    ]


# --- cycles and handles ----------------------------------------------------------------------------------


def test_cycles_of_refs_are_collected(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm:
        for _ in range(3):
            vm.invoke("cycle", 2000)
            assert vm.stats()["live_objects"] == 0
        vm.set_limits(nvm.Limits(objects=500, instructions=200_000))
        with pytest.raises(InstructionLimit):
            vm.invoke("endless_cycles", 0)  # the objects' limit collects instead of failing
        assert vm.stats()["live_objects"] == 0


def test_handles_work_in_their_vm_alone(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm, nvm.VirtualMachine(exe) as other:
        cell, counter = vm.invoke("cell", X[0]), vm.invoke("counter")
        assert [int(vm.invoke("call", counter)) for _ in range(3)] == [0, 1, 2]
        np.testing.assert_array_equal(vm.invoke("read", cell).numpy(), X[0])
        vm.invoke("write", cell, np.arange(7, dtype="float32"))
        assert vm.invoke("read", cell).shape == (7,)
        for function, handle in [("read", cell), ("call", counter)]:
            with pytest.raises(InvalidInput, match="another VirtualMachine"):
                other.invoke(function, handle)
        # A run that fails leaves them as they are.
        with pytest.raises(InvalidInput):
            vm.invoke("read", counter)
        assert int(vm.invoke("call", counter)) == 3
        assert vm.stats()["live_objects"] > 0
        del cell, counter, handle
        vm.trim()
        assert vm.stats()["live_objects"] == 0


def test_handle_outlives_its_vm(exe: nvm.Executable) -> None:
    vm = nvm.VirtualMachine(exe)
    counter = vm.invoke("counter")
    vm.close()
    with pytest.raises(Closed):
        vm.invoke("call", counter)
    with nvm.VirtualMachine(exe) as other, pytest.raises(InvalidInput):
        other.invoke("call", counter)
    del counter


# --- threads -----------------------------------------------------------------------------------------------


def test_threads_share_an_executable(exe: nvm.Executable) -> None:
    """Eight threads, each with its own VM: results bit for bit those of one thread."""
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=(n, 4)).astype("float32") for n in (0, 1, 2, 17, 64)]
    jobs: list[Callable[[nvm.VirtualMachine], Any]] = [
        *(lambda vm, x=x: vm.run(x).numpy() for x in inputs),
        lambda vm: vm.invoke("objects", 300).numpy(),
        lambda vm: vm.invoke("cycle", 50).numpy(),
        lambda vm: vm.invoke("product", inputs[3], inputs[4]).numpy(),
    ]
    with nvm.VirtualMachine(exe) as vm:
        expected = [job(vm).tobytes() for job in jobs]
    wrong: list[object] = []

    def work(first: int) -> None:
        try:
            with nvm.VirtualMachine(exe) as own:
                for turn in range(50):
                    index = (first + turn) % len(jobs)
                    if jobs[index](own).tobytes() != expected[index]:
                        wrong.append((first, index))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
