"""The payload of a section of device code: source text, and for each kernel the launches that compute it.

    {"source": bin, "kernels": {kernel index: [launch, ...]}}
    launch = [entry name, [grid x, grid y, grid z], [block x, y, z], [operands], [dims], shared bytes, 0 or 1]

A grid is a dim program (docs/format.md) over the in-dims and attributes. An entry gets one global pointer an operand
(numbers of the kernel's operands, in order), the error record if the last field is 1, and one int64 for each place
among [in-dims][attributes][pitches] that `dims` names. Backends may put more between: see opencl.py and ptx.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgpack

from nimblevm.errors import Unsupported
from nimblevm.kernels.dim_program import dim_program
from nimblevm.kernels.schedule.launch import Launch

MAX_LAUNCH_DIMS = 64
"""Sizes that one launch may need."""


def launch_record(launch: Launch, entry: str) -> list[object]:
    """A launch as the payload has it. Unsupported if it needs more sizes than a launch may have."""
    dims = launch.dims()
    if len(dims) > MAX_LAUNCH_DIMS:
        raise Unsupported(
            f"kernel {launch.kernel.name}: a launch needs {len(dims)} sizes, at most {MAX_LAUNCH_DIMS} can be passed"
        )
    grid = [dim_program(size) for size in launch.grid]
    fails = int(launch.can_fail())
    return [
        entry, grid, list(launch.block), list(launch.operands()), list(dims), launch.shared_bytes(), fails
    ]  # fmt: skip


def payload(source: bytes, kernels: Mapping[int, Sequence[list[object]]]) -> bytes:
    """The bytes of a section; `kernels`: launch records by kernel index."""
    found: bytes = msgpack.packb(
        {"source": source, "kernels": {n: list(kernels[n]) for n in sorted(kernels)}}
    )
    return found


__all__ = ["MAX_LAUNCH_DIMS", "launch_record", "payload"]
