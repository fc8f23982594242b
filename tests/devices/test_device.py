"""Devices by name, and the null device, which runs any executable and computes nothing."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm._ffi import check, ffi, lib
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import serialize
from nimblevm.devices import Device, available, backends, cpu, null
from nimblevm.errors import DeviceError

PROGRAM = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %w: Tensor[(3, 4), float32]) -> Tensor[(?n, 3), float32] {
  tanh(nn.dense(%x, %w))
}
"""


def test_backends_of_this_build() -> None:
    assert list(backends())[:2] == ["cpu", "null"]
    assert backends()["cpu"].host_accessible
    assert backends()["cpu"].dlpack_type == 1
    assert available()[:2] == (Device("cpu"), Device("null"))


def test_text_of_a_device() -> None:
    assert str(Device.of("cpu")) == "cpu:0"
    assert Device.of("cpu:0") == Device("cpu", 0) == Device.of(Device("cpu"))


@pytest.mark.parametrize("text", ["abacus", "cpu:x", "cpu:1", "cpu:", "", "cpu:-1"])
def test_wrong_names(text: str) -> None:
    with pytest.raises(nvm.errors.DeviceError, match=r"abacus|cpu|no device backend ''"):
        Device.of(text)


def test_threads_are_limited_by_affinity() -> None:
    assert cpu.available_threads() >= 1


def test_null_records_and_computes_nothing() -> None:
    exe = nvm.compile(nvm.relay.parse(PROGRAM), native=False)
    before = null.counts()
    with nvm.VirtualMachine(exe, device="null") as vm:
        assert vm.device == Device("null")
        out = vm.run(np.ones((2, 4), np.float32), np.ones((3, 4), np.float32))
    did = null.counts() - before
    assert out.shape == (2, 3)
    assert out.dtype == "float32"
    assert not out.numpy().any()
    assert did.launches == 1
    assert did.allocs >= 1
    with nvm.VirtualMachine(exe, device=Device("cpu")) as vm:
        out = vm.run(np.ones((2, 4), np.float32), np.ones((3, 4), np.float32))
        np.testing.assert_allclose(out.numpy(), np.full((2, 3), np.tanh(4)), rtol=1e-6)
    assert (null.counts() - before).launches == 1


def test_an_ordinal_counts_devices_of_the_backend_that_is_named() -> None:
    """There is one simulated device, and any number of null ones."""
    text = '.device "cpu"\n.device "null"\n.device "simulated"\n.type int64\n'
    text += ".func @main public [] -> int t0\n  LoadConsti i0, 1\n  Ret i0\n.end\n"
    exe = nvm.Executable.from_bytes(serialize(assemble(text)))
    options, out = ffi.new("nvm_vm_options *"), ffi.new("nvm_vm **")
    name = ffi.new("char[]", b"null")
    options.size, options.threads, options.ordinal = ffi.sizeof("nvm_vm_options"), 1, 3
    with pytest.raises(DeviceError, match="one simulated device, 0; asked for 3"):
        check(lib.nvm_vm_create(exe.handle, options, out))
    options.device = name
    check(lib.nvm_vm_create(exe.handle, options, out))
    lib.nvm_vm_destroy(out[0])
