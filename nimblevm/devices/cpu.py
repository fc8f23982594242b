"""The host. Kernels are machine code of the file, C kernels of the runtime, or interpreted."""

from __future__ import annotations

from nimblevm._ffi import lib


def available_threads() -> int:
    """CPUs that this process may use (affinity mask and cgroup quota), at least 1: the most that
    `VirtualMachine(threads=...)` can profit from.
    """
    return int(lib.nvm_cpu_count())


__all__ = ["available_threads"]
