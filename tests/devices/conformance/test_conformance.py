"""What nvm_device.h promises, on every backend (backends.py), unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.devices import backends
from nimblevm.errors import (
    DeviceError,
    IndexOutOfRange,
    InvalidExecutable,
    NimbleError,
    OutOfMemory,
    Unsupported,
)
from tests.devices.conformance.backends import ADD_ONE, CASES, GATHER, Case
from tests.devices.conformance.driver import API_VERSION, Array, Device

REFUSED = (InvalidExecutable, Unsupported, DeviceError)


@pytest.fixture(params=CASES, ids=lambda c: c.name)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    found: Case = request.param
    if reason := found.skip():
        pytest.skip(reason)
    with found.machine():
        yield found


@pytest.fixture
def device(case: Case) -> Iterator[Device]:
    with Device(case.name) as opened:
        yield opened


class Kernels:
    """The suite's kernels on a device."""

    def __init__(self, case: Case, device: Device) -> None:
        self.device = device
        self.module: int | None = None
        self.code: dict[int, int | None] = {ADD_ONE: None, GATHER: None}
        if case.section is not None:
            section = case.section()
            self.module = device.load(section.kind, section.target, section.code)
            for kernel, name in ((ADD_ONE, "add_one"), (GATHER, "gather")):
                self.code[kernel] = device.find(self.module, kernel, name)

    def launch(self, kernel: int, bufs: list[int], dims: list[int]) -> None:
        self.device.launch(kernel, self.code[kernel], bufs, dims)

    def close(self) -> None:
        if self.module is not None:
            self.device.unload(self.module)


@pytest.fixture
def kernels(case: Case, device: Device) -> Iterator[Kernels]:
    if not case.computes:
        pytest.skip("it computes nothing")
    found = Kernels(case, device)
    yield found
    found.close()


def numbers(n: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, n, dtype=np.uint8)


# --- the table ------------------------------------------------------------------------------------


def test_every_backend_is_in_the_suite() -> None:
    assert set(backends()) == {c.name for c in CASES}


def test_vtable(device: Device, case: Case) -> None:
    table = device.table
    assert table.api_version == API_VERSION
    assert table.name.decode() == case.name
    assert not set(case.name) & set(",: ")
    required = ("open", "close", "alloc", "free", "copy_from_host", "copy_to_host", "copy_within", "sync", "launch")  # fmt: skip
    assert all(getattr(table, name) for name in required)
    modules = [bool(getattr(table, n)) for n in ("load_module", "unload_module", "find_kernel")]
    assert len(set(modules)) == 1
    assert table.host_code or all(modules)
    assert bool(table.host_code) == (case.section is None)


def test_there_is_no_device_of_a_large_number(case: Case) -> None:
    if case.name == "null":
        pytest.skip("any number of null devices")
    with pytest.raises(DeviceError, match=r"\d"):
        Device(case.name, 12345)


def test_two_devices_at_once(case: Case) -> None:
    with Device(case.name) as a, Device(case.name) as b:
        x, y = numbers(64, 1), numbers(64, 2)
        at_a, at_b = a.alloc(64), b.alloc(64)
        a.write(at_a, x)
        b.write(at_b, y)
        np.testing.assert_array_equal(a.read(at_a, x), x)
        np.testing.assert_array_equal(b.read(at_b, y), y)
        a.free(at_a, 64)
        b.free(at_b, 64)


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("alignment", [64, 256, 4096])
@pytest.mark.parametrize("size", [1, 63, 4097, 1 << 20])
def test_blocks_are_aligned_and_apart(device: Device, size: int, alignment: int) -> None:
    blocks = [device.alloc(size, alignment) for _ in range(3)]
    assert all(b % alignment == 0 for b in blocks)
    ends = sorted((b, b + size) for b in blocks)
    assert all(a[1] <= b[0] for a, b in pairwise(ends))
    for k, block in enumerate(blocks):
        device.write(block, np.full(size, k, np.uint8))
    for k, block in enumerate(blocks):
        assert (device.read(block, np.empty(size, np.uint8)) == k).all()
        device.free(block, size)


@pytest.mark.parametrize(("at", "size"), [(0, 1), (1, 7), (64, 192), (255, 1), (3, 250)])
def test_copies_at_offsets(device: Device, at: int, size: int) -> None:
    block, other = device.alloc(256), device.alloc(256)
    before, data = numbers(256, 3), numbers(size, 4)
    device.write(block, before)
    device.write(block, data, at)
    want = before.copy()
    want[at : at + size] = data
    np.testing.assert_array_equal(device.read(block, before), want)
    np.testing.assert_array_equal(device.read(block, data, at), data)
    device.write(other, before)
    device.copy(other, 256 - size, block, at, size)
    want = before.copy()
    want[256 - size :] = data
    np.testing.assert_array_equal(device.read(other, before), want)
    if size <= 64:  # inside one block, apart
        device.copy(block, 128 if at < 128 else 0, block, at, size)
        np.testing.assert_array_equal(device.read(block, data, 128 if at < 128 else 0), data)
    device.free(block, 256)
    device.free(other, 256)


def test_the_source_may_change_once_a_copy_returned(device: Device) -> None:
    block = device.alloc(1 << 20)
    data = numbers(1 << 20)
    want = data.copy()
    device.write(block, data)
    data[:] = 0
    device.sync()
    np.testing.assert_array_equal(device.read(block, data), want)
    device.free(block, 1 << 20)


def test_out_of_memory_is_an_error_and_no_end(device: Device) -> None:
    with pytest.raises(OutOfMemory, match=r"\d"):
        device.alloc(1 << 55)
    block = device.alloc(64)
    device.write(block, numbers(64))
    np.testing.assert_array_equal(device.read(block, numbers(64)), numbers(64))
    device.free(block, 64)


# --- code -----------------------------------------------------------------------------------------


def test_what_is_no_module_is_refused(device: Device, case: Case) -> None:
    if case.section is None:
        pytest.skip("it needs no code")
    good = case.section()
    cut = [good.code[:n] for n in (1, len(good.code) // 2, len(good.code) - 1)]

    def use(code: bytes) -> None:
        module = device.load(good.kind, good.target, code)
        try:  # it is empty, then, and has no such kernel
            device.find(module, ADD_ONE, "add_one")
        finally:
            device.unload(module)

    for code in (*case.bad, *cut):
        with pytest.raises(REFUSED):
            use(code)
    module = device.load(good.kind, good.target, good.code)
    assert device.find(module, ADD_ONE, "add_one")
    with pytest.raises(Unsupported):
        device.find(module, 7, "none")
    device.unload(module)


def test_a_kernel_at_an_offset(device: Device, kernels: Kernels) -> None:
    """Pointers to operands are memory plus a byte offset."""
    x = np.arange(1000, dtype=np.float32)
    source, out = device.alloc(8192), device.alloc(8192)
    device.write(source, x, 64)
    device.write(out, np.zeros(2048, np.float32))
    kernels.launch(ADD_ONE, [source + 64, out + 4096], [1000])
    np.testing.assert_array_equal(device.read(out, x, 4096), x + 1)
    np.testing.assert_array_equal(device.read(out, np.empty(1024, np.float32)), 0)
    device.free(source, 8192)
    device.free(out, 8192)


@pytest.mark.parametrize("n", [0, 1, 127, 4097])
def test_sizes_of_a_kernel(device: Device, kernels: Kernels, n: int) -> None:
    x = np.linspace(-1, 1, n, dtype=np.float32)
    size = 4 * max(n, 1)
    source, out = device.alloc(size), device.alloc(size)
    if n:
        device.write(source, x)
    kernels.launch(ADD_ONE, [source, out], [n])
    device.sync()
    if n:
        np.testing.assert_array_equal(device.read(out, x), x + np.float32(1))
    device.free(source, size)
    device.free(out, size)


def test_queued_work_runs_in_order(device: Device, kernels: Kernels) -> None:
    """Launches and copies without a wait between them, then one read."""
    n, size = 256, 1024
    a, b = device.alloc(size), device.alloc(size)
    device.write(a, np.zeros(n, np.float32))
    for _ in range(50):
        kernels.launch(ADD_ONE, [a, b], [n])
        device.copy(a, 0, b, 0, size)
    np.testing.assert_array_equal(device.read(a, np.empty(n, np.float32)), 50)
    device.write(b, np.full(n, 5, np.float32))
    kernels.launch(ADD_ONE, [b, a], [n])
    device.write(b, np.zeros(n, np.float32))  # after the launch has read it
    np.testing.assert_array_equal(device.read(a, np.empty(n, np.float32)), 6)
    device.free(a, size)
    device.free(b, size)


def test_memory_may_be_given_back_while_work_on_it_is_queued(
    device: Device, kernels: Kernels
) -> None:
    n, size = 1 << 16, 1 << 18
    for k in range(20):
        a, b = device.alloc(size), device.alloc(size)
        device.write(a, np.full(n, k, np.float32))
        kernels.launch(ADD_ONE, [a, b], [n])
        device.free(a, size)
        np.testing.assert_array_equal(device.read(b, np.empty(n, np.float32)), k + 1)
        device.free(b, size)


def test_faults_are_reported_and_the_device_works_on(
    device: Device, kernels: Kernels, case: Case
) -> None:
    if not case.reports:
        pytest.skip("its kernels report nothing")
    data, index, out = device.alloc(64), device.alloc(64), device.alloc(64)
    x = np.arange(4, dtype=np.float32)
    device.write(data, x)

    def gather(*wanted: int) -> Array:
        device.write(index, np.array(wanted, np.int32))
        kernels.launch(GATHER, [data, index, out], [len(wanted), 4])
        device.sync()
        return device.read(out, np.empty(len(wanted), np.float32))

    np.testing.assert_array_equal(gather(3, 0), [3, 0])
    for _ in range(2):
        with pytest.raises(IndexOutOfRange, match=r"kernel gather.*index 9 .*size 4"):
            gather(1, 9)
    device.sync()  # reported once
    np.testing.assert_array_equal(gather(2, 2, 1), [2, 2, 1])
    for block in (data, index, out):
        device.free(block, 64)


# --- in a VM --------------------------------------------------------------------------------------


def test_a_program(case: Case) -> None:
    """Compiled for it, loaded, run twice; timed by kernel; its copies counted."""
    if not case.general:
        pytest.skip("it runs kernels of its own external code alone")
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(?n, 8), float32], %w: Tensor[(5, 8), float32]) {
      let %y = nn.softmax(nn.dense(%x, %w)); (%y, sum(%y, axis=[1])) }"""
    device = None if case.name == "cpu" else case.name
    exe = nvm.load(nvm.compile(nvm.relay.parse(text), device=device).to_bytes())
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    w = np.ones((5, 8), np.float32)
    with nvm.VirtualMachine(exe, case.name, profile="events") as vm:
        for _ in range(2):
            y, total = vm.run(x, w)
            assert y.shape == (3, 5)
            if case.computes:
                np.testing.assert_allclose(y.numpy(), np.full((3, 5), 0.2), rtol=1e-5)
                np.testing.assert_allclose(total.numpy(), np.ones(3), rtol=1e-5)
        profile = vm.profile()
        assert sum(k.calls for k in profile.kernels) == 2 * len(exe.kernels)
        copies = vm.stats()
        assert copies["copies_to_device"] == (0 if device is None else 4)
    with nvm.VirtualMachine(exe, "cpu") as vm:
        np.testing.assert_allclose(vm.run(x, w)[0].numpy(), np.full((3, 5), 0.2), rtol=1e-5)


def test_a_vm_is_closed_after_a_failed_run(case: Case) -> None:
    if not case.reports:
        pytest.skip("its kernels report nothing")
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(4), float32], %i: Tensor[(2), int32]) {
      take(%x, %i, axis=0, mode="fast") }"""
    device = None if case.name == "cpu" else case.name
    exe = nvm.compile(nvm.relay.parse(text), device=device)
    with nvm.VirtualMachine(exe, case.name) as vm:
        with pytest.raises(NimbleError, match="kernel take"):
            vm.run(np.zeros(4, np.float32), np.array([0, 4], np.int32))
    nvm.VirtualMachine(exe, case.name).close()
