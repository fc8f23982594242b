"""Kernels on a device backend, through its vtable and without a file: the face of tests.kernels.native.Library."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nimblevm.errors import status_row
from nimblevm.kernels.device_support import DEVICE_CODE
from nimblevm.kernels.loop_ir import Kernel
from tests.native.build import NATIVE, built

Array = np.ndarray[Any, Any]


def _no_opencl() -> bool:
    """Whether there is no device. Where one is required, a test fails instead of being skipped."""
    if os.environ.get("NVM_TEST_OPENCL") == "required":
        return False
    try:
        count = c_uint32()
        ctypes.CDLL("libOpenCL.so.1").clGetPlatformIDs(0, None, byref(count))
    except OSError:
        return True
    return count.value == 0


needs_opencl = pytest.mark.skipif(
    _no_opencl(), reason="no OpenCL: apt-get install pocl-opencl-icd ocl-icd-libopencl1"
)


@cache
def harness() -> ctypes.CDLL:
    """tests/native/device_harness.c with the library."""
    native = NATIVE
    library = built() / "libnimblevm.a"
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "device_harness.so"
        source = NATIVE.parent / "tests" / "native" / "device_harness.c"
        command = ["gcc", "-std=c11", "-O1", "-shared", "-fPIC", f"-I{native}/include", f"-I{native}/src",
                   str(source), str(library), "-lm", "-lpthread", "-ldl", "-o", str(target)]  # fmt: skip
        subprocess.run(command, check=True)
        loaded = ctypes.CDLL(str(target))
    loaded.device_message.restype = c_char_p
    loaded.device_open.argtypes = [c_char_p, c_int32, c_char_p, c_char_p, c_size_t, c_void_p]
    loaded.device_run.argtypes = [
        c_void_p,
        c_uint32,
        c_uint32,
        c_uint32,
        c_uint32,
        c_void_p,
        c_void_p,
        c_void_p,
    ]
    loaded.device_close.argtypes = [c_void_p]
    return loaded


class Session:
    """An open device with a section of code. Raises the exception of the status."""

    def __init__(self, backend: str, code: bytes = b"", target: str = "", ordinal: int = 0) -> None:
        self.session = c_void_p()
        status = harness().device_open(
            backend.encode(),
            ordinal,
            (target or backend).encode(),
            code,
            len(code),
            byref(self.session),
        )
        if status:
            error = status_row(status).exception
            assert error is not None
            raise error(harness().device_message().decode())

    def run(self, kernel: int, buffers: Sequence[Array], dims: Sequence[int], in_dims: int) -> int:
        """Call a kernel; `dims`: in-dims, then pitches. Returns its status."""
        pointers = (c_void_p * max(len(buffers), 1))(*(b.ctypes.data for b in buffers))
        sizes = (c_size_t * max(len(buffers), 1))(*(b.nbytes for b in buffers))
        values = (ctypes.c_int64 * max(len(dims), 1))(*dims)
        status: int = harness().device_run(
            self.session,
            kernel,
            len(buffers),
            in_dims,
            len(dims) - in_dims,
            pointers,
            sizes,
            values,
        )
        return status

    def message(self) -> str:
        """Of the last error."""
        text: bytes = harness().device_message()
        return text.decode()

    def close(self) -> None:
        harness().device_close(self.session)
        self.session = c_void_p()


class OnBackend:
    """Kernels as one section of device code, loaded by a backend."""

    def __init__(self, backend: str, *kernels: Kernel) -> None:
        self.in_dims = [len(kernel.dims) for kernel in kernels]
        self.session = Session(backend, DEVICE_CODE[backend](list(enumerate(kernels))))

    def call(self, index: int, buffers: Sequence[Array], numbers: Sequence[int]) -> int:
        return self.session.run(index, buffers, numbers, self.in_dims[index])

    def __enter__(self) -> OnBackend:
        return self

    def __exit__(self, *error: object) -> None:
        self.session.close()


__all__ = ["OnBackend", "Session", "harness", "needs_opencl"]
