"""Bad inputs: the message names the parameter, what was expected and what came. Good ones: DLPack, strides, scalars."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import nimblevm as nvm

TEXT = """#[version = "0.0.5"]
type Tree { Leaf(Tensor[(2), float32]), Node(Tree, Tree) }
type Other { One, Two(int32) }
def @main(%x: Tensor[(?n, 3), float32], %y: Tensor[(?n), float32]) -> Tensor[(?n, 3), float32] {
  add(%x, reshape(%y, newshape=[-1, 1]))
}
def @tree(%t: Tree) -> int32 { match (%t) { Leaf(_) => { 1 }, Node(_, _) => { 2 }, } }
def @scalars(%i: int8, %f: float16, %b: bool) -> (int8, float16, bool) { (%i, %f, %b) }
def @echo(%x: Tensor[(?, ?), float32]) -> Tensor[(?, ?), float32] { %x }
def @pair(%p: (Tensor[(2), float32], int32)) -> int32 { %p.1 }
def @named(%self: int32, %name: int32) -> int32 { %self - %name }
"""


@pytest.fixture(scope="module")
def exe() -> Iterator[nvm.Executable]:
    with nvm.compile(nvm.relay.parse(TEXT)) as executable:
        yield executable


@pytest.fixture
def vm(exe: nvm.Executable) -> Iterator[nvm.VirtualMachine]:
    with nvm.VirtualMachine(exe) as machine:
        yield machine


X = np.zeros((4, 3), np.float32)
Y = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((X[0], Y), ["%x", "rank 2", "rank 1"]),
        ((X.astype(np.float64), Y), ["%x", "float32", "float64"]),
        ((np.zeros((4, 2), np.float32), Y), ["%x", "axis 1", "3", "2"]),
        ((X, np.zeros(5, np.float32)), ["%y", "axis 0", "4", "5"]),
        ((X,), ["missing", "%y"]),
        ((X, Y, Y), ["takes 2", "got 3"]),
        ((X, (Y, Y)), ["%y", "tensor", "tuple"]),
        ((X, None), ["%y", "None"]),
        ((X, "text"), ["%y", "str"]),
        ((X, Y.astype(">f4")), ["%y", ">f4"]),
    ],
)
def test_bad_arguments_of_main(vm: nvm.VirtualMachine, args: tuple, words: list[str]) -> None:
    with pytest.raises(nvm.InvalidInput) as caught:
        vm.run(*args)
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in {caught.value}"
    assert vm.run(X, Y).shape == (4, 3)  # the VM works on


def test_named_arguments(vm: nvm.VirtualMachine) -> None:
    assert vm.run(y=Y, x=X).shape == (4, 3)
    assert int(vm.invoke("named", name=1, self=3)) == 2
    for args, named, word in [((X,), {"z": Y}, "%z"), ((X, Y), {"x": X}, "twice")]:
        with pytest.raises(nvm.InvalidInput, match=word):
            vm.run(*args, **named)


def test_unknown_function_lists_what_there_is(vm: nvm.VirtualMachine) -> None:
    with pytest.raises(nvm.errors.FunctionNotFound, match="main"):
        vm.invoke("mian")


def test_wrong_constructor_and_deep_path(exe: nvm.Executable, vm: nvm.VirtualMachine) -> None:
    leaf, node, two = exe.constructor("Leaf"), exe.constructor("Node"), exe.constructor("Two")
    with pytest.raises(nvm.InvalidInput, match=r"%t.*Tree.*Other"):
        vm.invoke("tree", two(1))
    good = leaf(np.zeros(2, np.float32))
    with pytest.raises(nvm.InvalidInput, match=r"Node.*\[1\].*Leaf.*\[0\]"):
        vm.invoke("tree", node(good, leaf(np.zeros(3, np.float32))))
    with pytest.raises(nvm.InvalidInput, match="takes 2 fields"):
        node(good)
    assert int(vm.invoke("tree", node(good, good))) == 2


def test_scalars_are_checked_for_range(vm: nvm.VirtualMachine) -> None:
    i, f, b = vm.invoke("scalars", -128, 1.5, True)
    assert (i.item(), f.item(), b.item()) == (-128, 1.5, True)
    assert (i.dtype, f.dtype, b.dtype) == ("int8", "float16", "bool")
    for args in [
        (128, 1.0, True),
        (-129, 1.0, True),
        (0, 1e6, True),
        (0, 1.0, 1),
        (1.0, 1.0, True),
    ]:
        with pytest.raises(nvm.InvalidInput):
            vm.invoke("scalars", *args)
    assert np.isnan(vm.invoke("scalars", 0, float("nan"), False)[1].item())
    assert vm.invoke("scalars", 0, float("-inf"), False)[1].item() == float("-inf")


def test_tuples(vm: nvm.VirtualMachine) -> None:
    pair = (np.zeros(2, np.float32), 7)
    assert int(vm.invoke("pair", pair)) == 7
    for bad in [pair[:1], (*pair, 1), (np.zeros(3, np.float32), 7), np.zeros(2, np.float32)]:
        with pytest.raises(nvm.InvalidInput, match="%p"):
            vm.invoke("pair", bad)


class DLPackOnly:
    """An array that shows nothing but DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: object) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [lambda a: a, DLPackOnly, memoryview])
@pytest.mark.parametrize(
    "view",
    [
        lambda a: a,
        lambda a: a[::2],
        lambda a: a[:, ::-1],
        lambda a: a.T,
        lambda a: a[:0],
        lambda a: np.broadcast_to(a[:1], (5, 6)),
    ],
)
def test_strides_and_read_only_inputs(vm: nvm.VirtualMachine, wrap, view) -> None:  # type: ignore[no-untyped-def]
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    array = view(base)
    array.flags.writeable = False
    kept = base.copy()
    got = vm.invoke("echo", wrap(array)).numpy()
    np.testing.assert_array_equal(got, array)
    got[...] = -1  # the result is the caller's own
    np.testing.assert_array_equal(base, kept)


def test_results_leave_by_dlpack_without_a_copy(vm: nvm.VirtualMachine) -> None:
    out = vm.run(X, Y)
    view = np.from_dlpack(out)
    assert np.shares_memory(view, out.numpy())
    del out
    gc.collect()
    vm.run(X + 1, Y)
    np.testing.assert_array_equal(view, X)  # no later run writes into it


def test_results_outlive_the_vm(exe: nvm.Executable) -> None:
    machine = nvm.VirtualMachine(exe)
    out = machine.run(X + 2, Y)
    machine.close()
    gc.collect()
    np.testing.assert_array_equal(out.numpy(), X + 2)
    with pytest.raises(nvm.errors.Closed):
        machine.run(X, Y)


def test_numbers_and_arrays_in_turns() -> None:
    """The argument array that is kept from call to call forgets what stood in it."""
    text = """#[version = "0.0.5"]
def @main(%i: int32, %x: Tensor[(?n), int32]) -> Tensor[(?n), int32] { %x + %i }
"""
    x = np.arange(3, dtype="int32")
    with nvm.compile(nvm.relay.parse(text)) as exe, nvm.VirtualMachine(exe) as vm:
        for i in (5, np.asarray(6, "int32"), 7, np.int32(8), np.asarray(9, "int32"), -1):
            np.testing.assert_array_equal(vm.run(i, x).numpy(), x + int(i))
            for wrong in (
                2**31,
                2**70,
                1.5,
                np.asarray([1], "int32"),
                np.asarray(1, "int64"),
                None,
            ):
                with pytest.raises((nvm.errors.InvalidInput, nvm.errors.InvalidInputType)):
                    vm.run(wrong, x)
            assert vm.run(i, x[:0]).shape == (0,)
            np.testing.assert_array_equal(vm.run(i, x[::2]).numpy(), x[::2] + int(i))
