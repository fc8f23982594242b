"""What kernels run on devices, and who makes the code: the one place that maps names of backends to code generators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nimblevm.errors import Unsupported
from nimblevm.kernels import opencl, ptx
from nimblevm.kernels.device_code import launch_record
from nimblevm.kernels.loop_ir import Kernel, SetDim
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule.grid import schedule_grid

Generator = Callable[[Sequence[tuple[int, Kernel]]], bytes]
"""(kernel index of the file, kernel)s -> payload of a section of device code (docs/format.md)."""

DEVICE_CODE: Mapping[str, Generator] = {"opencl": opencl.generate, "cuda": ptx.generate}
"""Backend name -> the code generator of its sections."""


def supports(kernel: Kernel) -> bool:
    """Whether devices run a kernel of loop IR. Those that write out-dims, and those that C computes (whose body is
    empty), run on the host.
    """
    if not kernel.body or kernel.out_dims:
        return False
    if any(isinstance(s, SetDim) for s in all_statements(kernel.body)):
        return False
    try:
        for launch in schedule_grid(kernel):
            launch_record(launch, launch.name)
    except Unsupported:
        return False
    return True


__all__ = ["DEVICE_CODE", "Generator", "supports"]
