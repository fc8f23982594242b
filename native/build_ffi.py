"""Builds nimblevm._native: the cffi module over libnimblevm.a. Run by setuptools (setup.py), or by hand in the tree.

The declarations are the marked region of native/include/nvm_api.h. The variant variables of native/Makefile apply.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from cffi import FFI

NATIVE = Path(__file__).resolve().parent
SANITIZE = os.environ.get("NVM_SANITIZE", "")
# What tests ask of a library in which memory can fail (native/src/alloc_test.h).
TEST = """
int64_t nvm_test_fail_allocation(int64_t n);
int64_t nvm_test_held(void);
"""


def declarations() -> str:
    """What cffi parses: the status type, then the region between the markers."""
    text = (NATIVE / "include" / "nvm_api.h").read_text()
    region = re.search(r"/\* --- cdef begin .*?\*/\n(.*?)/\* --- cdef end --- \*/", text, re.DOTALL)
    if region is None:
        raise RuntimeError("native/include/nvm_api.h has no cdef region")
    return (
        "typedef int32_t nvm_status;\n"
        + region.group(1)
        + (TEST if os.environ.get("NVM_TEST") else "")
    )


def build_library() -> Path:
    """Run make; returns the static library."""
    name = subprocess.run(
        ["make", "-s", "-C", str(NATIVE), "--eval", "print-build:;@echo $(BUILD)", "print-build"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    subprocess.run(["make", "-s", "-C", str(NATIVE)], check=True)
    return NATIVE / name / "libnimblevm.a"


LIBRARY = build_library()
ffibuilder = FFI()
ffibuilder.cdef(declarations())
ffibuilder.set_source(
    "nimblevm._native",
    '#include "nvm_api.h"' + (TEST if os.environ.get("NVM_TEST") else ""),
    include_dirs=[str(NATIVE / "include")],
    extra_objects=[str(LIBRARY)],
    depends=[str(LIBRARY)],
    libraries=["dl", "m", "pthread"],
    extra_compile_args=["-std=c11", *([f"-fsanitize={SANITIZE}"] if SANITIZE else [])],
    extra_link_args=[f"-fsanitize={SANITIZE}"] if SANITIZE else [],
)

if __name__ == "__main__":
    # The name that setuptools gives it too, so that there is one file and never a stale one.
    ffibuilder.compile(tmpdir=str(NATIVE.parent), target="_native.abi3.so", verbose=True)
