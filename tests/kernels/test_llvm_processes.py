"""Machine code made by several processes is what one makes."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.kernels import llvm, llvm_processes

OPERATORS = ("exp", "tanh", "sin", "cos", "sqrt", "erf")
BODY = ", ".join(f"sum({name}(%x))" for name in OPERATORS)
TEXT = f'#[version = "0.0.5"]\ndef @main(%x: Tensor[(?n), float32]) {{ ({BODY}) }}'

pytestmark = pytest.mark.skipif(not llvm.HAVE_LLVM, reason="llvmlite is not installed")


def _compiled(monkeypatch: pytest.MonkeyPatch, cores: int) -> bytes:
    monkeypatch.setattr(llvm, "PART_CHARACTERS", 1000)
    monkeypatch.setattr(llvm_processes, "cores", lambda: cores)
    return bytes(nvm.compile(nvm.relay.parse(TEXT)).to_bytes())


@pytest.mark.slow
def test_bytes_do_not_depend_on_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = _compiled(monkeypatch, 1)
    assert _compiled(monkeypatch, 3) == alone
    with nvm.load(alone) as exe, nvm.VirtualMachine(exe) as vm:
        assert all(kernel.native for kernel in exe.kernels)
        assert vm.run(np.zeros(2, np.float32))[0].numpy() == 2
        assert vm.run(np.zeros(2, np.float32))[3].numpy() == 2


@pytest.mark.slow
@pytest.mark.parametrize("python", ["/bin/false", "/nowhere/python", ""])
def test_a_process_that_fails_is_no_problem(monkeypatch: pytest.MonkeyPatch, python: str) -> None:
    alone = _compiled(monkeypatch, 1)
    monkeypatch.setattr(sys, "executable", python)
    assert _compiled(monkeypatch, 2) == alone


def test_an_error_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_processes, "cores", lambda: 2)
    info = llvm.parse_target("native")
    with pytest.raises(RuntimeError):
        llvm_processes.compile_all(["nonsense", "more nonsense"], info, llvm.compile_text)
