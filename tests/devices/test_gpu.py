"""What needs an NVIDIA GPU: the calls of the backend, kernels and workloads that other tests run over the fake driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import DeviceError, IndexOutOfRange
from nimblevm.kernels import ptx
from nimblevm.kernels.device_support import supports
from tests.devices import backend, test_cuda, test_cuda_vm
from tests.devices.test_cuda_vm import PICK, PLACES, VALUES, picked
from tests.kernels.fused import FUSED
from tests.kernels.ir_random import check_grid, grid_cases
from tests.kernels.native import agree, program
from tests.kernels.test_ptx import SIZES, check_products, dense
from tests.workloads.small import SMALL
from tests.workloads.test_targets import compare

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True, scope="module")
def _gpu() -> None:
    try:
        backend.Session("cuda", ptx.payload(b"", {})).close()
    except DeviceError as error:
        if "no CUDA driver" in str(error) or "NO_DEVICE" in str(error):
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return test_cuda.harness(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def session(library: Any) -> Iterator[test_cuda.Session]:
    found = test_cuda.Session(library, test_cuda.code_of_kernels())
    assert found.open() == "OK", found.message
    yield found
    found.close()


def test_the_driver_compiles_and_runs(session: test_cuda.Session) -> None:
    test_cuda.test_a_kernel_runs_on_the_device(session)


def test_copies(session: test_cuda.Session) -> None:
    test_cuda.test_copies_of_all_sizes_and_offsets(session)


def test_order(session: test_cuda.Session) -> None:
    test_cuda.check_order(session)


def test_faults(session: test_cuda.Session) -> None:
    test_cuda.check_faults(session)


def test_blocks_are_aligned(session: test_cuda.Session) -> None:
    for alignment in (1, 256, 512, 4096):
        assert session.alloc(1000, alignment) == "OK"
        assert (session.blocks[-1].value or 0) % alignment == 0


def test_no_memory(session: test_cuda.Session) -> None:
    assert session.alloc(1 << 50) == "OUT_OF_MEMORY"
    assert "CUDA_ERROR_OUT_OF_MEMORY" in session.message
    test_cuda.test_a_kernel_runs_on_the_device(session)


def test_ptx_that_the_driver_refuses(session: test_cuda.Session) -> None:
    assert session.load(code=ptx.payload(b"no PTX", {})) == "DEVICE_ERROR"
    assert "CUDA_ERROR_INVALID_PTX" in session.message
    assert "ptxas" in session.message, "the compiler's own words"


def test_threads(library: Any) -> None:
    test_cuda.check_threads(library, test_cuda.code_of_kernels(), devices=1)


@pytest.mark.parametrize("name", FUSED)
def test_fused_kernels(name: str) -> None:
    row, expected = program(FUSED[name][0], *FUSED[name][1])
    if not supports(row.lowered.kernel):
        pytest.skip("it runs on the host")
    with backend.OnBackend("cuda", row.lowered.kernel) as device:
        for found, right in zip(row.run(device), expected, strict=True):
            assert agree(found, right, 1e-4, 1e-5)


def test_products() -> None:
    row, _ = dense(5, 40, 7)
    with backend.OnBackend("cuda", row.lowered.kernel) as device:
        check_products(device, (*SIZES, (1, 300, 512), (500, 700, 900)), 1e-3)


def test_random_kernels() -> None:
    """Integers and single operations bit for bit."""
    cases = grid_cases(range(100), locals_set=True)
    with backend.OnBackend("cuda", *(case.kernel for case in cases)) as device:
        check_grid(cases, device.call)


def test_a_vm_reports_faults_and_works_on() -> None:
    exe = nvm.compile(nvm.relay.parse(PICK, source_name="pick.rly"), device="cuda")
    with nvm.VirtualMachine(exe) as vm:
        for _ in range(3):
            with pytest.raises(IndexOutOfRange, match="gather"):
                vm.run(VALUES, PLACES + 11)
            np.testing.assert_allclose(
                vm.run(VALUES, PLACES).numpy(), picked(VALUES, PLACES), rtol=1e-5
            )


@pytest.mark.parametrize("name", SMALL)
def test_workloads(name: str) -> None:
    work = SMALL[name]
    exe = nvm.load(nvm.driver.compile_to_bytes(work.module(), device="cuda"))
    found = test_cuda_vm.results(exe, work)
    compare(found, test_cuda_vm.results(exe, work, device="cpu"))
