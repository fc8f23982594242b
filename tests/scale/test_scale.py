"""Programs and values far larger than any stack: nothing recurses on depth, nothing is worse than linear."""

from __future__ import annotations

import resource
import time

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import treelstm

HEADER = '#[version = "0.0.5"]\n'
COUNTED_LOOP = (
    HEADER
    + """
def @loop(%i: int64, %n: int64, %sum: int64) -> int64 {
  if (less(%i, %n)) { @loop(%i + 1i64, %n, %sum + %i) } else { %sum }
}
def @main(%n: int64) -> int64 { @loop(0i64, %n, 0i64) }
"""
)
DEEP = (
    HEADER
    + """
def @sum(%n: int64) -> int64 {
  if (less_equal(%n, 0i64)) { 0i64 } else { %n + @sum(%n - 1i64) }
}
def @main(%n: int64) -> int64 { @sum(%n) }
"""
)


def run(text: str, *args: object, **options: object) -> object:
    exe = nvm.compile(nvm.relay.parse(text))
    with nvm.VirtualMachine(exe, **options) as vm:  # type: ignore[arg-type]
        return vm.run(*args)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_tail_recursion_runs_in_constant_memory() -> None:
    exe = nvm.compile(nvm.relay.parse(COUNTED_LOOP))
    with nvm.VirtualMachine(exe) as vm:
        vm.run(1000)
        before = peak_mib()
        start = time.process_time()
        assert int(vm.run(1_000_000)) == 499_999_500_000
        took = time.process_time() - start
        assert peak_mib() - before < 2
    print(f"counted loop: {took * 1e3:.1f} ns a turn")


def test_deep_recursion_is_right_or_a_limit() -> None:
    exe = nvm.compile(nvm.relay.parse(DEEP))
    with nvm.VirtualMachine(exe) as vm:
        assert int(vm.run(100_000)) == 5_000_050_000
    with nvm.VirtualMachine(exe, limits=nvm.Limits(frames=1000)) as vm:
        with pytest.raises(nvm.errors.FrameLimit):
            vm.run(100_000)
        assert int(vm.run(10)) == 55


def lets(count: int) -> str:
    lines = "\n".join(f"let %v{i + 1} = tanh(%v{i});" for i in range(count))
    return f"{HEADER}def @main(%v0: Tensor[(?n), float32]) {{\n{lines}\n%v{count}\n}}\n"


def calls(count: int) -> str:
    return f"{HEADER}def @main(%x: Tensor[(?n), float32]) {{ {'tanh(' * count}%x{')' * count} }}\n"


def doubling(levels: int) -> str:
    lines = "\n".join(f"%{i + 1} = add(%{i}, %{i});" for i in range(levels))
    return (
        f"{HEADER}def @main(%x: Tensor[(?n), float32]) {{\n%0 = tanh(%x);\n{lines}\n%{levels}\n}}\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape", [lets, calls])
def test_a_hundred_thousand_operators(shape) -> None:  # type: ignore[no-untyped-def]
    start = time.process_time()  # of this process alone: other work on the machine doesn't count
    exe = nvm.compile(nvm.relay.parse(shape(100_000)))
    blob = exe.to_bytes()
    took = time.process_time() - start
    print(f"{shape.__name__}: {took:.1f} s from text to file, {len(blob)} bytes")
    with nvm.VirtualMachine(nvm.load(blob)) as vm:
        x = np.array([0.0, 1.0], np.float32)
        got = vm.run(x).numpy()
    want = x.copy()
    for _ in range(100_000):
        want = np.tanh(want)
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-6)


def functions(count: int) -> str:
    body = "".join(
        f"def @f{i}(%x: Tensor[(?n), float32]) -> Tensor[(?n), float32] {{ tanh(@f{i + 1}(%x)) }}\n"
        for i in range(count)
    )
    last = f"def @f{count}(%x: Tensor[(?n), float32]) -> Tensor[(?n), float32] {{ %x }}\n"
    return f"{HEADER}{body}{last}def @main(%x: Tensor[(?n), float32]) {{ @f0(%x) }}\n"


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "most"), [(lets, 20_000), (calls, 20_000), (functions, 2_000)])
def test_twenty_thousand_on_a_device(shape, most: int) -> None:  # type: ignore[no-untyped-def]
    """Nested lets, operators and calls of functions, placed and run: what comes in and goes out is all that is copied."""
    times = []
    for count in (most // 4, most):
        mod = nvm.relay.parse(shape(count))
        start = time.process_time()
        exe = nvm.compile(mod, native=False, device="simulated", entry_points=["main"])
        times.append(time.process_time() - start)
    print(f"{shape.__name__}: {times[0]:.1f} s, {times[1]:.1f} s")
    assert times[1] < 8 * times[0]
    x = np.array([0.0, 1.0], np.float32)
    with nvm.VirtualMachine(exe) as vm:
        got = vm.run(x).numpy()
        stats = vm.stats()
    want = x.copy()
    for _ in range(most):
        want = np.tanh(want)
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-6)
    assert (stats["copies_to_device"], stats["copies_to_host"]) == (1, 1)


def test_a_shared_graph_of_a_million_paths() -> None:
    start = time.perf_counter()
    exe = nvm.compile(nvm.relay.parse(doubling(20)))
    print(f"doubling: {time.perf_counter() - start:.1f} s from text to file")
    with nvm.VirtualMachine(exe) as vm:
        x = np.array([0.5, -2.0], np.float32)
        np.testing.assert_allclose(vm.run(x).numpy(), np.tanh(x) * 2**20, rtol=1e-5)


@pytest.mark.parametrize("depth", [3_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_deep_tree_runs_and_is_freed(depth: int) -> None:
    params = treelstm.params(8, 8)
    exe = nvm.compile(nvm.relay.parse(treelstm.text(8, 8)), params=params)
    leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
    rng = np.random.default_rng(3)
    tree: object = rng.standard_normal((1, 8)).astype(np.float32)
    adt = leaf(tree)
    for _ in range(depth):
        x = rng.standard_normal((1, 8)).astype(np.float32)
        tree, adt = (tree, x), node(adt, leaf(x))
    with nvm.VirtualMachine(exe) as vm:
        h, _ = vm.run(adt)
        np.testing.assert_allclose(
            h.numpy(), treelstm.reference(tree, **params)[0], rtol=1e-3, atol=1e-5
        )
        del h, _
        vm.trim()
        assert vm.stats()["live_objects"] == 0
