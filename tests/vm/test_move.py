"""nvm.move: what a VM returned goes back without a copy and grows in place; failures and other holders are safe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import serialize

ROW = 512  # floats: 2 KiB a row, so that states leave the VM on blocks of their own
TEXT = f"""#[version = "0.0.5"]
type Box {{ Full(Tensor[(?, {ROW}), float32], int32), Empty }}
def @step(%x: Tensor[(?m, {ROW}), float32], %s: (Tensor[(?n, {ROW}), float32], Tensor[(?n, {ROW}), float32])) {{
  (concatenate((%s.0, %x)), concatenate((%s.1, negative(%x))))
}}
def @fail(%x: Tensor[(?m, {ROW}), float32], %s: Tensor[(?n, {ROW}), float32], %i: int32) {{
  let %a = concatenate((%s, %x));
  (%a, floor_divide(1, %i))
}}
def @box(%x: Tensor[(1, {ROW}), float32], %b: Box) -> Box {{
  match (%b) {{
    Full(%t, %n) => {{ Full(concatenate((%t, %x)), %n + 1) }},
    Empty => {{ Full(%x, 1) }},
  }}
}}
def @keep(%s: Tensor[(?n, {ROW}), float32], %x: Tensor[(?m, {ROW}), float32]) {{
  (fn (%i: int32) -> Tensor[(?, {ROW}), float32] {{ concatenate((%s, %x)) }}, concatenate((%s, %x)))
}}
def @call(%f: fn (int32) -> Tensor[(?, {ROW}), float32]) -> Tensor[(?, {ROW}), float32] {{ %f(0) }}
def @echo(%s: Tensor[(?n, {ROW}), float32]) -> Tensor[(?n, {ROW}), float32] {{ %s }}
def @two(%s: Tensor[(?n, {ROW}), float32], %t: Tensor[(?m, {ROW}), float32]) {{
  (concatenate((%s, %t)), concatenate((%t, %s)))
}}
def @both(%s: Tensor[(?n, {ROW}), float32], %x: Tensor[(?m, {ROW}), float32]) {{ (%s, concatenate((%s, %x))) }}
"""


@pytest.fixture(scope="module")
def exe() -> Iterator[nvm.Executable]:
    with nvm.compile(nvm.relay.parse(TEXT), verify=True) as executable:
        yield executable


@pytest.fixture(params=[True, False], ids=["native", "interpreted"])
def vm(exe: nvm.Executable, request: pytest.FixtureRequest) -> Iterator[nvm.VirtualMachine]:
    with nvm.load(exe.to_bytes(), native=request.param) as own, nvm.VirtualMachine(own) as machine:
        yield machine


def rows(*values: float) -> np.ndarray[Any, Any]:
    return np.repeat(np.array(values, np.float32)[:, None], ROW, 1)


def copied(vm: nvm.VirtualMachine) -> int:
    return vm.stats()["copied_bytes"]


def test_a_state_grows_in_place(vm: nvm.VirtualMachine) -> None:
    state: Any = (np.zeros((0, ROW), np.float32), np.zeros((0, ROW), np.float32))
    turns = 400
    start = copied(vm)
    for turn in range(turns):
        state = vm.invoke("step", rows(turn), nvm.move(state))
    assert copied(vm) - start < 6 * turns * 2 * 4 * ROW
    np.testing.assert_array_equal(state[0], rows(*range(turns)))
    np.testing.assert_array_equal(state[1], -rows(*range(turns)))


def test_without_move_every_state_stays_good(vm: nvm.VirtualMachine) -> None:
    empty = np.zeros((0, ROW), np.float32)
    states: list[Any] = [(empty, empty)]
    for turn in range(20):
        states.append(vm.invoke("step", rows(turn), states[-1]))
    branch = vm.invoke("step", rows(77), states[10])
    np.testing.assert_array_equal(branch[0], rows(*range(10), 77))
    for size, state in enumerate(states[1:], 1):
        np.testing.assert_array_equal(state[0], rows(*range(size)))


def test_use_after_move(vm: nvm.VirtualMachine) -> None:
    small = vm.invoke("echo", rows(1))
    large = vm.invoke("echo", rows(1, 2, 3))
    for tensor in (small, large):
        given = nvm.move(tensor)
        assert tensor.shape[1] == ROW  # good until a call takes it
        vm.invoke("echo", given)
        assert tensor.moved
        assert repr(tensor) == "Tensor(given away)"
        for use in (
            tensor.numpy,
            lambda t=tensor: t.shape,
            lambda t=tensor: np.asarray(t),
            lambda t=tensor: t[0],
        ):
            with pytest.raises(nvm.ValueMoved, match="given away"):
                use()
        for again in (tensor, given, (tensor,)):
            with pytest.raises(nvm.ValueMoved):
                vm.invoke("echo", again)
    assert issubclass(nvm.ValueMoved, (nvm.NimbleError, ValueError))


def test_passing_twice_what_is_given_away(vm: nvm.VirtualMachine) -> None:
    for size in (1, 5):
        tensor = vm.invoke("echo", rows(*range(size)))
        for pair in (
            (nvm.move(tensor), tensor),
            (tensor, nvm.move(tensor)),
            (nvm.move(tensor), nvm.move(tensor)),
        ):
            with pytest.raises(nvm.InvalidInput, match=r"%[st] of @two.*given away.*second time"):
                vm.invoke("two", *pair)
        a, b = vm.invoke("two", tensor, tensor)
        np.testing.assert_array_equal(a, rows(*range(size), *range(size)))
        np.testing.assert_array_equal(a, b)


def test_passing_a_handle_twice_that_is_given_away(vm: nvm.VirtualMachine) -> None:
    handle = vm.invoke("echo", rows(1, 2), out=nvm.KEEP)
    for pair in (
        (nvm.move(handle), handle),
        (handle, nvm.move(handle)),
        (nvm.move(handle), nvm.move(handle)),
    ):
        with pytest.raises(
            nvm.InvalidInput, match=r"%t of @two: the handle is passed a second time"
        ):
            vm.invoke("two", *pair)
    a, b = vm.invoke("two", handle, handle)
    np.testing.assert_array_equal(a, b)
    other = vm.invoke("echo", rows(1, 2), out=nvm.KEEP)
    vm.invoke("two", nvm.move(handle), nvm.move(other))
    with pytest.raises(nvm.ValueMoved):
        handle.read()


def test_a_failed_call_gives_everything_back(vm: nvm.VirtualMachine) -> None:
    for size in (1, 5):
        tensor = vm.invoke("echo", rows(*range(size)))
        array = tensor.numpy()
        with pytest.raises(nvm.errors.DivisionByZero):
            vm.invoke("fail", rows(9), nvm.move(tensor), 0)
        with pytest.raises(nvm.InvalidInput):
            vm.invoke("fail", rows(9)[0], nvm.move(tensor), 1)
        with pytest.raises(nvm.InvalidInput):
            vm.invoke("fail", nvm.move(tensor), "no tensor", 1)
        np.testing.assert_array_equal(tensor, rows(*range(size)))
        del array
        grown, _ = vm.invoke("fail", rows(9, 8), nvm.move(tensor), 1)
        np.testing.assert_array_equal(grown, rows(*range(size), 9, 8))
        assert tensor.moved


def test_arrays_of_a_moved_tensor_stay_good(vm: nvm.VirtualMachine) -> None:
    tensor = vm.invoke("step", rows(1, 2), (rows(0), rows(0)))[0]
    view = tensor.numpy()[1:]
    grown = vm.invoke("fail", rows(3), nvm.move(tensor), 1)[0]
    view[:] = 5  # no result sees it
    np.testing.assert_array_equal(grown, rows(0, 1, 2, 3))
    more = vm.invoke("fail", rows(4), nvm.move(grown), 1)[0]
    del grown
    np.testing.assert_array_equal(view, rows(5, 5))
    np.testing.assert_array_equal(more, rows(0, 1, 2, 3, 4))


def test_results_that_share_the_block_are_apart(vm: nvm.VirtualMachine) -> None:
    tensor = vm.invoke("echo", rows(0))
    for turn in range(1, 7):  # now the block has room
        tensor = vm.invoke("fail", rows(turn), nvm.move(tensor), 1)[0]
    start = copied(vm)
    old, new = vm.invoke("both", nvm.move(tensor), rows(7))
    assert copied(vm) - start == 4 * ROW * (1 + 7 + 8)  # the row, and both results
    old.numpy()[:] = -1
    np.testing.assert_array_equal(new, rows(*range(8)))


def test_what_a_handle_keeps_is_its_own(vm: nvm.VirtualMachine) -> None:
    for exported in (False, True):
        tensor = vm.invoke("echo", rows(*range(5)))
        array = tensor.numpy() if exported else None
        closure, out = vm.invoke("keep", nvm.move(tensor), rows(7))
        if array is not None:
            array[:] = -1
        out.numpy()[:] = -2
        np.testing.assert_array_equal(vm.invoke("call", closure), rows(*range(5), 7))


def test_adt_values_and_handles_move(vm: nvm.VirtualMachine) -> None:
    box = vm.executable.constructor("Empty")()
    start = copied(vm)
    for turn in range(300):
        box = vm.invoke("box", rows(turn), nvm.move(box))
    assert copied(vm) - start < 6 * 300 * 4 * ROW
    np.testing.assert_array_equal(box.fields[0], rows(*range(300)))
    closure, _ = vm.invoke("keep", rows(1, 2), rows(3))
    vm.invoke("call", nvm.move(closure))
    with pytest.raises(nvm.ValueMoved):
        vm.invoke("call", closure)


def test_code_that_writes_what_was_given_away_is_stopped() -> None:
    """A hostile file can't change what a failed call gives back."""
    code = """
.const float32 [1, 3, 1] values 1 5 2
.kernel "argmax_float32" c
  .dims ["outer", "axis", "inner"]
  .attrs [0]
  .in float32 [dim 0, dim 1, dim 2]
  .out int32 [dim 0, dim 2]
  .may_fail
.end
.func @main public [%x: Tensor[(?), int32]] -> Tensor[(?), int32]
  View r2, r0, 0, [1, 1]
  LoadConst r1, c0
  CallKernel k0, [r1, r2], [1, 3, 1], []
  Ret r0
.end
.func @echo public [%x: Tensor[(?), int32]] -> Tensor[(?), int32]
  Ret r0
.end
"""
    with nvm.VirtualMachine(nvm.load(serialize(assemble(code)))) as vm:
        tensor = vm.invoke("echo", np.arange(2000, dtype=np.int32))
        for _ in range(3):
            with pytest.raises(nvm.errors.OperandMismatch, match="can't be written"):
                vm.run(nvm.move(tensor))
            np.testing.assert_array_equal(tensor, np.arange(2000))


def test_moving_into_another_vm(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as one, nvm.VirtualMachine(exe) as two:
        tensor = one.invoke("echo", rows(*range(5)))
        out = two.invoke("fail", rows(6), nvm.move(tensor), 1)[0]
        assert tensor.moved
    np.testing.assert_array_equal(out, rows(*range(5), 6))


def test_a_state_outlives_its_vm(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm:
        tensor = vm.invoke("echo", rows(*range(5)))
        grown = vm.invoke("fail", rows(6), nvm.move(tensor), 1)[0]
        assert vm.stats()["live_objects"] == 0
    np.testing.assert_array_equal(grown, rows(*range(5), 6))


def test_memory_is_freed(vm: nvm.VirtualMachine) -> None:
    for size in (1, 5):
        for _ in range(50):
            tensor = vm.invoke("echo", rows(*range(size)))
            with pytest.raises(nvm.errors.DivisionByZero):
                vm.invoke("fail", rows(9), nvm.move(tensor), 0)
            vm.invoke("fail", rows(9), nvm.move(tensor), 1)
    del tensor
    stats = vm.stats()
    assert (stats["live_objects"], stats["live_bytes"]) == (0, 0)
