"""The backend "cuda" over the fake driver: calls, their order, and what becomes of each error that a driver may give."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nimblevm.errors import STATUSES
from nimblevm.kernels import llvm, ptx
from nimblevm.kernels import loop_ir as ir
from tests.devices.fake_cuda import driver as fake
from tests.native.build import NATIVE, make

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or not llvm.HAVE_LLVM, reason="no gcc, or no llvmlite"
)
STATUS = {row.name: row.number for row in STATUSES}
NAME = {row.number: row.name for row in STATUSES}
OUT_OF_MEMORY, ILLEGAL_ADDRESS = 2, 700
N = 100


def harness(folder: Path) -> Any:
    """The runtime with its backends, and cuda_harness.c."""
    make()
    target = folder / "harness.so"
    source = str(Path(__file__).with_name("cuda_harness.c"))
    includes = [f"-I{NATIVE / part}" for part in ("include", "src", "devices")]
    command = [
        "gcc",
        "-std=c11",
        "-O1",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        *includes,
        source,
    ]
    archive = f"-Wl,--whole-archive,{NATIVE / 'build' / 'libnimblevm.a'},--no-whole-archive"
    subprocess.run([*command, archive, "-lm", "-lpthread", "-ldl", "-o", str(target)], check=True)
    found = ctypes.CDLL(str(target))
    found.harness_message.restype = ctypes.c_char_p
    return found


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = harness(tmp_path_factory.mktemp("cuda"))
    assert found.nvm_cuda_driver_set(fake.path().encode()) == 0
    return found


@pytest.fixture
def cuda(library: Any) -> Iterator[fake.Driver]:
    """The driver's controls; afterwards nothing is left alive and no call broke a rule."""
    driver = fake.driver()
    with driver.gpus():
        yield driver
        assert driver.violations() == ""
        assert driver.state().held() == {}


def vector_kernel(name: str, value: Any, inputs: int = 2) -> ir.Kernel:
    """out[i] = value(loads at i, i) for i < n."""
    n = ir.DimRef("int64", 0)
    axes = (ir.Axis(n),)
    buffers = [ir.Buffer(f"x{k}", "float32", "in", axes) for k in range(inputs)]
    buffers.append(ir.Buffer("out", "float32", "out", axes))
    i = ir.LoopVar("int64", "i")
    loads = [ir.Load("float32", k, (i,)) for k in range(inputs)]
    body = ir.For(i, n, (ir.Store(inputs, (i,), value(loads, i)),), parallel=True)
    return ir.Kernel(name, tuple(buffers), ("n",), (body,))


def code_of_kernels() -> bytes:
    """Kernel 0 adds, kernel 3 checks that every i is below 64."""
    add = vector_kernel("add", lambda x, i: ir.Binary("float32", "add", *x))

    def checked(x: Any, i: ir.Value) -> ir.Value:
        index = ir.CheckIndex("int64", i, ir.Const("int64", 64), 1)
        return ir.Load("float32", 0, (index,))

    return ptx.generate([(0, add), (3, vector_kernel("checks", checked, 1))])


class Session:
    """One device and what was got from it. Calls give statuses by name."""

    def __init__(self, library: Any, code: bytes) -> None:
        self.library, self.code = library, code
        self.device, self.module = ctypes.c_void_p(), ctypes.c_void_p()
        self.kernels: dict[int, ctypes.c_void_p] = {}
        self.blocks: list[ctypes.c_void_p] = []

    def call(self, name: str, *args: Any) -> str:
        status = getattr(self.library, f"harness_{name}")(*args)
        self.message = self.library.harness_message().decode() if status else ""
        return NAME[status]

    def open(self, ordinal: int = 0) -> str:
        return self.call("open", ordinal, ctypes.byref(self.device))

    def load(self, code: bytes | None = None) -> str:
        data = self.code if code is None else code
        return self.call(
            "load",
            self.device,
            4,
            b"cuda",
            data,
            ctypes.c_size_t(len(data)),
            ctypes.byref(self.module),
        )

    def find(self, index: int, inputs: int) -> str:
        found = ctypes.c_void_p()
        status = self.call("find", self.device, self.module, index, inputs, ctypes.byref(found))
        self.kernels[index] = found
        return status

    def alloc(self, size: int, alignment: int = 64) -> str:
        block = ctypes.c_void_p()
        status = self.call(
            "alloc",
            self.device,
            ctypes.c_size_t(size),
            ctypes.c_size_t(alignment),
            ctypes.byref(block),
        )
        if status == "OK":
            self.blocks.append(block)
        return status

    def copy_in(self, block: int, data: Any, offset: int = 0) -> str:
        return self.call(
            "in",
            self.device,
            self.blocks[block],
            ctypes.c_size_t(offset),
            data.ctypes,
            ctypes.c_size_t(data.nbytes),
        )

    def copy_out(self, block: int, data: Any, offset: int = 0) -> str:
        return self.call(
            "out",
            self.device,
            data.ctypes,
            self.blocks[block],
            ctypes.c_size_t(offset),
            ctypes.c_size_t(data.nbytes),
        )

    def within(self, dst: int, dst_offset: int, src: int, src_offset: int, size: int) -> str:
        sizes = (
            ctypes.c_size_t(dst_offset),
            self.blocks[src],
            ctypes.c_size_t(src_offset),
            ctypes.c_size_t(size),
        )
        return self.call("within", self.device, self.blocks[dst], *sizes)

    def launch(self, kernel: int, blocks: list[int], n: int) -> str:
        bufs = (ctypes.c_void_p * len(blocks))(*(self.blocks[b].value for b in blocks))
        return self.call("launch", self.device, self.kernels[kernel], bufs, (ctypes.c_int64 * 1)(n))

    def sync(self) -> str:
        return self.call("sync", self.device)

    def close(self) -> None:
        for block in self.blocks:
            self.call("free", self.device, block, ctypes.c_size_t(1))
        if self.module:
            self.call("unload", self.device, self.module)
        if self.device:
            self.call("close", self.device)
        self.blocks, self.module, self.device = [], ctypes.c_void_p(), ctypes.c_void_p()


@pytest.fixture(scope="module")
def code() -> bytes:
    found = code_of_kernels()
    fake.add_payload(found)
    return found


@pytest.fixture
def session(library: Any, cuda: fake.Driver, code: bytes) -> Iterator[Session]:
    found = Session(library, code)
    assert found.open() == "OK"
    yield found
    found.close()


def ready(session: Session, blocks: int = 3) -> None:
    assert session.load() == "OK", session.message
    assert session.find(0, 2) == "OK"
    assert session.find(3, 1) == "OK"
    for _ in range(blocks):
        assert session.alloc(4 * N) == "OK"


def numbers(seed: int = 0, n: int = N) -> Any:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def test_a_kernel_runs_on_the_device(session: Session) -> None:
    ready(session)
    x, y, out = numbers(1), numbers(2), np.zeros(N, np.float32)
    assert [session.copy_in(0, x), session.copy_in(1, y), session.launch(0, [0, 1, 2], N)] == [
        "OK"
    ] * 3
    assert session.copy_out(2, out) == "OK"
    np.testing.assert_array_equal(out, x + y)


def check_order(session: Session) -> None:
    """Sources are overwritten at once; the fake driver reads them as late as it may."""
    ready(session)
    for turn in range(50):
        x, y = numbers(turn), numbers(turn + 100)
        right = 2 * x + y
        assert session.copy_in(0, x) == session.copy_in(1, y) == "OK"
        x[:] = y[:] = -1
        assert session.launch(0, [0, 1, 2], N) == "OK"
        assert session.within(1, 0, 2, 0, 4 * N) == "OK"
        assert session.launch(0, [0, 1, 2], N) == "OK"
    out = np.zeros(N, np.float32)
    assert session.copy_out(2, out) == "OK"
    np.testing.assert_allclose(out, right, rtol=1e-5, atol=1e-5)


def test_what_is_queued_keeps_its_order_and_no_host_memory(
    session: Session, cuda: fake.Driver
) -> None:
    check_order(session)
    assert cuda.state().syncs == 1


def test_copies_of_all_sizes_and_offsets(session: Session) -> None:
    size = 1 << 19
    assert session.alloc(size) == session.alloc(size) == "OK"
    rng = np.random.default_rng(5)
    shadow = np.zeros(size, np.uint8)
    assert session.copy_in(0, shadow) == "OK"
    for part in (0, 1, 3, 4096, 32768, 32769, 100_000, 262_144, 300_000):
        data = rng.integers(0, 256, part).astype(np.uint8)
        offset = int(rng.integers(0, size - part))
        shadow[offset : offset + part] = data
        assert session.copy_in(0, data, offset) == "OK"
        data[:] = 0
    assert session.within(1, 7, 0, 0, size - 7) == "OK"
    found = np.zeros(size - 7, np.uint8)
    assert session.copy_out(1, found, 7) == "OK"
    np.testing.assert_array_equal(found, shadow[: size - 7])


def test_many_small_copies_wait_only_when_their_staging_is_full(
    session: Session, cuda: fake.Driver
) -> None:
    assert session.alloc(1 << 20) == "OK"
    data = numbers(n=4096)
    for turn in range(64):
        assert session.copy_in(0, data, 16384 * turn) == "OK"
    assert cuda.state().syncs == 3


def test_a_fault_is_reported_once_and_the_device_works_on(session: Session) -> None:
    check_faults(session)


def check_faults(session: Session) -> None:
    ready(session)
    out = np.zeros(N, np.float32)
    assert session.copy_in(0, numbers()) == "OK"
    assert session.launch(3, [0, 1], N) == "OK"
    assert session.launch(3, [0, 1], N) == "OK"
    assert session.sync() == "INDEX_OUT_OF_RANGE"
    assert "the_kernel" in session.message
    assert "operand 1" in session.message
    assert "axis of size 64" in session.message
    assert session.sync() == "OK"
    assert session.launch(3, [0, 1], 64) == session.copy_out(1, out) == "OK"
    assert session.launch(3, [0, 1], N) == "OK"
    assert session.copy_out(1, out) == "INDEX_OUT_OF_RANGE"
    assert session.copy_out(1, out) == "OK"


def test_records_are_read_only_where_kernels_can_fail(session: Session, cuda: fake.Driver) -> None:
    ready(session)
    assert session.launch(0, [0, 1, 2], N) == session.sync() == "OK"
    assert cuda.state().copies_out == 0
    assert session.launch(3, [0, 1], 5) == session.sync() == session.sync() == "OK"
    assert cuda.state().copies_out == 1


def test_an_empty_grid_is_not_launched(session: Session, cuda: fake.Driver) -> None:
    ready(session)
    assert session.launch(0, [0, 1, 2], 0) == session.sync() == "OK"
    assert cuda.state().launches == 0


@pytest.mark.parametrize("alignment", [1, 64, 256, 512, 4096])
@pytest.mark.parametrize("pools", [0, 1])
def test_blocks_are_aligned(
    library: Any, cuda: fake.Driver, code: bytes, alignment: int, pools: int
) -> None:
    cuda.set("pools", pools)
    session = Session(library, code)
    assert session.open() == "OK"
    for size in (1, 5, 4096, 100_000):
        assert session.alloc(size, alignment) == "OK"
        assert (session.blocks[-1].value or 0) % alignment == 0
        data = np.arange(size, dtype=np.uint8)
        assert session.copy_in(-1, data) == "OK"
        found = np.zeros_like(data)
        assert session.copy_out(-1, found) == "OK"
        np.testing.assert_array_equal(found, data)
    session.close()
    assert ("cuMemAllocAsync" in cuda.trace()) == bool(pools)


def test_no_memory_is_an_error_of_its_own(session: Session, cuda: fake.Driver) -> None:
    cuda.set("memory", cuda.state().live_bytes + 1000)
    assert session.alloc(1001) == "OUT_OF_MEMORY"
    assert "CUDA_ERROR_OUT_OF_MEMORY" in session.message
    assert session.alloc(900, 4096) == "OUT_OF_MEMORY"
    assert session.alloc(900) == "OK"


def test_devices_by_number(library: Any, cuda: fake.Driver, code: bytes) -> None:
    session = Session(library, code)
    assert session.open(2) == "DEVICE_ERROR"
    assert "there is no device 2: this machine has 2" in session.message
    assert session.open(-1) == "DEVICE_ERROR"
    assert session.open(1) == "OK"
    session.close()


def test_code_for_a_later_gpu(session: Session, code: bytes) -> None:
    later = code.replace(b".target sm_70", b".target sm_86")
    assert session.load(code=later) == "UNSUPPORTED"
    assert "needs compute capability 8.6 or later, Fake GPU 0 has 7.0" in session.message


def test_a_later_gpu_takes_the_code(session: Session, cuda: fake.Driver) -> None:
    cuda.set("capability", 12, 0)
    assert session.load() == "OK"


def test_what_the_drivers_compiler_says_is_in_the_error(session: Session) -> None:
    broken = ptx.payload(b"no PTX", {})
    assert session.load(code=broken) == "DEVICE_ERROR"
    assert "no .target or .version" in session.message
    assert "driver of CUDA 12.4" in session.message
    assert "CUDA_ERROR_INVALID_PTX (218)" in session.message
    assert session.load(code=b"no map") == "INVALID_EXECUTABLE"
    missing = [["other", [[0, 1]] * 3, [1, 1, 1], [], [], 0, 0]]
    source = llvm.ptx(ptx.module_text([]), ptx.ARCH, ptx.PTX_VERSION).encode()
    fake.add_module(source)
    assert session.load(code=ptx.payload(source, {0: missing})) == "DEVICE_ERROR"
    assert "other" in session.message


def scenario(session: Session) -> list[str]:
    """Something of everything; the statuses in order, up to where it can't go on."""
    found = [session.open()]
    if found[-1] != "OK":
        return found
    found += [session.load()]
    if found[-1] != "OK":
        return found
    found += [session.find(0, 2), session.find(3, 1)]
    found += [session.alloc(4 * N), session.alloc(4 * N, 4096), session.alloc(1 << 18)]
    if "OUT_OF_MEMORY" in found or "DEVICE_ERROR" in found:
        return found
    out = np.zeros(N, np.float32)
    found += [
        session.copy_in(0, numbers()),
        session.copy_in(1, numbers(3)),
        session.copy_in(2, numbers(4, 65536)),
    ]
    found += [session.launch(0, [0, 1, 2], N), session.launch(3, [0, 1], N)]
    found += [session.within(1, 0, 2, 0, 4 * N), session.copy_out(2, out), session.sync()]
    return found


def test_every_call_may_fail(library: Any, cuda: fake.Driver, code: bytes) -> None:
    """Each call of the driver in turn fails once: a typed error with the driver's words comes of it, or where nothing
    depends on the call, none; nothing leaks, and the device, if it was opened, works on.
    """
    whole = Session(library, code)
    right = scenario(whole)
    assert [s for s in right if s != "OK"] == ["INDEX_OUT_OF_RANGE"]
    calls = cuda.state().calls
    whole.close()
    everything = cuda.trace()
    assert calls > 40
    for nth in range(1, len(everything) + 1):
        for result in (OUT_OF_MEMORY, 9999):
            cuda.reset()
            cuda.fail(nth, result)
            session = Session(library, code)
            found = scenario(session)
            cuda.fail(0, 0)
            failed = [s for s in found if s not in ("OK", "INDEX_OUT_OF_RANGE")]
            wanted = "OUT_OF_MEMORY" if result == OUT_OF_MEMORY else "DEVICE_ERROR"
            assert set(failed) <= {wanted}, (nth, everything[nth - 1], found)
            if session.module and len(session.blocks) == 3:
                out = np.zeros(N, np.float32)
                session.sync()
                x, y = numbers(7), numbers(8)
                assert session.copy_in(0, x) == session.copy_in(1, y) == "OK"
                assert session.launch(0, [0, 1, 2], N) == session.copy_out(2, out) == "OK"
                np.testing.assert_array_equal(out, x + y)
            session.close()
            assert cuda.violations() == "", (nth, everything[nth - 1])
            if nth > calls:  # what the driver refuses to take back stays
                cuda.forget()
            assert cuda.state().held() == {}, (nth, everything[nth - 1])


def test_sticky_errors_stay_errors(library: Any, cuda: fake.Driver, code: bytes) -> None:
    session = Session(library, code)
    assert session.open() == "OK"
    ready(session)
    cuda.fail(1, ILLEGAL_ADDRESS, "cuStreamSynchronize", sticky=True)
    assert session.launch(0, [0, 1, 2], N) == "OK"
    out = np.zeros(N, np.float32)
    for _ in range(3):
        assert session.copy_out(2, out) == "DEVICE_ERROR"
        assert "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in session.message
        assert "can use the device any more" in session.message
    assert session.alloc(8) == session.sync() == session.launch(0, [0, 1, 2], N) == "DEVICE_ERROR"
    cuda.fail(0, 0)
    cuda.library.fake_cuda_reset()  # the context works again, so that what is alive can be given back
    session.close()


def check_threads(library: Any, code: bytes, devices: int) -> None:
    def work(seed: int) -> bool:
        session = Session(library, code)
        assert session.open(seed % devices) == "OK"
        ready(session)
        good = True
        for turn in range(10):
            x, y, out = numbers(seed + turn), numbers(turn), np.zeros(N, np.float32)
            assert session.copy_in(0, x) == session.copy_in(1, y) == "OK"
            assert session.launch(0, [0, 1, 2], N) == session.copy_out(2, out) == "OK"
            good = good and bool((out == x + y).all())
        session.close()
        return good

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_threads_use_devices_at_once(library: Any, cuda: fake.Driver, code: bytes) -> None:
    check_threads(library, code, 2)


def test_a_child_of_fork_gets_an_error(session: Session, cuda: fake.Driver) -> None:
    ready(session)
    child = os.fork()
    if child == 0:
        said = [
            session.sync(),
            session.alloc(8),
            session.launch(0, [0, 1, 2], N),
            Session(session.library, b"").open(),
        ]
        session.close()
        os._exit(0 if said == ["DEVICE_ERROR"] * 4 and cuda.violations() == "" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert session.sync() == "OK"


ABSENT = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.harness_message.restype = ctypes.c_char_p
if len(sys.argv) > 2:
    assert library.nvm_cuda_driver_set(sys.argv[2].encode()) == 0
print(library.harness_open(0, ctypes.byref(ctypes.c_void_p())), library.harness_message().decode())
"""


@pytest.mark.parametrize("given", ["", "/nowhere/libcuda.so.1", "libm.so.6"])
def test_a_machine_without_a_driver(library: Any, given: str) -> None:
    command = [sys.executable, "-c", ABSENT, library._name, *([given] if given else [])]
    if not given and Path("/usr/lib/x86_64-linux-gnu/libcuda.so.1").exists():
        pytest.skip("this machine has a driver")
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"{STATUS['DEVICE_ERROR']} cuda: ")
    assert ("has no cuInit" in said) == (given == "libm.so.6")


def test_the_driver_is_chosen_before_it_is_used(session: Session) -> None:
    assert session.library.nvm_cuda_driver_set(fake.path().encode()) == 0
    for path in (b"/other/libcuda.so.1", b"", b"x" * 5000, None):
        assert session.library.nvm_cuda_driver_set(path) == STATUS["INVALID_INPUT"]
