"""Loads, binds and runs through the Python binding while the n-th allocation of the library fails.

    python -m tests.vm.allocation_runner FOLDER

FOLDER holds _native.abi3.so built with NVM_TEST, and what test_allocation.py saved. Prints a JSON object: for each case
how many allocations failed, and how many of these were refused with a typed error.
"""

from __future__ import annotations

import gc
import importlib.machinery
import importlib.util
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST = 700
FOLDER = Path(sys.argv[1])


def _use_test_build(path: Path) -> Any:
    """Make that file nimblevm._native, before anything imports it."""
    loader = importlib.machinery.ExtensionFileLoader("nimblevm._native", str(path))
    spec = importlib.util.spec_from_file_location("nimblevm._native", path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nimblevm._native"] = module
    loader.exec_module(module)
    return module.lib


LIB = _use_test_build(FOLDER / "nimblevm" / "_native.abi3.so")

import numpy as np  # noqa: E402

import nimblevm as nvm  # noqa: E402
from nimblevm.errors import FileError, MachineCodeWarning, NimbleError, OutOfMemory  # noqa: E402


def _alike(got: bytes, expected: bytes) -> bool:
    if got == expected or len(got) != len(expected):
        return got == expected
    a, b = (np.frombuffer(data, np.float32) for data in (got, expected))
    return bool(np.allclose(a, b, atol=1e-5))


def _failing(what: Callable[[], bytes], expected: bytes, files: bool) -> tuple[int, int]:
    """Let each allocation of `what` fail once. Nothing else than OutOfMemory (with `files` FileError too) may come of it,
    nothing may stay, and the next time the result is right."""
    assert what() == expected
    gc.collect()
    held, refused = LIB.nvm_test_held(), 0
    for n in range(1, MOST + 1):
        LIB.nvm_test_fail_allocation(n)
        try:
            assert _alike(what(), expected)  # it did without: machine code, say
            caught = None
        except NimbleError as error:
            caught = error
        finally:
            left = LIB.nvm_test_fail_allocation(0)
        if caught is not None:
            assert isinstance(caught, OutOfMemory | FileError if files else OutOfMemory), caught
            assert isinstance(caught, MemoryError | OSError)
            assert str(caught)
            refused += 1
            caught = None
        assert what() == expected, n
        if LIB.nvm_test_held() != held:
            gc.collect()  # exceptions and tracebacks hold handles
        assert LIB.nvm_test_held() == held, (n, LIB.nvm_test_held(), held)
        if left > 0:
            return n - 1, refused
    return MOST, refused


def _load(name: str, **options: Any) -> Callable[[], bytes]:
    def load() -> bytes:
        with nvm.load(FOLDER / name, **options) as exe:
            return repr(list(exe.functions)).encode()

    return load


def _arguments(exe: nvm.Executable, name: str) -> tuple[Any, ...]:
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    if not name.startswith("treelstm"):
        return (x,)
    leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
    return (node(node(leaf(x[:1]), leaf(x[1:2])), leaf(x[2:])),)


def _bytes(value: Any) -> bytes:
    if isinstance(value, tuple):
        return b"".join(map(_bytes, value))
    return np.asarray(value.numpy()).tobytes()


def _whole(name: str, **options: Any) -> Callable[[], bytes]:
    """A file, a VM and a run, all made anew."""

    def whole() -> bytes:
        with (
            nvm.load(FOLDER / name, **options) as exe,
            nvm.VirtualMachine(exe, threads=1) as vm,
        ):
            return _bytes(vm.run(*_arguments(exe, name)))

    return whole


def _runs(vm: nvm.VirtualMachine, *args: Any) -> Callable[[], bytes]:
    """Runs of one VM, which keeps nothing between them."""

    def run() -> bytes:
        try:
            return _bytes(vm.run(*args))
        finally:
            vm.trim()

    return run


def _binds(exe: nvm.Executable, source: Any) -> Callable[[], bytes]:
    x = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)

    def bind() -> bytes:
        with exe.bind(source) as bound, nvm.VirtualMachine(bound, threads=1) as vm:
            return _bytes(vm.run(x))

    return bind


def main() -> None:
    warnings.simplefilter("ignore", MachineCodeWarning)
    found: dict[str, tuple[int, int]] = {}

    def case(name: str, what: Callable[[], bytes], files: bool = True) -> None:
        found[name] = _failing(what, what(), files)

    for name in ("lstm.nvm", "treelstm.nvm"):
        for native in (True, False):
            case(f"load {name}, native={native}", _load(name, native=native))
            case(f"whole {name}, native={native}", _whole(name, native=native))
        with nvm.load(FOLDER / name) as exe, nvm.VirtualMachine(exe, threads=1) as vm:
            case(f"run {name}", _runs(vm, *_arguments(exe, name)), files=False)
    late = nvm.load(FOLDER / "late.nvm")
    weights = dict(np.load(FOLDER / "late.npz"))
    case("bind arrays", _binds(late, weights))
    case("bind npz", _binds(late, FOLDER / "late.npz"))
    case("bind safetensors", _binds(late, FOLDER / "late.safetensors"))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
