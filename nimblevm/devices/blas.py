"""Where the library of the runtime "blas" lies: that of the package scipy-openblas32 (extra [blas]), if it is there.

The runtime is native/devices/blas.c. Other libraries: the environment's NIMBLEVM_BLAS, or an OpenBLAS of the system.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import util
from pathlib import Path

from nimblevm._ffi import lib


def find_library() -> Path | None:
    """The shared library of scipy-openblas32, found without importing the package; None if it is not installed."""
    spec = util.find_spec("scipy_openblas32")
    for place in (spec.submodule_search_locations if spec is not None else None) or ():
        for path in sorted(Path(place, "lib").glob("libscipy_openblas*.so")):
            return path
    return None


@cache
def prepare() -> None:
    """Tell the runtime, once."""
    path = find_library()
    if path is not None:
        lib.nvm_blas_library(os.fsencode(path))


__all__ = ["find_library", "prepare"]
