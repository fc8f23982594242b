"""NVIDIA GPUs, through the driver alone (libcuda.so.1 of a driver since CUDA 9): no toolkit is needed.

`VirtualMachine(exe, device="cuda:1")` runs on the second GPU. See docs/gpu.md.
"""

from __future__ import annotations

import os

from nimblevm._ffi import check, lib


def use_driver(path: str | os.PathLike[str]) -> None:
    """Load the driver from this path, for installations that the loader does not find it in, such as WSL's
    /usr/lib/wsl/lib/libcuda.so.1. Before the first GPU is opened: InvalidInput afterwards, for another path.
    """
    check(lib.nvm_cuda_driver_set(os.fsencode(path)))


__all__ = ["use_driver"]
