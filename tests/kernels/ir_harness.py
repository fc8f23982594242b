"""Runs loop-IR bodies and C kernels of the native library without a file (tests/native/kernel_ir_harness.c)."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nimblevm.dtypes import BY_NAME
from nimblevm.errors import status_row
from nimblevm.kernels import loop_ir as ir
from nimblevm.kernels.loop_ir_form import operands, serialize
from tests.native.build import make

ROOT = Path(__file__).resolve().parents[2]
DIM_OPS = {"add": 2, "sub": 3, "mul": 4, "floordiv": 5, "floormod": 6, "min": 7, "max": 8}


def build(folder: Path) -> ctypes.CDLL:
    """The harness linked with the library's default build."""
    native = ROOT / "native"
    make()
    target = folder / "harness.so"
    source = str(ROOT / "tests" / "native" / "kernel_ir_harness.c")
    command = ["gcc", "-std=c11", "-O1", "-shared", "-fPIC", f"-I{native}/include", f"-I{native}/src", source,
               f"{native}/build/libnimblevm.a", "-lm", "-lpthread", "-ldl", "-o", str(target)]  # fmt: skip
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(target))
    library.harness_message.restype = ctypes.c_char_p
    library.harness_free.argtypes = [ctypes.c_void_p]
    return library


def _postfix(value: ir.Value) -> list[int]:
    words: list[int] = []
    stack: list[tuple[ir.Value, bool]] = [(value, False)]
    while stack:
        node, ready = stack.pop()
        match node:
            case ir.Const(value=literal):
                words += [0, int(literal)]
            case ir.DimRef(index=index):
                words += [1, index]
            case ir.Binary(op=op) if ready:
                words.append(DIM_OPS[op])
            case _:
                stack.append((node, True))
                stack.extend((operand, False) for operand in reversed(operands(node)))
    return [*words, 9]


def signature_words(kernel: ir.Kernel) -> list[int]:
    """What harness_load reads."""
    exprs: list[int] = []
    rows: list[int] = []
    pitches = 0
    alias = dict(kernel.alias)
    for number, buffer in enumerate(kernel.buffers):
        role = ("in", "out", "scratch").index(buffer.role)
        rows += [BY_NAME[buffer.dtype].number, role, len(buffer.axes), alias.get(number, -1) + 1]
        for axis in buffer.axes:
            pitches += axis.broadcast
            match axis.size:
                case ir.Const(value=literal):
                    rows += [0, axis.broadcast, int(literal)]
                case ir.DimRef(index=index):
                    rows += [1, axis.broadcast, index]
                case _:
                    rows += [2, axis.broadcast, len(exprs)]
                    exprs += _postfix(axis.size)
    head = [len(kernel.buffers), len(kernel.dims), pitches, kernel.out_dims, len(exprs)]
    return [*head, *exprs, *rows]


@dataclass
class Outcome:
    """Status name, out-dims, and the last fault."""

    status: str
    out_dims: list[int]
    operand: int
    index: int
    bound: int


def _pointers(arrays: Iterable[np.ndarray[Any, Any]]) -> Any:
    pointers = [array.ctypes.data for array in arrays]
    return (ctypes.c_void_p * max(len(pointers), 1))(*pointers)


class Loaded:
    """A parsed body; raises ValueError with C's message if it was refused."""

    def __init__(self, library: ctypes.CDLL, kernel: ir.Kernel, data: bytes | None = None) -> None:
        self.library, self.kernel = library, kernel
        data = serialize(kernel) if data is None else data
        words = signature_words(kernel)
        self.handle = ctypes.c_void_p()
        status = library.harness_load(
            data, ctypes.c_size_t(len(data)), (ctypes.c_int64 * len(words))(*words), ctypes.byref(self.handle)
        )  # fmt: skip
        if status != 0:
            raise ValueError(f"{status_row(status).name}: {library.harness_message().decode()}")

    def run(self, arrays: Sequence[np.ndarray[Any, Any]], dims: Sequence[int]) -> Outcome:
        """Arrays in the order of the buffers (compact); outputs are written."""
        pitches = [
            array.shape[axis]
            for array, buffer in zip(arrays, self.kernel.buffers, strict=True)
            for axis, row in enumerate(buffer.axes)
            if row.broadcast
        ]
        words = [*dims, *pitches, *([0] * self.kernel.out_dims)]
        memory = (ctypes.c_int64 * max(len(words), 1))(*words)
        fault = (ctypes.c_int64 * 4)()
        status = self.library.harness_run(self.handle, _pointers(arrays), memory, fault)
        out_dims = list(memory)[len(dims) + len(pitches) : len(words)]
        return Outcome(status_row(status).name, out_dims, fault[0], fault[1], fault[2])

    def __del__(self) -> None:
        self.library.harness_free(self.handle)


def call_c_kernel(
    library: ctypes.CDLL, name: str, arrays: Sequence[np.ndarray[Any, Any]], dims: Sequence[int]
) -> Outcome:
    """A C kernel by its name in the registry; `dims` with attributes and room for out-dims."""
    memory = (ctypes.c_int64 * len(dims))(*dims)
    fault = (ctypes.c_int64 * 4)()
    status = library.harness_call(name.encode(), _pointers(arrays), memory, fault)
    return Outcome(status_row(status).name, list(memory), fault[0], fault[1], fault[2])
