"""The fake driver from Python: building it, its controls, and kernels run through it without a VM."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from nimblevm.kernels import ptx
from nimblevm.kernels.device_code import launch_record
from nimblevm.kernels.loop_ir import Kernel
from nimblevm.kernels.schedule.grid import schedule_grid
from nimblevm.kernels.schedule.launch import Launch
from tests.devices.fake_cuda.ptx_to_c import translate
from tests.kernels.native import size_of

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "native"
SOURCES = ("fake_cuda.c", "memory.c", "grid.c")
FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-fwrapv", "-fno-strict-aliasing",
         "-ffp-contract=off", "-fno-math-errno", "-D_GNU_SOURCE")  # fmt: skip
FOLDER = "NVM_TEST_FAKE_CUDA"
Array = np.ndarray[Any, Any]


class State(ctypes.Structure):
    """fake_cuda_state."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "live_blocks", "live_bytes", "live_pinned", "modules", "streams", "events", "contexts", "pushed", "calls",
            "launches", "threads_run", "copies_in", "copies_out", "copies_within", "syncs", "queued", "violations",
            "most_queued",
        )
    ]  # fmt: skip

    def held(self) -> dict[str, int]:
        """What somebody has not given back."""
        names = ("live_blocks", "live_pinned", "modules", "streams", "contexts", "pushed", "queued")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


@cache
def folder() -> Path:
    """Where the driver and translated modules lie, until the process ends; or FOLDER says where, and others see them."""
    if FOLDER in os.environ:
        return Path(os.environ[FOLDER])
    found = tempfile.mkdtemp(prefix="fake-cuda-")
    atexit.register(shutil.rmtree, found, ignore_errors=True)
    return Path(found)


@cache
def path() -> str:
    """The library that stands for libcuda.so.1, built."""
    target = folder() / "libcuda.so.1"
    if FOLDER in os.environ and target.exists():  # in use by the process that this one belongs to
        return str(target)
    includes = [f"-I{NATIVE / part}" for part in ("devices", "src", "include")]
    sources = [str(HERE / name) for name in SOURCES]
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-type-limits"]
    command = [
        "gcc",
        *FLAGS,
        *warnings,
        *includes,
        *sources,
        "-o",
        str(target),
        "-lpthread",
        "-ldl",
        "-lm",
    ]
    subprocess.run(command, check=True)
    return str(target)


def have_gcc() -> bool:
    return shutil.which("gcc") is not None


def digest(text: bytes) -> int:
    """FNV-1a."""
    found = 0xCBF29CE484222325
    for byte in text:
        found = (found ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return found


def add_module(source: bytes) -> None:
    """Translate PTX, so that the driver can load it."""
    target = folder() / f"{digest(source):016x}.so"
    if not target.exists():
        c = target.with_suffix(".c")
        c.write_text(translate(source.decode()))
        command = [
            "gcc",
            *FLAGS,
            "-march=native",
            "-w",
            f"-I{HERE}",
            str(c),
            "-o",
            str(target),
            "-lm",
        ]
        subprocess.run(command, check=True)


def add_payload(payload: bytes) -> None:
    """The same for the payload of a section."""
    add_module(msgpack.unpackb(payload, strict_map_key=False)["source"])


class Driver:
    """Controls of the driver; one a process."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(path())
        for name in ("fake_cuda_trace", "fake_cuda_violations"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.library.fake_cuda_set_modules(str(folder()).encode())

    def reset(self) -> None:
        self.library.fake_cuda_reset()

    @contextmanager
    def gpus(self) -> Iterator[None]:
        """A machine with two GPUs; afterwards nothing is alive and it has none, whatever ran before or failed."""
        self.reset()
        try:
            yield
        finally:
            self.forget()
            self.reset()
            self.set("devices", 0)

    def forget(self) -> None:
        """What is alive, after a test in which giving it back failed."""
        self.library.fake_cuda_forget()

    def state(self) -> State:
        found = State()
        self.library.fake_cuda_state_get(ctypes.byref(found))
        return found

    def trace(self) -> list[str]:
        return str(self.library.fake_cuda_trace().decode()).split("\n")[:-1]

    def violations(self) -> str:
        self.state()
        return str(self.library.fake_cuda_violations().decode())

    def fail(self, nth: int, result: int, function: str = "", sticky: bool = False) -> None:
        """The nth call (of `function`, or of any) gives `result`, with `sticky` all later ones too."""
        name = function.encode() or None
        self.library.fake_cuda_fail(name, ctypes.c_int64(nth), result, int(sticky))

    def set(self, what: str, *values: int) -> None:
        """One of fake_cuda_set_*."""
        getattr(self.library, f"fake_cuda_set_{what}")(*map(ctypes.c_int64, values))


@cache
def driver() -> Driver:
    return Driver()


class PtxGrid:
    """The same face as tests.kernels.native.Library: the launches of kernels as one module of PTX, run by the driver."""

    def __init__(self, *kernels: Kernel) -> None:
        self.launches = [schedule_grid(kernel) for kernel in kernels]
        payload = ptx.generate(list(enumerate(kernels)))
        self.source: bytes = msgpack.unpackb(payload, strict_map_key=False)["source"]
        add_module(self.source)
        self.cuda = driver()

    def call(self, index: int, buffers: Sequence[Array], numbers: Sequence[int]) -> int:
        """The status of the fault that was first, or 0. Outputs are written."""
        with self.cuda.gpus(), _Opened(self.cuda.library, self.source) as run:
            places = [run.upload(array) for array in buffers]
            record = run.upload(np.zeros(32, np.uint8))
            for launch in self.launches[index]:
                run.launch(launch, index, places, record, numbers)
            for array, place in zip(buffers, places, strict=True):
                run.download(array, place)
            fault = np.zeros(8, np.uint32)
            run.download(fault, record)
            assert self.cuda.violations() == ""
        assert not fault[0] or fault[6] == index
        return int(fault[0])


class _Opened:
    """A context and a stream with a module."""

    def __init__(self, library: Any, source: bytes) -> None:
        self.cuda = library
        self.source = source
        self.blocks: list[ctypes.c_uint64] = []

    def _call(self, name: str, *args: Any) -> None:
        result = getattr(self.cuda, name)(*args)
        assert result == 0, f"{name}: {result}"

    def __enter__(self) -> _Opened:
        self.context, self.stream, self.module = (ctypes.c_void_p() for _ in range(3))
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self._call("cuCtxPushCurrent_v2", self.context)
        self._call("cuStreamCreate", ctypes.byref(self.stream), 1)
        self._call("cuModuleLoadDataEx", ctypes.byref(self.module), self.source, 0, None, None)
        return self

    def __exit__(self, *failed: object) -> None:
        if self.module:
            self._call("cuModuleUnload", self.module)
        for block in self.blocks:
            self._call("cuMemFree_v2", block)
        self._call("cuStreamDestroy_v2", self.stream)
        self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        self._call("cuDevicePrimaryCtxRelease_v2", 0)

    def upload(self, array: Array) -> ctypes.c_uint64:
        place = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(max(array.nbytes, 1)))
        self.blocks.append(place)
        if array.nbytes:
            data = ctypes.c_void_p(array.ctypes.data)
            self._call(
                "cuMemcpyHtoDAsync_v2", place, data, ctypes.c_size_t(array.nbytes), self.stream
            )
            self._call("cuStreamSynchronize", self.stream)
        return place

    def download(self, array: Array, place: ctypes.c_uint64) -> None:
        if array.nbytes:
            data = ctypes.c_void_p(array.ctypes.data)
            self._call(
                "cuMemcpyDtoHAsync_v2", data, place, ctypes.c_size_t(array.nbytes), self.stream
            )
            self._call("cuStreamSynchronize", self.stream)

    def launch(
        self,
        launch: Launch,
        kernel: int,
        places: Sequence[Any],
        record: Any,
        numbers: Sequence[int],
    ) -> None:
        entry, _, block, operands, dims, _, fails = launch_record(
            launch, ptx.entry_name(launch, kernel)
        )
        grid = [size_of(size, numbers) for size in launch.grid]
        if 0 in grid:
            return
        assert isinstance(operands, list)
        assert isinstance(dims, list)
        assert isinstance(block, list)
        values = [places[n] for n in operands] + [record] * int(bool(fails))
        values += [ctypes.c_int64(int(numbers[n])) for n in dims]
        pointers = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(v) for v in values))
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self.module, str(entry).encode())
        sizes = [ctypes.c_uint(n) for n in (*grid, *block)]
        self._call("cuLaunchKernel", function, *sizes, 0, self.stream, pointers, None)


__all__ = [
    "Driver",
    "PtxGrid",
    "State",
    "add_module",
    "add_payload",
    "driver",
    "folder",
    "have_gcc",
    "path",
]
