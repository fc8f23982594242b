"""Builds reference.c and calls it. Needs a C compiler; without one the pairs are skipped."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# The fastest that gcc makes of plain loops on this machine.
FLAGS = ["-O3", "-march=native", "-ffast-math", "-std=c11", "-shared", "-fPIC"]
SOURCE = Path(__file__).with_name("reference.c")


@cache
def library() -> Any:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "reference.so"
        subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(target), "-lm"], check=True)
        loaded = ctypes.CDLL(str(target))
    for name in ("empty", "loop", "calls", "chain", "sum", "allocations", "kernels"):
        function = getattr(loaded, f"ref_{name}")
        function.argtypes, function.restype = [ctypes.c_int64], ctypes.c_int64
    loaded.ref_read.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    loaded.ref_read.restype = ctypes.c_float
    loaded.ref_lstm.argtypes = [
        ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
        ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p,
    ]  # fmt: skip
    loaded.ref_lstm.restype = None
    return loaded


__all__ = ["library"]
