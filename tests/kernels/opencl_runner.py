"""Runs kernels as OpenCL C on a device of this machine, straight through the driver: the face of native.Library."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any

import numpy as np
import pytest

from nimblevm.kernels.lower import LoweredKernel
from nimblevm.kernels.opencl import source_of
from nimblevm.kernels.schedule.grid import schedule_grid
from tests.kernels.native import size_of

Array = np.ndarray[Any, Any]


def _is_missing() -> bool:
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
    _is_missing(), reason="no OpenCL: apt-get install pocl-opencl-icd ocl-icd-libopencl1"
)
BUILD_LOG, COPY, READ_WRITE = 0x1183, 1 << 5, 1


class Driver:
    """The first device of the first platform."""

    def __init__(self) -> None:
        self.cl = ctypes.CDLL("libOpenCL.so.1")
        self.cl.clCreateContext.restype = c_void_p
        self.cl.clCreateCommandQueue.restype = c_void_p
        self.cl.clCreateCommandQueue.argtypes = [c_void_p, c_void_p, c_uint64, c_void_p]
        self.cl.clCreateProgramWithSource.restype = c_void_p
        self.cl.clCreateProgramWithSource.argtypes = [
            c_void_p,
            c_uint32,
            c_void_p,
            c_void_p,
            c_void_p,
        ]
        self.cl.clBuildProgram.argtypes = [
            c_void_p,
            c_uint32,
            c_void_p,
            c_char_p,
            c_void_p,
            c_void_p,
        ]
        self.cl.clGetProgramBuildInfo.argtypes = [
            c_void_p,
            c_void_p,
            c_uint32,
            c_size_t,
            c_void_p,
            c_void_p,
        ]
        self.cl.clCreateKernel.restype = c_void_p
        self.cl.clCreateKernel.argtypes = [c_void_p, c_char_p, c_void_p]
        self.cl.clSetKernelArg.argtypes = [c_void_p, c_uint32, c_size_t, c_void_p]
        self.cl.clCreateBuffer.restype = c_void_p
        self.cl.clCreateBuffer.argtypes = [c_void_p, c_uint64, c_size_t, c_void_p, c_void_p]
        self.cl.clReleaseMemObject.argtypes = [c_void_p]
        self.cl.clEnqueueNDRangeKernel.argtypes = [c_void_p, c_void_p, c_uint32] + [c_void_p] * 3 + [
            c_uint32, c_void_p, c_void_p]  # fmt: skip
        self.cl.clEnqueueReadBuffer.argtypes = [c_void_p, c_void_p, c_uint32, c_size_t, c_size_t, c_void_p,
                                                c_uint32, c_void_p, c_void_p]  # fmt: skip
        platform, self.device = c_void_p(), c_void_p()
        self.check(self.cl.clGetPlatformIDs(1, byref(platform), None))
        self.check(
            self.cl.clGetDeviceIDs(platform, c_uint64(0xFFFFFFFF), 1, byref(self.device), None)
        )
        code = c_int32()
        self.context = self.cl.clCreateContext(None, 1, byref(self.device), None, None, byref(code))
        self.check(code.value)
        self.queue = self.cl.clCreateCommandQueue(self.context, self.device, 0, byref(code))
        self.check(code.value)

    def check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"OpenCL error {code}")

    def program(self, source: str) -> int:
        code, text = c_int32(), c_char_p(source.encode())
        program: int = self.cl.clCreateProgramWithSource(
            self.context, 1, byref(text), None, byref(code)
        )
        self.check(code.value)
        options = b"-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
        if self.cl.clBuildProgram(program, 1, byref(self.device), options, None, None):
            log = ctypes.create_string_buffer(1 << 16)
            self.cl.clGetProgramBuildInfo(program, self.device, BUILD_LOG, len(log), log, None)
            raise RuntimeError(log.value.decode() + "\n" + source)
        return program

    def buffer(self, data: Array) -> c_void_p:
        code = c_int32()
        size = max(data.nbytes, 8)
        made = self.cl.clCreateBuffer(self.context, READ_WRITE, size, None, byref(code))
        self.check(code.value)
        if data.nbytes:
            whole = np.ascontiguousarray(data)
            self.cl.clEnqueueWriteBuffer.argtypes = self.cl.clEnqueueReadBuffer.argtypes
            self.check(self.cl.clEnqueueWriteBuffer(
                self.queue, made, 1, 0, data.nbytes, whole.ctypes.data, 0, None, None))  # fmt: skip
        return c_void_p(made)

    def read(self, source: c_void_p, target: Array) -> None:
        if target.nbytes:
            self.check(self.cl.clEnqueueReadBuffer(
                self.queue, source, 1, 0, target.nbytes, target.ctypes.data, 0, None, None))  # fmt: skip


@cache
def driver() -> Driver:
    return Driver()


class OnDevice:
    """The same face as tests.kernels.native.Library."""

    def __init__(self, *lowered: LoweredKernel) -> None:
        kernels = [one.kernel for one in lowered]
        self.launches = [schedule_grid(kernel) for kernel in kernels]
        self.source, self.records = source_of(list(enumerate(kernels)))
        self.program = driver().program(self.source)

    def call(self, index: int, buffers: Sequence[Array], numbers: Sequence[int]) -> int:
        cl = driver()
        # Operands begin in the middle of buffers.
        memory = [
            cl.buffer(np.concatenate([np.zeros(64, "uint8"), b.reshape(-1).view("uint8")]))
            for b in buffers
        ]
        fault = np.zeros(32, "uint8")
        record = cl.buffer(fault)
        for launch, row in zip(self.launches[index], self.records[index], strict=True):
            self.launch(launch, row, memory, record, numbers)
        cl.read(record, fault)
        for source, target in zip(memory, buffers, strict=True):
            raw = np.zeros(target.nbytes + 64, "uint8")
            cl.read(source, raw)
            target[...] = raw[64:].view(target.dtype).reshape(target.shape)
            cl.check(cl.cl.clReleaseMemObject(source))
        return int(fault[:4].view("int32")[0])

    def launch(
        self, launch: Any, row: Any, memory: Any, record: Any, numbers: Sequence[int]
    ) -> None:
        cl = driver()
        entry, _, block, operands, dims, _, fails = row
        grid = [size_of(size, numbers) for size in launch.grid]
        if min(grid) <= 0:
            return
        code = c_int32()
        kernel = cl.cl.clCreateKernel(self.program, entry.encode(), byref(code))
        cl.check(code.value)
        args: list[Any] = [a for n in operands for a in (memory[n], c_uint64(64))]
        args += [record] if fails else []
        args += [c_uint64(numbers[n] & (1 << 64) - 1) for n in dims]
        for number, arg in enumerate(args):
            cl.check(cl.cl.clSetKernelArg(kernel, number, 8, byref(arg)))
        whole = (c_size_t * 3)(*(g * b for g, b in zip(grid, block, strict=True)))
        local = (c_size_t * 3)(*block)
        cl.check(
            cl.cl.clEnqueueNDRangeKernel(cl.queue, kernel, 3, None, whole, local, 0, None, None)
        )


__all__ = ["OnDevice", "needs_opencl"]
