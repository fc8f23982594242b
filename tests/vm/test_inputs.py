"""Bad inputs: the message names the parameter, what was expected and what came. Good ones: DLPack, strides, scalars."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm._ffi import check, ffi, lib
from nimblevm.bytecode.adt import ADTValue
from nimblevm.vm.tensor import DTYPE_NUMBERS

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
def test_bad_arguments_of_main(
    vm: nvm.VirtualMachine, args: tuple[Any, ...], words: list[str]
) -> None:
    with pytest.raises(nvm.InvalidInput) as caught:
        vm.run(*args)
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in {caught.value}"
    assert vm.run(X, Y).shape == (4, 3)  # the VM works on


def test_named_arguments(vm: nvm.VirtualMachine) -> None:
    assert vm.run(y=Y, x=X).shape == (4, 3)
    assert int(vm.invoke("named", name=1, self=3)) == 2
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((X,), {"z": Y}, "%z"),
        ((X, Y), {"x": X}, "twice"),
    ]
    for args, named, word in wrong:
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


def test_values_of_another_executable(vm: nvm.VirtualMachine) -> None:
    with nvm.compile(nvm.relay.parse(TEXT)) as same:
        leaf, node = same.constructor("Leaf"), same.constructor("Node")
    tree = node(leaf(np.zeros(2, np.float32)), leaf(np.zeros(2, np.float32)))
    assert int(vm.invoke("tree", tree)) == 2
    assert int(vm.invoke("tree", copy.deepcopy(tree))) == 2
    text = """#[version = "0.0.5"]
type Pine { Twig(int32), }
def @main(%t: Pine) -> int32 { match (%t) { Twig(%x) => { %x }, } }
"""
    with nvm.compile(nvm.relay.parse(text)) as other:
        twig = other.constructor("Twig")
        with pytest.raises(nvm.InvalidInput, match=r"Node\[1\]: .*no constructor Twig of Pine"):
            vm.invoke("tree", node(leaf(np.zeros(2, np.float32)), twig(1)))


def test_values_with_a_wrong_number_of_fields(exe: nvm.Executable, vm: nvm.VirtualMachine) -> None:
    """Made without their constructor: also where one lacks the field that another one has too many."""
    leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
    one = leaf(np.zeros(2, np.float32))
    small, large = ADTValue(node, (one,)), ADTValue(node, (one, one, one))
    for bad in (small, large, ADTValue(leaf, ()), node(small, large), node(large, small)):
        with pytest.raises(nvm.InvalidInput, match="parameter %t"):
            vm.invoke("tree", bad)
    changed = node(one, one)
    changed.fields = (one,)
    with pytest.raises(nvm.InvalidInput, match="parameter %t"):
        vm.invoke("tree", changed)


FOREST = """#[version = "0.0.5"]
type Bush {
  Leaf(Tensor[(?), float32]),
  Bare,
  Pair(Bush, Bush),
  Mixed(Bush, int32, Tensor[(2, 2), float32], (Bush, Tensor[(?), int8])),
}
def @main(%a: Bush, %i: int32, %b: (Bush, Tensor[(?), float32])) -> (Bush, int32, (Bush, Tensor[(?), float32])) {
  (%a, %i, %b)
}
"""


@pytest.fixture(scope="module")
def forest() -> Iterator[nvm.Executable]:
    with nvm.compile(nvm.relay.parse(FOREST)) as executable:
        yield executable


def _assert_same(got: Any, want: Any) -> None:
    stack = [(got, want)]
    while stack:
        one, other = stack.pop()
        if isinstance(other, ADTValue):
            assert isinstance(one, ADTValue)
            assert one.constructor.name == other.constructor.name
            one, other = one.fields, other.fields
        if isinstance(other, tuple):
            assert isinstance(one, tuple)
            assert len(one) == len(other)
            stack += zip(one, other, strict=True)
        else:
            assert isinstance(one, nvm.Tensor)
            assert one.shape == np.shape(other)
            np.testing.assert_array_equal(one.numpy(), other)


def _bush(exe: nvm.Executable, rng: np.random.Generator, leaf: Callable[[], object]) -> ADTValue:
    """A random value whose shape no order of listing hides."""
    made = {c.name: c for c in exe.constructors}
    nodes = [made["Leaf"](leaf()) for _ in range(int(rng.integers(1, 9)))]
    while len(nodes) > 1:
        at = int(rng.integers(len(nodes) - 1))
        pair = nodes[at : at + 2]
        match int(rng.integers(3)):
            case 0:
                square = rng.standard_normal((2, 2)).astype(np.float32)
                small = rng.integers(-9, 9, int(rng.integers(4))).astype(np.int8)
                nodes[at : at + 2] = [made["Mixed"](pair[0], 7, square, (pair[1], small))]
            case 1:
                nodes[at : at + 2] = [made["Pair"](pair[0], made["Pair"](made["Bare"](), pair[1]))]
            case _:
                nodes[at : at + 2] = [made["Pair"](*pair)]
    return nodes[0]


@pytest.mark.parametrize(
    "leaf",
    [
        lambda rng: rng.standard_normal(3).astype(np.float32),
        lambda rng: rng.standard_normal(int(rng.integers(5))).astype(np.float32),
        lambda rng: rng.standard_normal(2000).astype(np.float32),  # too large to be copied
        lambda rng: rng.standard_normal(8).astype(np.float32)[:: int(rng.integers(1, 3))],
        lambda rng: rng.standard_normal(4).astype(np.dtype(np.float32, metadata={"a": 1})),
        lambda rng: np.empty(0, np.float32),
        lambda rng: np.zeros(3, [("a", "i1"), ("x", "f4")])["x"],  # not at whole strides
    ],
)
def test_values_of_many_tensors(forest: nvm.Executable, leaf) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(5)
    with nvm.VirtualMachine(forest) as machine:
        for number in range(12):
            one, two = (_bush(forest, rng, lambda: leaf(rng)) for _ in range(2))
            args = (one, number, (two, leaf(rng)))
            got = machine.run(*args)
            _assert_same(got, args)
            _assert_same(machine.run(*got), args)
            moved = machine.run(nvm.move(got[0]), number, nvm.move(got[2]))
            _assert_same(moved, args)


def test_what_is_wrong_in_a_large_value_is_named(forest: nvm.Executable) -> None:
    leaf, pair = forest.constructor("Leaf"), forest.constructor("Pair")
    good = leaf(np.zeros(3, np.float32))
    where = r"%b of @main, at \[0\]\.Pair\[1\]\.Pair\[0\]\.Leaf\[0\]|%b of @main\[0\]\.Pair\[1\]\.Pair\[0\]\.Leaf\[0\]"
    with nvm.VirtualMachine(forest) as machine:
        for bad in (np.zeros(3, ">f4"), None, "text", np.zeros(3), np.zeros(3, object), 2**70):
            wrong = pair(good, pair(leaf(bad), good))
            with pytest.raises(nvm.InvalidInput, match=where):
                machine.run(good, 1, (wrong, np.zeros(3, np.float32)))


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

    def __dlpack__(self, **options: Any) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class Negated(DLPackOnly):
    """What torch gives as the imaginary part of a conjugated tensor; its DLPack export leaves the sign out."""

    def is_neg(self) -> bool:
        return True


def test_negated_views_of_torch_are_refused(vm: nvm.VirtualMachine) -> None:
    with pytest.raises(
        nvm.errors.InvalidInputType, match=r"%x of @echo: .*negated view.*resolve_neg"
    ):
        vm.invoke("echo", Negated(np.ones((4, 6), np.float32)))


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


def described(*arrays: np.ndarray[Any, Any]) -> Any:
    """nvm_arg of arrays of one shape, which all point to the same sizes, as a C program may write them."""
    shape = ffi.new("int64_t[]", arrays[0].shape)
    args = ffi.new("nvm_arg[]", len(arrays))
    for arg, array in zip(args, arrays, strict=True):
        arg.kind, arg.dtype, arg.rank = lib.NVM_ARG_TENSOR, DTYPE_NUMBERS[array.dtype], array.ndim
        arg.dl_device_type, arg.shape = 1, shape
        arg.data = ffi.cast("void *", array.ctypes.data)
    _KEPT[args] = shape
    return args


_KEPT: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def raw_call(vm: nvm.VirtualMachine, args: Any) -> Any:
    """The result of @main in C; raises what check() makes of the status."""
    out = ffi.new("nvm_result **")
    check(lib.nvm_vm_call(vm._handle, b"main", args, len(args), out))
    return out[0]


def test_memory_of_a_tensor_like_the_one_before_is_looked_at() -> None:
    exe = nvm.compile(
        nvm.relay.parse(
            """#[version = "0.0.5"]
def @main(%a: Tensor[(40), float32], %b: Tensor[(40), float32]) { subtract(%b, %a) }"""
        )
    )
    a = np.arange(40, dtype=np.float32)
    memory = np.zeros(4 * 40 + 1, np.uint8)
    odd = memory[1:].view(np.float32)  # not aligned
    odd[:] = 2 * a
    with nvm.VirtualMachine(exe) as vm:
        for b in (2 * a, odd):
            result = raw_call(vm, described(a, b))
            values = ffi.buffer(lib.nvm_result_values(result)[0].data, a.nbytes)
            np.testing.assert_array_equal(np.frombuffer(values, np.float32), a)
            lib.nvm_result_free(result)
        args = described(a, a)
        args[1].data = ffi.NULL
        with pytest.raises(nvm.InvalidInput, match="%b of @main: 160 bytes at address NULL"):
            raw_call(vm, args)
        args[1].data, args[1].dl_device_type = args[0].data, 2
        with pytest.raises(nvm.InvalidInput, match="%b of @main: expected host memory"):
            raw_call(vm, args)
