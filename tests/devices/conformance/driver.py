"""A backend's vtable (native/include/nvm_device.h) through ctypes: errors are exceptions, memory is numpy arrays."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint32,
    c_void_p,
)
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nimblevm.errors import NimbleError, status_row
from tests.native.build import NATIVE, built

Array = np.ndarray[Any, Any]
API_VERSION = 3


class _Section(Structure):
    _fields_ = (("kind", c_uint32), ("target", c_char_p), ("code", c_char_p), ("size", c_size_t))


class Vtable(Structure):
    """struct nvm_device_vtable."""

    _fields_ = (
        ("api_version", c_uint32),
        ("name", c_char_p),
        ("host_accessible", c_uint8),
        ("host_code", c_uint8),
        ("dl_device_type", c_uint32),
        ("open", CFUNCTYPE(c_int32, c_int32, POINTER(c_void_p))),
        ("close", CFUNCTYPE(None, c_void_p)),
        ("alloc", CFUNCTYPE(c_int32, c_void_p, c_size_t, c_size_t, POINTER(c_void_p))),
        ("free", CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)),
        ("copy_from_host", CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t)),
        ("copy_to_host", CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_size_t, c_size_t)),
        (
            "copy_within",
            CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_size_t),
        ),
        ("sync", CFUNCTYPE(c_int32, c_void_p)),
        ("load_module", CFUNCTYPE(c_int32, c_void_p, POINTER(_Section), POINTER(c_void_p))),
        ("unload_module", CFUNCTYPE(None, c_void_p, c_void_p)),
        (
            "find_kernel",
            CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint32, c_char_p, c_void_p, POINTER(c_void_p)),
        ),
        ("launch", c_void_p),
    )


@cache
def harness() -> ctypes.CDLL:
    """tests/native/conformance_harness.c with the library."""
    library = built() / "libnimblevm.a"
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "conformance.so"
        source = NATIVE.parent / "tests" / "native" / "conformance_harness.c"
        command = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", f"-I{NATIVE}/include",
                   f"-I{NATIVE}/src", str(source), str(library), "-lm", "-lpthread", "-ldl", "-o", str(target)]  # fmt: skip
        subprocess.run(command, check=True)
        loaded = ctypes.CDLL(str(target))
    loaded.conformance_vtable.restype = POINTER(Vtable)
    loaded.conformance_message.restype = c_char_p
    loaded.conformance_signature.restype = c_void_p
    loaded.conformance_launch.argtypes = [c_void_p, c_int32, c_void_p, c_void_p, c_void_p]
    return loaded


def vtable(name: str) -> Vtable:
    found = harness().conformance_vtable(name.encode())
    assert found, f"this build has no backend {name}"
    return found.contents


def check(status: int) -> None:
    """Raise the exception of a status, with the text on record."""
    if status:
        kind = status_row(status).exception or NimbleError
        raise kind(harness().conformance_message().decode())


class Device:
    """An open device."""

    def __init__(self, name: str, ordinal: int = 0) -> None:
        self.table = vtable(name)
        self.handle = c_void_p()
        check(self.table.open(ordinal, byref(self.handle)))

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: object) -> None:
        self.table.close(self.handle)

    def alloc(self, size: int, alignment: int = 64) -> int:
        """An address on the device."""
        memory = c_void_p()
        check(self.table.alloc(self.handle, size, alignment, byref(memory)))
        assert memory.value
        return memory.value

    def free(self, memory: int, size: int) -> None:
        self.table.free(self.handle, memory, size)

    def write(self, memory: int, data: Array, offset: int = 0) -> None:
        check(self.table.copy_from_host(self.handle, memory, offset, data.ctypes.data, data.nbytes))

    def read(self, memory: int, like: Array, offset: int = 0) -> Array:
        out = np.full_like(like, 77)
        check(self.table.copy_to_host(self.handle, out.ctypes.data, memory, offset, out.nbytes))
        return out

    def copy(self, to: int, to_offset: int, source: int, offset: int, size: int) -> None:
        check(self.table.copy_within(self.handle, to, to_offset, source, offset, size))

    def sync(self) -> None:
        check(self.table.sync(self.handle))

    def load(self, kind: int, target: str, code: bytes) -> int:
        module = c_void_p()
        # The section's bytes live as long as the module.
        section = _Section(kind, target.encode(), code, len(code))
        check(self.table.load_module(self.handle, byref(section), byref(module)))
        assert module.value
        self.kept = (section, code)
        return module.value

    def unload(self, module: int) -> None:
        self.table.unload_module(self.handle, module)

    def find(self, module: int, kernel: int, name: str) -> int | None:
        code = c_void_p()
        signature = harness().conformance_signature(min(kernel, 1))
        self.name = name.encode()  # lives as long as the module
        check(
            self.table.find_kernel(self.handle, module, kernel, self.name, signature, byref(code))
        )
        return code.value

    def launch(
        self, kernel: int, code: int | None, bufs: Sequence[int], dims: Sequence[int]
    ) -> None:
        pointers = (c_void_p * len(bufs))(*bufs)
        values = (ctypes.c_int64 * 512)(*dims)
        check(harness().conformance_launch(self.handle, kernel, code, pointers, values))
