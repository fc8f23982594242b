"""Calls kept from one to the next: what the ones before left in them shows in no result."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.vm.kept_call import KeptCall

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 3), float32]) -> Tensor[(?n, 3), float32] { %x + 1f }
def @several(%x: Tensor[(?n, ?m), float32], %y: float32)
    -> (Tensor[(?n, ?m), float32], Tensor[(?n, ?m), bool], float32) { (%x * %y, greater(%x, %y), %y + 1f) }
def @one(%x: Tensor[(?n), int64]) -> (Tensor[(?n), int64],) { (%x * 2i64,) }
def @none(%x: float32) -> () { () }
def @nested(%x: float32) -> (float32, (float32, float32)) { (%x, (%x, %x)) }
def @count(%x: Tensor[(?n), bool]) -> Tensor[(?, 1), int32] { argwhere(%x) }
def @wait(%n: int32) -> int32 { if (%n < 1) { 0 } else { @wait(%n - 1) } }
"""


@pytest.fixture(scope="module")
def exe() -> Iterator[nvm.Executable]:
    with nvm.compile(nvm.relay.parse(TEXT)) as executable:
        yield executable


@pytest.fixture
def vm(exe: nvm.Executable) -> Iterator[nvm.VirtualMachine]:
    with nvm.VirtualMachine(exe) as machine:
        yield machine


def _kept(vm: nvm.VirtualMachine, name: str = "main") -> KeptCall:
    (kept,) = vm._entries[name].kept
    return kept


def test_each_result_is_of_its_own(vm: nvm.VirtualMachine) -> None:
    given = [np.full((2, 3), i, np.float32) for i in range(6)]
    results = [vm.run(x).numpy() for x in given]
    assert _kept(vm).views, "small results of one shape are expected after two"
    for x, result in zip(given, results, strict=True):
        np.testing.assert_array_equal(result, x + 1)
        result += 100
    np.testing.assert_array_equal(vm.run(given[0]).numpy(), given[0] + 1)


@pytest.mark.parametrize(
    "rows",
    [(1, 1, 1, 2, 2, 2, 1), (4, 0, 0, 0, 4), (0, 0, 3), (3, 5, 3, 5), (400, 400, 400, 1, 1, 1)],
)
def test_sizes_may_change(vm: nvm.VirtualMachine, rows: tuple[int, ...]) -> None:
    for i, n in enumerate(rows):
        x = np.arange(n * 3, dtype=np.float32).reshape(n, 3) + i
        result = vm.run(x)
        assert result.shape == (n, 3)
        np.testing.assert_array_equal(result.numpy(), x + 1)


def test_large_results_are_not_expected(vm: nvm.VirtualMachine) -> None:
    x = np.ones((342, 3), np.float32)  # 4,104 bytes
    for _ in range(4):
        vm.run(x)
    assert not _kept(vm).views
    for _ in range(4):
        vm.run(x[:341])
    assert _kept(vm).views


def test_results_of_functions_with_several(vm: nvm.VirtualMachine) -> None:
    for i, shape in enumerate([(2, 3), (2, 3), (2, 3), (3, 2), (3, 2), (3, 2), (6, 1)]):
        x = np.arange(6, dtype=np.float32).reshape(shape)
        product, greater, number = vm.invoke("several", x, np.array(i, np.float32))
        np.testing.assert_array_equal(product.numpy(), x * i)
        np.testing.assert_array_equal(greater.numpy(), x > i)
        assert (number.shape, number.item()) == ((), i + 1)
        (doubled,) = vm.invoke("one", np.arange(i // 2))
        assert doubled.tolist() == [2 * k for k in range(i // 2)]
        assert vm.invoke("none", 1.0) == ()
        first, (second, third) = vm.invoke("nested", np.float32(i))
        assert first.item() == second.item() == third.item() == i
    assert len(_kept(vm, "several").views) == 3
    assert not _kept(vm, "nested").views


def test_sizes_that_depend_on_data(vm: nvm.VirtualMachine) -> None:
    for wanted in ([1], [1], [1], [1, 2], [], [], [], [0, 2], [0, 1], [1, 2]):
        x = np.zeros(3, np.bool_)
        x[wanted] = True
        assert vm.invoke("count", x).tolist() == [[i] for i in wanted]


def test_integers_and_arrays_in_turn(vm: nvm.VirtualMachine) -> None:
    for value in (3, np.array(2, np.int32), 1, 0, np.array(4, np.int32), np.int32(1), True):
        if value is True:
            with pytest.raises(nvm.InvalidInput):
                vm.invoke("wait", value)
        else:
            assert vm.invoke("wait", value).item() == 0


def test_tensors_go_back_in(vm: nvm.VirtualMachine) -> None:
    for rows in (2, 2, 2, 400, 400, 400):
        x = np.zeros((rows, 3), np.float32)
        state = vm.run(x)
        for i in range(2, 5):
            state = vm.run(state)
            np.testing.assert_array_equal(state.numpy(), x + i)
    vm.run(nvm.move(state))
    with pytest.raises(nvm.ValueMoved):
        vm.run(state)
    np.testing.assert_array_equal(vm.run(x).numpy(), x + 1)


def test_what_does_not_fit_goes_the_other_way(vm: nvm.VirtualMachine) -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    others: list[Any] = [
        x[::2],
        x[:, ::-1],
        np.asfortranarray(x),
        nvm.VirtualMachine(vm.executable).run(x),
    ]
    for other in others:
        vm.run(x)
        np.testing.assert_array_equal(vm.run(other).numpy(), np.asarray(other) + 1)
    for wrong in (x[:, :2].copy(), x.astype(np.float64), x[0], x.reshape(1, 4, 3)):
        with pytest.raises(nvm.InvalidInput, match="parameter %x of @main"):
            vm.run(wrong)
        np.testing.assert_array_equal(vm.run(x).numpy(), x + 1)


def test_one_vm_used_by_two_threads(exe: nvm.Executable) -> None:
    """Who finds the kept call in use makes arguments anew, and the VM says that it is busy."""
    with nvm.VirtualMachine(exe) as vm:
        cancelled: list[nvm.Cancelled] = []

        def long_run() -> None:
            try:
                vm.invoke("wait", 2**31 - 1)
            except nvm.Cancelled as error:
                cancelled.append(error)

        vm.invoke("wait", 1)
        thread = threading.Thread(target=long_run)
        thread.start()
        while vm._entries["wait"].kept:
            time.sleep(0.001)
        time.sleep(0.02)  # it is in use, so that the run is about to begin
        try:
            with pytest.raises(nvm.VMBusy):
                vm.invoke("wait", 1)
        finally:
            while thread.is_alive():
                vm.cancel()
                thread.join(0.01)
        assert cancelled
        assert vm.invoke("wait", 2).item() == 0
        assert len(vm._entries["wait"].kept) == 1
