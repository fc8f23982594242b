"""A run on a GPU ends between two launches: when it is cancelled, takes too long, or is interrupted."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import Cancelled, InstructionLimit, TimeLimit
from nimblevm.kernels import llvm
from tests.devices.backend import needs_opencl
from tests.devices.cuda_programs import compiled, fake_gpus
from tests.devices.fake_cuda import driver as fake

LOOP = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n), float32], %steps: int32) -> Tensor[(?n), float32] {
  let %loop = fn (%i: int32, %x: Tensor[(?n), float32]) -> Tensor[(?n), float32] {
    if (%i < %steps) { %loop(%i + 1, tanh(%x)) } else { %x }
  };
  %loop(0, %x) }"""
X = np.linspace(-1, 1, 64, dtype=np.float32)
QUEUE = 256  # NVM_GPU_QUEUE
FOR_EVER = 1_000_000_000


@pytest.fixture(params=["cuda", pytest.param("opencl", marks=needs_opencl)])
def gpu(request: pytest.FixtureRequest) -> Iterator[tuple[nvm.Executable, fake.Driver | None]]:
    """A loop that is compiled for a device, and the driver if it is the fake one."""
    mod = nvm.relay.parse(LOOP)
    if request.param == "opencl":
        yield nvm.compile(mod, device="opencl", native=True), None
        return
    if shutil.which("gcc") is None or not llvm.HAVE_LLVM:
        pytest.skip("no gcc, or no llvmlite")
    with fake_gpus() as driver:
        yield nvm.load(compiled(mod)[0]), driver


def ended(vm: nvm.VirtualMachine, error: type[Exception]) -> float:
    """Seconds until a run without end is over, counted from when it should be."""
    since = time.monotonic()
    with pytest.raises(error):
        vm.run(X, FOR_EVER)
    return time.monotonic() - since


def test_cancel(gpu: tuple[nvm.Executable, fake.Driver | None]) -> None:
    exe, driver = gpu
    with nvm.VirtualMachine(exe) as vm:
        timer = threading.Timer(0.2, vm.cancel)
        timer.start()
        assert ended(vm, Cancelled) < 5
        timer.join()
        np.testing.assert_allclose(vm.run(X, 1).numpy(), np.tanh(X), rtol=1e-5)
        if driver is not None:  # a launch, and what is queued to read the record of faults
            assert 0 < driver.state().most_queued <= QUEUE + 8
    if driver is not None:
        assert driver.violations() == ""
        assert driver.state().held() == {}


def test_time_limit(gpu: tuple[nvm.Executable, fake.Driver | None]) -> None:
    exe, _ = gpu
    with nvm.VirtualMachine(exe, limits=nvm.Limits(seconds=0.2)) as vm:
        assert ended(vm, TimeLimit) < 5
        np.testing.assert_allclose(vm.run(X, 1).numpy(), np.tanh(X), rtol=1e-5)


def test_long_runs_wait_now_and_then(gpu: tuple[nvm.Executable, fake.Driver | None]) -> None:
    """Their results are those of short ones, and polling uses up no fuel."""
    exe, driver = gpu
    want = X
    for _ in range(1000):
        want = np.tanh(want)
    with nvm.VirtualMachine(exe, limits=nvm.Limits(instructions=100_000)) as vm:
        np.testing.assert_allclose(vm.run(X, 1000).numpy(), want, rtol=1e-4, atol=1e-6)
        if driver is not None:
            assert driver.state().most_queued <= QUEUE + 8
            assert driver.state().syncs >= 1000 // QUEUE
        with pytest.raises(InstructionLimit):
            vm.run(X, FOR_EVER)
