"""compile(): arguments, parameters, options."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.driver import bind_params, compile_to_bytes
from nimblevm.errors import CompileError

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %w: Tensor[(3, 4), float32]) { nn.dense(%x, %w) }
"""
W = np.arange(12, dtype="float32").reshape(3, 4)


def test_params_become_constants() -> None:
    exe = nvm.compile(nvm.relay.parse(TEXT), params={"w": W}, native=False)
    with nvm.VirtualMachine(exe) as vm:
        x = np.ones((2, 4), "float32")
        np.testing.assert_allclose(vm.run(x).numpy(), x @ W.T)


def test_a_param_of_another_shape_is_refused() -> None:
    with pytest.raises(CompileError, match=r"%w is declared .* but the value is float32 of shape"):
        bind_params(nvm.relay.parse(TEXT), {"w": W[:, :3]})


def test_an_unknown_param_is_refused() -> None:
    with pytest.raises(CompileError, match="params names v, but @main has the parameters x, w"):
        bind_params(nvm.relay.parse(TEXT), {"v": W})


def test_a_function_becomes_main() -> None:
    x = nvm.relay.var("x", shape=(2,), dtype="float32")
    exe = nvm.compile(nvm.relay.Function([x], nvm.relay.tanh(x)), native=False)
    with nvm.VirtualMachine(exe) as vm:
        np.testing.assert_allclose(vm.run(np.zeros(2, "float32")).numpy(), np.zeros(2))


def test_native_false_writes_no_machine_code_and_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exe = nvm.compile(nvm.relay.parse(TEXT), native=False)
    assert all(section.kind != "native code" for section in exe.sections)
    assert not any(kernel.native for kernel in exe.kernels)


def test_equal_programs_give_equal_bytes_native_code_included() -> None:
    first = compile_to_bytes(nvm.relay.parse(TEXT))
    assert compile_to_bytes(nvm.relay.parse(TEXT)) == first


def test_times_of_passes_are_reported() -> None:
    seen: dict[str, float] = {}
    compile_to_bytes(nvm.relay.parse(TEXT), native=False, on_pass=seen.__setitem__)
    assert {"insert_checks", "to_anf", "fuse_ops", "plan_memory"} <= set(seen)
