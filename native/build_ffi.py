"""Builds nimblevm._native: the cffi module over libnimblevm.a. Run by setuptools (setup.py), or by hand in the tree.

The declarations are the marked regions of native/include/nvm_api.h and of kept_call.h, which is C of this module alone.
The variant variables of native/Makefile apply.
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


HEADERS = (NATIVE / "include" / "nvm_api.h", NATIVE / "kept_call.h")


def region(header: Path) -> str:
    """What stands between the markers of a header."""
    found = re.search(
        r"/\* --- cdef begin .*?\*/\n(.*?)/\* --- cdef end --- \*/", header.read_text(), re.DOTALL
    )
    if found is None:
        raise RuntimeError(f"{header} has no cdef region")
    return found.group(1)


def declarations() -> str:
    """What cffi parses: the status type, then the regions."""
    regions = [region(header) for header in HEADERS]
    test = TEST if os.environ.get("NVM_TEST") else ""
    return "".join(["typedef int32_t nvm_status;\n", *regions, test])


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
    '#include "kept_call.h"\n' + (TEST if os.environ.get("NVM_TEST") else ""),
    include_dirs=[str(NATIVE / "include"), str(NATIVE)],
    extra_objects=[str(LIBRARY)],
    depends=[str(LIBRARY), *map(str, HEADERS)],
    libraries=["dl", "m", "pthread"],
    extra_compile_args=["-std=c11", *([f"-fsanitize={SANITIZE}"] if SANITIZE else [])],
    extra_link_args=[f"-fsanitize={SANITIZE}"] if SANITIZE else [],
)

if __name__ == "__main__":
    # The name that setuptools gives it too, so that there is one file and never a stale one.
    ffibuilder.compile(tmpdir=str(NATIVE.parent), target="_native.abi3.so", verbose=True)
