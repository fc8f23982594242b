"""Kernels on several threads, through the VM: equal bits, many VMs at once, fork, faults, limits, cancel."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import bert, gru, lstm, treelstm
from nimblevm.devices.cpu import available_threads
from nimblevm.errors import Cancelled, IndexOutOfRange, TimeLimit

THREADS = (1, 2, 4)
MANY = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 96), float32], %w: Tensor[(512, 96), float32], %v: Tensor[(?n, 512), float32])
    -> (Tensor[(?n, 512), float32], Tensor[(?n), float32], Tensor[(512, ?n), float32], Tensor[(512), float32]) {
  let %h = tanh(nn.dense(%x, %w));
  let %p = nn.softmax(multiply(%h, %v));
  (%p, sum(multiply(%h, %v), axis=[1]), transpose(add(%h, exp(%v)), axes=[1, 0]), max(%h, axis=[0]))
}
"""
LONG = f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?n), float64]) -> Tensor[(?n), float64] {{ {"tanh(" * 12}%x{")" * 12} }}
"""


def arrays(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(rows)
    shapes = ((rows, 96), (512, 96), (rows, 512))
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def bits(value: object) -> list[bytes]:
    """Of all tensors in a result, in order."""
    parts = value if isinstance(value, tuple) else (value,)
    return [np.ascontiguousarray(part.numpy()).tobytes() for part in parts]


@pytest.fixture(scope="module")
def exe() -> nvm.Executable:
    return nvm.compile(nvm.relay.parse(MANY))


@pytest.fixture(scope="module")
def long() -> nvm.Executable:
    return nvm.compile(nvm.relay.parse(LONG))


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_results_do_not_depend_on_threads(exe: nvm.Executable, rows: int) -> None:
    args = arrays(rows)
    found = []
    for threads in THREADS:
        with nvm.VirtualMachine(exe, threads=threads) as vm:
            found += [bits(vm.run(*args)) for _ in range(5)]
    assert all(one == found[0] for one in found)


def _lstm() -> tuple[str, dict[str, np.ndarray], list[object]]:
    x = np.random.default_rng(0).standard_normal((9, 80)).astype("float32")
    return lstm.text(80, 192), lstm.params(80, 192), [x]


def _gru() -> tuple[str, dict[str, np.ndarray], list[object]]:
    x = np.random.default_rng(0).standard_normal((9, 80)).astype("float32")
    return gru.text(80, 192), gru.params(80, 192), [x]


def _encoder() -> tuple[str, dict[str, np.ndarray], list[object]]:
    config = bert.Config(vocabulary=50, positions=70, hidden=96, layers=1, heads=4, inner=256)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 50, (2, 61), "int32")
    mask = (np.arange(61) < np.array([[61], [40]])).astype("float32")
    return bert.text(config), bert.params(config), [tokens, mask]


@pytest.mark.parametrize("model", [_lstm, _gru, pytest.param(_encoder, marks=pytest.mark.slow)])
def test_models_do_not_depend_on_threads(
    model: Callable[[], tuple[str, dict[str, np.ndarray], list[object]]],
) -> None:
    text, params, args = model()
    exe = nvm.compile(nvm.relay.parse(text), params=params)
    found = []
    for threads in THREADS:
        with nvm.VirtualMachine(exe, threads=threads) as vm:
            found += [bits(vm.run(*args)) for _ in range(4)]
    assert all(one == found[0] for one in found)


def test_many_machines_at_once(exe: nvm.Executable) -> None:
    """One has the workers, the others run alone."""
    args = [arrays(50 + k) for k in range(4)]
    with nvm.VirtualMachine(exe) as vm:
        expected = [bits(vm.run(*a)) for a in args]

    def work(k: int) -> bool:
        with nvm.VirtualMachine(exe, threads=2) as own:
            return all(bits(own.run(*args[k])) == expected[k] for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_workers_are_made_for_who_asks() -> None:
    """One thread more than CPUs allow is never made, none for threads=1."""
    script = f"""if True:
    import os, time, numpy as np, nimblevm as nvm
    exe = nvm.compile(nvm.relay.parse({LONG!r}))
    x = np.linspace(0, 1, 100_000)
    count = lambda: len(os.listdir("/proc/self/task"))
    before = count()
    for threads in (1, 2, 64):
        with nvm.VirtualMachine(exe, threads=threads) as vm:
            for _ in range(5):  # a stall of the machine makes it run alone for a while
                vm.run(x)
                time.sleep(0.01)
        print(count() - before)
    """
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    made = [int(line) for line in done.stdout.split()]
    most = available_threads() - 1
    assert made == [0, min(1, most), min(63, most)]


def test_after_fork(exe: nvm.Executable) -> None:
    args = arrays(200)
    with nvm.VirtualMachine(exe, threads=2) as vm:
        expected = bits(vm.run(*args))
        child = os.fork()
        if child == 0:
            same = all(bits(vm.run(*args)) == expected for _ in range(5))
            os._exit(0 if same else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert bits(vm.run(*args)) == expected


def test_the_first_fault_is_reported() -> None:
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(9, 700), float32], %i: Tensor[(?n), int64]) -> Tensor[(?n, 700), float32] {
      tanh(take(%x, %i, axis=0, mode="fast")) }"""
    exe = nvm.compile(nvm.relay.parse(text))
    x, index = np.ones((9, 700), "float32"), np.zeros(600, "int64")
    index[[370, 500, 590]] = 77, 88, 99
    for threads in THREADS:
        with nvm.VirtualMachine(exe, threads=threads) as vm:
            for _ in range(5):
                with pytest.raises(
                    IndexOutOfRange, match="index 77 is outside of an axis of size 9"
                ):
                    vm.run(x, index)
            assert bits(vm.run(x, np.zeros(600, "int64")))  # works on


def _cancel(vm: nvm.VirtualMachine, asked: list[float]) -> None:
    asked.append(time.perf_counter())
    vm.cancel()


def _seconds(vm: nvm.VirtualMachine, x: np.ndarray) -> float:
    start = time.perf_counter()
    vm.run(x)
    return time.perf_counter() - start


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow), 4])
def test_cancel_and_time_limit(long: nvm.Executable, threads: int) -> None:
    x = np.linspace(0, 1, 6_000_000)
    with nvm.VirtualMachine(long, threads=threads) as vm:
        whole = min(_seconds(vm, x) for _ in range(2))  # the first one also gets its memory
        for _ in range(20):  # the machine may be busy
            asked: list[float] = []
            timer = threading.Timer(whole / 10, lambda asked=asked: _cancel(vm, asked))
            timer.start()
            start = time.perf_counter()
            cancelled = False
            try:
                vm.run(x)
            except Cancelled:
                cancelled = True
            took = time.perf_counter() - start
            timer.join()
            assert cancelled or asked[0] - start > 0.3 * whole, "the call to cancel was lost"
            if cancelled and took < 0.7 * whole:
                break
        else:
            pytest.fail("no run ended soon after it was cancelled")
        vm.set_limits(nvm.Limits(seconds=whole / 10))
        with pytest.raises(TimeLimit, match="longer than its limit"):
            vm.run(x)
        vm.set_limits(nvm.Limits())
        assert vm.run(x[:5000]).shape == (5000,)


def test_runs_after_cancelled_ones(long: nvm.Executable) -> None:
    x = np.linspace(0, 1, 300_000)
    with nvm.VirtualMachine(long, threads=2) as vm:
        expected = bits(vm.run(x))
        for k in range(6):
            timer = threading.Timer(0.003 * k, vm.cancel)
            timer.start()
            with suppress(Cancelled):
                assert bits(vm.run(x)) == expected
            timer.join()
        assert bits(vm.run(x)) == expected


def test_treelstm_does_not_depend_on_threads() -> None:
    exe = nvm.compile(nvm.relay.parse(treelstm.text(40, 80)), params=treelstm.params(40, 80))
    leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
    tree = treelstm.fold(treelstm.random_tree(12, np.random.default_rng(0), 40), leaf, node)
    found = []
    for threads in THREADS:
        with nvm.VirtualMachine(exe, threads=threads) as vm:
            found.append(bits(vm.run(tree)))
    assert all(one == found[0] for one in found)
