"""Runtimes of external code in Python: how they are found, called, and what becomes of their faults."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.external import Blob, External, Region, register_runtime, runtimes, unregister_runtime
from nimblevm.relay.dataflow_pattern import is_op, wildcard
from nimblevm.relay.types import TensorType

Arrays = Sequence[np.ndarray[Any, Any]]
TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %w: Tensor[(3, 4), float32]) {
  let %h = tanh(nn.dense(%x, %w));
  (%h, sum(%h, axis=[1]))
}"""
DENSE = is_op("nn.dense")(wildcard(), wildcard())
W = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def codegen(region: Region) -> Blob:
    return Blob(region.name.encode())


ALONE = External("testacc", [("testacc.dense", is_op("tanh")(DENSE))], codegen)
MERGED = External(
    "testacc",
    [("testacc.dense", DENSE), ("testacc.tanh", is_op("tanh")(wildcard()))],
    codegen,
    merge=True,
)


def run_dense(blob: bytes) -> Callable[..., None]:
    def run(inputs: Arrays, outputs: Arrays, dims: Sequence[int]) -> None:
        assert not inputs[0].flags.writeable
        assert outputs[0].flags.writeable
        assert dims == (inputs[0].shape[0],)
        outputs[0][...] = np.tanh(inputs[0] @ inputs[1].T)

    return run


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_runtime("testacc", run_dense)
    yield
    unregister_runtime("testacc")


def program(external: External | None = ALONE) -> nvm.Executable:
    chosen = () if external is None else external
    return nvm.compile(relay.parse(TEXT), {"w": W}, external=chosen, verify=True)


def expected(x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    return [np.tanh(x @ W.T), np.tanh(x @ W.T).sum(1)]


def check(vm: nvm.VirtualMachine, x: np.ndarray[Any, Any] = X) -> None:
    for got, want in zip(vm.run(x), expected(x), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("external", [ALONE, MERGED])
def test_runs_with_every_number_of_rows(external: External) -> None:
    vm = nvm.VirtualMachine(program(external))
    for rows in (1, 2, 0, 5):
        check(vm, np.ones((rows, 4), np.float32))


def test_no_copies() -> None:
    seen: list[int] = []

    def factory(blob: bytes) -> Callable[..., None]:
        def run(inputs: Arrays, outputs: Arrays, dims: Sequence[int]) -> None:
            seen.append(inputs[0].__array_interface__["data"][0])
            outputs[0][...] = 0

        return run

    register_runtime("testacc", factory)
    room = np.zeros(1 << 16, np.uint8)
    start = -room.__array_interface__["data"][0] % 64
    x = room[start : start + 4000 * 16].view(np.float32).reshape(4000, 4)
    nvm.VirtualMachine(program()).run(x)
    assert seen == [x.__array_interface__["data"][0]]


def test_missing_runtime_is_named() -> None:
    exe = program()
    unregister_runtime("testacc")
    with pytest.raises(nvm.errors.DeviceError, match=r'runtime "testacc".*there are blas'):
        nvm.VirtualMachine(exe)
    check(nvm.VirtualMachine(exe, fallback=True))
    check(
        nvm.VirtualMachine(nvm.load(exe.to_bytes(), native=False))
    )  # stranger's files run no code


def test_fallback_needs_loop_ir() -> None:
    """A product of a product is no kernel of ours."""
    text = TEXT.replace("nn.dense(%x, %w)", "nn.dense(nn.dense(%x, %w), %v)").replace(
        "%w: Tensor[(3, 4), float32]", "%w: Tensor[(3, 4), float32], %v: Tensor[(3, 3), float32]"
    )
    exe = nvm.compile(relay.parse(text), {"w": W, "v": W[:, :3]}, external=MERGED)
    unregister_runtime("testacc")
    ways: tuple[dict[str, Any], ...] = ({}, {"fallback": True})
    for options in ways:
        with pytest.raises(nvm.errors.DeviceError, match="testacc"):
            nvm.VirtualMachine(exe, **options)
    with pytest.raises(nvm.errors.DeviceError, match="alone, for testacc, and native=False"):
        nvm.VirtualMachine(nvm.load(exe.to_bytes(), native=False))


def test_exception_in_a_run_is_the_cause() -> None:
    def factory(blob: bytes) -> Callable[..., None]:
        def run(inputs: Arrays, outputs: Arrays, dims: Sequence[int]) -> None:
            if inputs[0][0, 0] < 0:
                raise ArithmeticError("too small")
            outputs[0][...] = np.tanh(inputs[0] @ inputs[1].T)

        return run

    register_runtime("testacc", factory)
    vm = nvm.VirtualMachine(program())
    with pytest.raises(
        nvm.errors.KernelError, match="runtime testacc: ArithmeticError: too small"
    ) as caught:
        vm.run(X)
    assert isinstance(caught.value.__cause__, ArithmeticError)
    check(vm, -X)  # it works on
    with pytest.raises(nvm.InvalidInput) as other:
        vm.run(X, X)
    assert other.value.__cause__ is None


def test_exception_in_a_factory() -> None:
    def refuse(blob: bytes) -> Callable[..., None]:
        raise nvm.InvalidExecutable("no code of mine")

    register_runtime("testacc", refuse)
    with pytest.raises(
        nvm.InvalidExecutable, match=r"refuses kernel testacc_dense_tanh: .*no code of mine"
    ):
        nvm.VirtualMachine(program())
    register_runtime("testacc", lambda blob: 7)  # type: ignore[arg-type, return-value]
    with pytest.raises(nvm.errors.DeviceError, match="gave a int, which can't be called"):
        nvm.VirtualMachine(program())
    check(nvm.VirtualMachine(program(), fallback=True))


def test_keyboard_interrupt_stops_the_run() -> None:
    def factory(blob: bytes) -> Callable[..., None]:
        def run(inputs: Arrays, outputs: Arrays, dims: Sequence[int]) -> None:
            raise KeyboardInterrupt

        return run

    register_runtime("testacc", factory)
    with pytest.raises(KeyboardInterrupt):
        nvm.VirtualMachine(program()).run(X)


def test_kept_operands_are_an_error() -> None:
    kept: list[Any] = []

    def factory(blob: bytes) -> Callable[..., None]:
        def run(inputs: Arrays, outputs: Arrays, dims: Sequence[int]) -> None:
            outputs[0][...] = 0
            kept.append(inputs[0][1:])

        return run

    register_runtime("testacc", factory)
    with pytest.raises(nvm.errors.KernelError, match="kept an operand beyond the call"):
        nvm.VirtualMachine(program()).run(X)


def test_circle_that_holds_operands_is_none() -> None:
    def factory(blob: bytes) -> Callable[..., None]:
        def run(inputs: Arrays, outputs: Arrays, dims: Sequence[int]) -> None:
            circle: list[Any] = [inputs]
            circle.append(circle)
            outputs[0][...] = np.tanh(inputs[0] @ inputs[1].T)

        return run

    register_runtime("testacc", factory)
    check(nvm.VirtualMachine(program()))


def test_vms_keep_the_runtime_they_were_made_with() -> None:
    old = nvm.VirtualMachine(program())

    def factory(blob: bytes) -> Callable[..., None]:
        def run(inputs: Arrays, outputs: Arrays, dims: Sequence[int]) -> None:
            outputs[0][...] = 0

        return run

    register_runtime("testacc", factory)
    new = nvm.VirtualMachine(program())
    check(old)
    assert not new.run(X)[0].numpy().any()
    assert "testacc" in runtimes()
    assert runtimes().count("testacc") == 1


def test_instances_are_of_one_vm() -> None:
    made: list[int] = []

    def factory(blob: bytes) -> Callable[..., None]:
        made.append(len(made))
        return run_dense(blob)

    register_runtime("testacc", factory)
    exe = program()
    vms = [nvm.VirtualMachine(exe) for _ in range(2)]
    assert made == [0, 1]

    def many(vm: nvm.VirtualMachine) -> None:
        for _ in range(50):
            check(vm)

    threads = [threading.Thread(target=many, args=(vm,)) for vm in vms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_names_that_are_refused() -> None:
    with pytest.raises(nvm.InvalidInput, match="device backend"):
        register_runtime("cpu", run_dense)
    with pytest.raises(nvm.InvalidInput, match="has a name"):
        register_runtime("", run_dense)
    with pytest.raises(TypeError, match="a int can't be"):
        register_runtime("x", 3)  # type: ignore[arg-type]


FRESH = """
import sys
import numpy as np
import nimblevm as nvm

def factory(blob):
    assert blob == b"testacc_dense_tanh"
    def run(inputs, outputs, dims):
        outputs[0][...] = np.tanh(inputs[0] @ inputs[1].T)
    return run

if sys.argv[2] == "with":
    nvm.external.register_runtime("testacc", factory)
vm = nvm.VirtualMachine(nvm.load(sys.argv[1]), fallback=sys.argv[2] == "fallback")
print(np.asarray(vm.run(np.ones((2, 4), np.float32))[1].numpy()).tolist())
assert "nimblevm.compiler" not in sys.modules and "nimblevm.relay" not in sys.modules
kept = vm  # closed when the interpreter ends
"""


@pytest.mark.parametrize("how", ["with", "fallback", "without"])
def test_saved_file_in_a_fresh_process(tmp_path: Path, how: str) -> None:
    program().save(tmp_path / "m.nvm")
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(tmp_path / "m.nvm"), how],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(Path(nvm.__file__).parent.parent)}, check=False,
    )  # fmt: skip
    if how == "without":
        assert "DeviceError" in done.stderr
        assert 'runtime "testacc"' in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    want = expected(np.ones((2, 4), np.float32))[1]
    np.testing.assert_allclose(eval(done.stdout), want, rtol=1e-5)


def test_codegen_that_fails_or_gives_nonsense() -> None:
    def raising(region: Region) -> Blob:
        raise RuntimeError("out of registers")

    def text(region: Region) -> Any:
        return "code"

    for bad, match in (
        (raising, "RuntimeError: out of registers"),
        (text, "expected a Blob of bytes or None, got str"),
    ):
        external = External("testacc", ALONE.patterns, bad)
        with pytest.raises(
            nvm.errors.CompileError, match=f"codegen of external backend testacc.*{match}"
        ):
            program(external)


def test_declined_is_as_without() -> None:
    external = External("testacc", ALONE.patterns, lambda region: None)
    assert program(external).to_bytes() == program(None).to_bytes()


def test_scratch_and_names_of_backends() -> None:
    def with_scratch(region: Region) -> Blob:
        return Blob(b"", (TensorType((region.inputs[0].shape[0], 7), "int32"),))

    def factory(blob: bytes) -> Callable[..., None]:
        def run(inputs: Arrays, outputs: Arrays, dims: Sequence[int]) -> None:
            assert [(o.shape, o.dtype.name) for o in outputs] == [
                ((2, 3), "float32"),
                ((2, 7), "int32"),
            ]
            outputs[1][...] = 1
            outputs[0][...] = np.tanh(inputs[0] @ inputs[1].T)

        return run

    register_runtime("testacc", factory)
    check(
        nvm.VirtualMachine(
            program(External("other", ALONE.patterns, with_scratch, runtime="testacc"))
        )
    )
    with pytest.raises(nvm.errors.CompileError, match="no external backend 'nonesuch'; known are"):
        nvm.compile(relay.parse(TEXT), external="nonesuch")
    with pytest.raises(ValueError, match="twice"):
        nvm.compile(relay.parse(TEXT), external=[ALONE, ALONE])


def test_names_of_backends() -> None:
    mod = relay.parse(TEXT)
    for given in (None, (), "", " , "):
        assert nvm.compile(mod, external=given, native=False).to_bytes()
    both = nvm.compile(mod, external="blas, vta", native=False).to_bytes()
    assert both == nvm.compile(mod, external=["blas", "vta"], native=False).to_bytes()
    with pytest.raises(
        nvm.errors.CompileError, match=r"no external backend 'bals'; known are.*did you mean blas\?"
    ):
        nvm.compile(mod, external="blas,bals")
    with pytest.raises(TypeError, match="external must be names"):
        nvm.compile(mod, external=["blas", 3])  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["", "a,b", "opencl:x", "a\0b", "na me", "vta"])
def test_names_that_are_none(name: str) -> None:
    """Commas and colons mean something in lists of devices and targets; a device's name is taken."""
    with pytest.raises(nvm.InvalidInput, match=r"runtime|device backend"):
        register_runtime(name, run_dense)
    assert name not in runtimes()
