"""Files that name devices, opened with native=False: what they get, and what they can't do."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm._ffi import ffi, lib
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import serialize
from nimblevm.errors import DeviceError, KernelError, MemoryLimit, NimbleError
from nimblevm.external import unregister_runtime

LEFT_OVER = """
.device "cpu"
.device "simulated"
.type Tensor[(256), uint8]
.func @fill public [%x: t0] -> t0
  DeviceCopy r1, r0, dev1
  DeviceCopy r2, r1, dev0
  Ret r2
.end
.func @look public [] -> t0
  AllocTensor r0, _, 0, [256], uint8, dev1
  DeviceCopy r1, r0, dev0
  Ret r1
.end
"""


def test_no_run_sees_what_is_left_in_the_memory_of_a_device() -> None:
    exe = nvm.Executable.from_bytes(serialize(assemble(LEFT_OVER)), native=False)
    with nvm.VirtualMachine(exe) as vm:
        assert vm.devices == ("cpu", "simulated")
        for value in (7, 9):
            given = np.full(256, value, np.uint8)
            assert (vm.invoke("fill", given).numpy() == given).all()
            assert not vm.invoke("look").numpy().any()


def constants(count: int) -> bytes:
    """A file with `count` constants on a device, all on the same mebibyte."""
    program = assemble(
        '.device "cpu"\n.device "simulated"\n.const uint8 [1] dev1 values 0\n.type int64\n'
        ".func @main public [] -> int t0\n  LoadConsti i0, 1\n  Ret i0\n.end\n"
    )
    one = replace(program.constants[0], data=bytes(1 << 20), dims=(1 << 20,))
    return serialize(replace(program, constants=(one,) * count))


def test_constants_on_devices_take_a_bounded_multiple_of_the_file() -> None:
    with nvm.VirtualMachine(nvm.Executable.from_bytes(constants(32), native=False)) as vm:
        assert vm.stats()["live_bytes"] >> 20 == 32
    exe = nvm.Executable.from_bytes(constants(33), native=False)
    with pytest.raises(MemoryLimit, match="constants on devices take more than 16 times"):
        nvm.VirtualMachine(exe)
    with nvm.VirtualMachine(exe, "cpu") as vm:
        assert np.asarray(vm.run()) == 1


NO_DRIVER = """
import nimblevm as nvm
from nimblevm.errors import DeviceError
text = '#[version = "0.0.5"] def @main(%x: Tensor[(4), float32]) { tanh(%x) }'
data = nvm.compile(nvm.relay.parse(text), device="opencl,cuda").to_bytes()
exe = nvm.load(data, native=False)
try:
    nvm.VirtualMachine(exe)
except DeviceError as error:
    assert "opencl: the file's code for it is not used, as native=False asks" in str(error), error
assert nvm.VirtualMachine(exe, fallback=True).devices == ("cpu", "cpu")
maps = open("/proc/self/maps").read()
assert "libOpenCL" not in maps and "libcuda" not in maps and "libpocl" not in maps
"""


def test_no_driver_is_loaded_for_a_stranger() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_DRIVER], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("status", [-5, 12345, 22])
def test_a_runtime_that_fails_without_a_reason(status: int) -> None:
    """In C: whatever status it returns becomes a typed error with a message of its own, not of an earlier fault."""

    def fail(*_: object) -> int:
        return status

    create = ffi.callback(
        "nvm_status(void *, const void *, size_t, const char *, const nvm_signature *, void **)",
        fail,
    )
    run = ffi.callback("nvm_status(void *, const nvm_kernel_ctx *, void *const *, int64_t *)", fail)
    destroy = ffi.callback("void(void *)", fail)
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 4), float32], %w: Tensor[(3, 4), float32]) { nn.dense(%x, %w) }'
    data = nvm.compile(nvm.relay.parse(text), external="blas").to_bytes()
    record = ffi.new("nvm_external_runtime *")
    name = ffi.new("char[]", b"blas")
    record.size, record.name = ffi.sizeof("nvm_external_runtime"), name
    record.create, record.run, record.destroy = create, run, destroy
    assert lib.nvm_external_register(record) == 0
    try:
        with pytest.raises(DeviceError):  # leaves another message
            nvm.VirtualMachine(nvm.load(data), "simulated")
        with pytest.raises(
            NimbleError, match=f'"blas" refuses kernel .* with status {status}'
        ) as caught:
            nvm.VirtualMachine(nvm.load(data))
        assert isinstance(caught.value, DeviceError if status == 22 else KernelError)
        if status == 22:  # it lacks something: the kernel has another body
            assert nvm.VirtualMachine(nvm.load(data), fallback=True).devices == ("cpu",)
    finally:
        unregister_runtime("blas")
