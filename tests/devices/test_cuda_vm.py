"""Whole programs on "cuda", over the fake driver, and what NVIDIA's assembler says of all workloads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.cli.values import to_json
from nimblevm.errors import DeviceError, IndexOutOfRange, OutOfMemory
from nimblevm.kernels import llvm
from tests.devices.cuda_programs import compiled, fake_gpus
from tests.devices.fake_cuda import driver as fake
from tests.kernels import ptxas
from tests.workloads.small import SMALL, Small
from tests.workloads.test_targets import compare

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or not llvm.HAVE_LLVM, reason="no gcc, or no llvmlite"
)
OUT_OF_MEMORY, CALLS = 2, 2
PICK = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n), float32], %i: Tensor[(?m), int64]) {
    tanh(gather(exp(%x), %i, axis=0)) }"""


@pytest.fixture
def gpus() -> Iterator[fake.Driver]:
    with fake_gpus() as driver:
        yield driver


@pytest.fixture(scope="module")
def pick() -> nvm.Executable:
    return nvm.load(compiled(nvm.relay.parse(PICK, source_name="pick.rly"))[0])


def picked(x: Any, i: Any) -> Any:
    return np.tanh(np.exp(x)[i])


VALUES, PLACES = (
    np.linspace(-1, 1, 50).astype(np.float32),
    np.arange(40, dtype=np.int64)[::-1].copy(),
)


def test_a_program_runs_on_a_gpu(gpus: fake.Driver, pick: nvm.Executable) -> None:
    with nvm.VirtualMachine(pick, device="cuda:1") as vm:
        for n in (50, 1, 30):
            np.testing.assert_allclose(
                vm.run(VALUES[:n], PLACES % n).numpy(), picked(VALUES[:n], PLACES % n), rtol=1e-5
            )
    state = gpus.state()
    assert (state.launches, state.copies_in) == (9, 6)


def test_a_fault_names_the_kernel_and_the_vm_works_on(
    gpus: fake.Driver, pick: nvm.Executable
) -> None:
    with nvm.VirtualMachine(pick) as vm:
        for _ in range(2):
            with pytest.raises(
                IndexOutOfRange, match=r"kernel .*gather.*50 is outside of an axis of size 50"
            ):
                vm.run(VALUES, PLACES + 11)
            np.testing.assert_allclose(
                vm.run(VALUES, PLACES).numpy(), picked(VALUES, PLACES), rtol=1e-5
            )


def test_without_a_gpu_the_file_says_what_it_wants_or_runs_on_the_host(
    gpus: fake.Driver, pick: nvm.Executable
) -> None:
    gpus.set("devices", 0)
    with pytest.raises(DeviceError, match="cuda"):
        nvm.VirtualMachine(pick)
    with nvm.VirtualMachine(pick, fallback=True) as vm:
        np.testing.assert_allclose(
            vm.run(VALUES, PLACES).numpy(), picked(VALUES, PLACES), rtol=1e-5
        )


@pytest.mark.parametrize("result", [OUT_OF_MEMORY, 9999])
def test_every_call_of_the_driver_may_fail(
    gpus: fake.Driver, pick: nvm.Executable, result: int
) -> None:
    """In a VM's life: it is made, runs twice, ends."""
    with nvm.VirtualMachine(pick) as vm:
        vm.run(VALUES, PLACES)
        vm.run(VALUES, PLACES)
        lived = gpus.state().calls
    errors = (OutOfMemory, DeviceError)
    for nth in range(1, lived + 1):
        gpus.reset()
        gpus.fail(nth, result)
        try:
            vm = nvm.VirtualMachine(pick)
        except errors:
            assert gpus.state().held() == {}, nth
            continue
        with vm:
            for _ in range(2):
                try:
                    found = vm.run(VALUES, PLACES).numpy()
                except errors:
                    continue
                np.testing.assert_allclose(found, picked(VALUES, PLACES), rtol=1e-5)
            np.testing.assert_allclose(
                vm.run(VALUES, PLACES).numpy(), picked(VALUES, PLACES), rtol=1e-5
            )
        assert gpus.violations() == "", nth
        assert gpus.state().held() == {}, nth


def results(exe: nvm.Executable, work: Small, **options: Any) -> list[Any]:
    """What a few calls give, as JSON values; the same calls every time."""
    rng = np.random.default_rng(11)
    with nvm.VirtualMachine(exe, **options) as vm:
        return [to_json(vm.invoke(work.function, *work.inputs(exe, rng))) for _ in range(CALLS)]


def check_workload(name: str) -> None:
    """Its results are the CPU's, and the assembler takes its PTX: tiles spill nothing, other kernels at most some
    registers around a division of 64 bits.
    """
    work = SMALL[name]
    data, payload = compiled(work.module())
    exe = nvm.load(data)
    compare(results(exe, work), results(exe, work, device="cpu"))
    if ptxas.path():
        source = msgpack.unpackb(payload, strict_map_key=False)["source"]
        for arch in ptxas.ARCHS:
            for use in ptxas.assemble(source, arch):
                assert use.spills == 0 or (not use.shared and use.spills <= 64), use


def test_a_workload(gpus: fake.Driver) -> None:
    check_workload("chain")
    state = gpus.state()
    assert state.copies_out == CALLS, "one copy an output, none a step"


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in SMALL if n != "chain"])
def test_workloads(gpus: fake.Driver, name: str) -> None:
    check_workload(name)
