"""What closes, what outlives what, and what a second thread or process may do."""

# mypy: disable-error-code="arg-type"
# Arguments of a wrong kind are what is tested.

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm

PROGRAM = """#[version = "0.0.5"]
type Pair { Pair(float32, float32) }
def @main(%x: Tensor[(?n, 2), float32]) -> Tensor[(?n, 2), float32] { %x + 1f }
def @other(%x: float32) -> float32 { %x + 2f }
def @pair(%p: Pair) -> float32 { match (%p) { Pair(%a, %b) => { %a + %b } } }
def @turns(%i: int64) -> int64 { if (%i == 0i64) { %i } else { @turns(%i - 1i64) } }
def @closure(%x: float32) -> fn (float32) -> float32 { fn (%y: float32) -> float32 { %x + %y } }
def @apply(%f: fn (float32) -> float32) -> float32 { %f(1f) }
"""
X = np.zeros((3, 2), np.float32)


@pytest.fixture(scope="module")
def data() -> bytes:
    return nvm.compile(nvm.relay.parse(PROGRAM), native=False).to_bytes()


@pytest.fixture
def exe(data: bytes) -> Iterator[nvm.Executable]:
    with nvm.load(data) as loaded:
        yield loaded


def test_vm_outlives_the_executable(exe: nvm.Executable) -> None:
    constructor = exe.constructor("Pair")
    functions = exe.functions
    vm = nvm.VirtualMachine(exe)
    exe.close()
    exe.close()
    gc.collect()
    assert vm.run(X).shape == (3, 2)  # nothing was looked up before the close
    assert float(vm.invoke("other", 1.0)) == 3
    assert float(vm.invoke("pair", constructor(1.0, 2.0))) == 3
    assert functions["other"].name == "other"
    for use in (lambda: exe.functions, lambda: exe.constructors, exe.to_bytes, exe.__enter__):
        with pytest.raises(nvm.errors.Closed, match="Executable is closed"):
            use()
    with pytest.raises(nvm.errors.Closed):
        nvm.VirtualMachine(exe)
    assert repr(exe) == "<Executable closed>"


def test_closed_vm(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm:
        out = vm.run(X)
    vm.close()
    for use in (lambda: vm.run(X), vm.stats, vm.trim, vm.cancel):
        with pytest.raises(nvm.errors.Closed, match="VirtualMachine is closed"):
            use()
    assert "closed" in repr(vm)
    np.testing.assert_array_equal(out.numpy(), X + 1)


def test_array_outlives_tensor_and_vm(exe: nvm.Executable) -> None:
    vm = nvm.VirtualMachine(exe)
    array = vm.run(X).numpy()
    shared = np.from_dlpack(vm.run(X))
    del vm
    gc.collect()
    np.testing.assert_array_equal(array, shared)


def test_vm_is_freed_without_the_collector(exe: nvm.Executable) -> None:
    gc.disable()
    try:
        vm = nvm.VirtualMachine(exe)
        vm.run(X)
        gone = weakref.ref(vm)
        del vm
        assert gone() is None
    finally:
        gc.enable()


def test_second_run_and_close_during_a_run(exe: nvm.Executable) -> None:
    vm = nvm.VirtualMachine(exe)
    raised: list[BaseException] = []

    def run() -> None:
        while not raised:
            try:
                vm.invoke("turns", 2**60)
            except nvm.VMBusy:  # the main thread was faster
                continue
            except nvm.Cancelled as error:
                raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    said = ""
    while not said:
        try:
            vm.run(X)
        except nvm.VMBusy as error:
            said = str(error)
    assert "one VM a thread" in said
    with pytest.raises(nvm.VMBusy):
        vm.close()
    while thread.is_alive():
        vm.cancel()
        thread.join(0.01)
    assert isinstance(raised[0], nvm.Cancelled)
    assert vm.run(X).shape == (3, 2)
    vm.close()


def test_handles(exe: nvm.Executable) -> None:
    one, two = nvm.VirtualMachine(exe), nvm.VirtualMachine(exe)
    handle = one.invoke("closure", 2.0)
    assert float(one.invoke("apply", handle)) == 3
    assert repr(handle).startswith("<Handle of <VirtualMachine")
    with pytest.raises(nvm.InvalidInput, match="belongs to another VirtualMachine"):
        two.invoke("apply", handle)
    with pytest.raises(nvm.InvalidInput, match=r"%x of @main"):
        one.run(handle)
    one.close()
    with pytest.raises(nvm.errors.Closed):
        one.invoke("apply", handle)
    del one, handle
    gc.collect()


@pytest.mark.parametrize("copier", [pickle.dumps, copy.copy, copy.deepcopy])
def test_handles_can_not_be_copied(exe: nvm.Executable, copier: Any) -> None:
    vm = nvm.VirtualMachine(exe)
    for value, hint in (
        (exe, "to_bytes"),
        (vm, "from the Executable"),
        (vm.invoke("closure", 1.0), "belongs to"),
    ):
        with pytest.raises(TypeError, match=hint):
            copier(value)
    out = vm.run(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(out)).numpy(), out.numpy())


def test_fork(exe: nvm.Executable) -> None:
    vm = nvm.VirtualMachine(exe, threads=2)
    vm.run(X)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # nothing of pytest may run here
        try:
            os.write(writer, vm.run(X).numpy().tobytes())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        got = pipe.read()
    os.waitpid(child, 0)
    assert got == (X + 1).tobytes()
    assert vm.run(X).shape == (3, 2)


def _in_child(path: str) -> float:
    with nvm.load(path) as exe, nvm.VirtualMachine(exe) as vm:
        return float(vm.invoke("other", 5.0))


def test_two_processes_share_a_file(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.nvm"
    path.write_bytes(data)
    with nvm.load(path) as exe, nvm.VirtualMachine(exe) as vm:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(_in_child, (str(path),)) == 7 == float(vm.invoke("other", 5.0))


class NoArray:
    """What claims to be an array and is none."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return 7


class Interface:
    """An array by numpy's older protocol."""

    __array_interface__ = X.__array_interface__


WRONG = [
    (lambda exe: nvm.VirtualMachine("model.nvm"), TypeError, r"nvm\.load\(path\)"),
    (lambda exe: nvm.VirtualMachine(exe, threads=0), ValueError, "threads must be >= 1"),
    (lambda exe: nvm.VirtualMachine(exe, threads=1.5), TypeError, "threads must be a whole number, not float"),
    (lambda exe: nvm.VirtualMachine(exe, threads=True), TypeError, "not bool"),
    (lambda exe: nvm.VirtualMachine(exe, threads=2**40), ValueError, r"threads must be .* < 2\*\*31"),
    (lambda exe: nvm.VirtualMachine(exe).run(X.astype(">f4")), nvm.errors.InvalidInputType, r'x.astype\("float32"\) is'),
    (lambda exe: nvm.VirtualMachine(exe).run(X.astype("f8")), nvm.errors.InvalidInputType, "got float64; convert it first"),
    (lambda exe: nvm.VirtualMachine(exe).run(NoArray()), nvm.errors.InvalidInputType, "%x of @main: no array"),
    (lambda exe: nvm.VirtualMachine(exe, limits={"seconds": 1}), TypeError, r"nvm\.Limits"),
    (lambda exe: nvm.VirtualMachine(exe, device=0), TypeError, "a name such as"),
    (lambda exe: nvm.VirtualMachine(exe, device="tpu"), nvm.errors.DeviceError, "it has: cpu, null"),
    (lambda exe: nvm.VirtualMachine(exe, device="cuda"), nvm.errors.DeviceError, "was compiled for cpu"),
    (lambda exe: nvm.VirtualMachine(exe).invoke(3), TypeError, "must be a str"),
    (lambda exe: nvm.VirtualMachine(exe).invoke("no"), KeyError, "the executable has @apply|@main"),
    (lambda exe: nvm.Limits(bytes="1GB"), TypeError, "limit bytes must be a number"),
    (lambda exe: nvm.Limits(seconds=float("inf")), ValueError, "None is no limit"),
    (lambda exe: nvm.Limits(objects=True), TypeError, "not bool"),
    (lambda exe: nvm.Limits(objects=1.5), ValueError, "whole number"),
    (lambda exe: nvm.load(3), TypeError, "a path or the bytes"),
    (lambda exe: nvm.load("a\0b"), nvm.errors.FileError, "NUL"),
]  # fmt: skip


@pytest.mark.parametrize(("use", "kind", "text"), WRONG)
def test_wrong_types_at_the_door(
    exe: nvm.Executable, use: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        use(exe)


def test_limits_in_floats(exe: nvm.Executable) -> None:
    limits = nvm.Limits(bytes=1e9, seconds=1e12)
    with nvm.VirtualMachine(exe, limits=limits) as vm:
        assert vm.run(X).shape == (3, 2)


def test_uncalled_constructor_gets_a_hint(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm, pytest.raises(nvm.InvalidInput, match=r"call it: Pair\("):
        vm.invoke("pair", exe.constructor("Pair"))
    assert repr(exe.constructors) == "(tuple, Pair)"


def test_list_gets_a_hint(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm, pytest.raises(nvm.InvalidInput) as caught:
        vm.run([[1.0, 2.0]])
    assert "numpy.asarray" in caught.value.__notes__[0]


def test_any_stride_is_copied(exe: nvm.Executable) -> None:
    packed = np.zeros((3, 2), [("a", "f4"), ("b", "i1")])
    packed["a"] = np.arange(6).reshape(3, 2)
    big = np.arange(12, dtype=np.float32).reshape(6, 2)
    with nvm.VirtualMachine(exe) as vm:
        for array in (
            packed["a"],
            big[::-2],
            np.asfortranarray(big),
            big[:0],
            memoryview(big),
            Interface(),
        ):
            np.testing.assert_array_equal(vm.run(array).numpy(), np.asarray(array) + 1)


def test_tensor_is_handy(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm:
        out, number = vm.run(X), vm.invoke("turns", 0)
    assert (out.size, out.nbytes, out.ndim, len(out)) == (6, 24, 2, 3)
    assert out.tolist() == [[1.0, 1.0]] * 3
    assert out[1, 0] == 1
    assert [row.shape for row in out] == [(2,)] * 3
    assert "abc"[number] == "a"
    with pytest.raises(TypeError):
        "abc"[out]
