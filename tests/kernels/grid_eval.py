"""Runs launches thread by thread in Python, barriers included: the reference for what opencl.py and ptx.py print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from nimblevm.kernels import loop_ir as ir
from nimblevm.kernels.loop_ir_eval import KernelFault, Run
from nimblevm.kernels.lower import LoweredKernel
from nimblevm.kernels.schedule.grid import schedule_grid
from nimblevm.kernels.schedule.launch import Launch
from tests.kernels.native import size_of, status_number

Array = np.ndarray[Any, Any]


def _garbage(buffer: ir.Buffer) -> Array:
    """An array of a grid, with elements that no kernel would give."""
    sizes = [size_of(axis.size, ()) for axis in buffer.axes]
    raw = np.full(int(np.prod(sizes)) * np.dtype(buffer.dtype).itemsize, 0x7F, "uint8")
    return raw.view(buffer.dtype).reshape(sizes)


def _group(
    launch: Launch, ids: Sequence[int], arrays: Sequence[Array], dims: Sequence[int]
) -> None:
    """Run the threads of one group in turns, each up to its next barrier."""
    own = launch.buffers[len(launch.kernel.buffers) :]
    shared = {id(b): _garbage(b) for b in own if b.role == "shared"}
    kernel = replace(launch.kernel, buffers=launch.buffers, body=launch.body)
    threads: list[Iterator[None]] = []
    for place in product(*(range(n) for n in reversed(launch.block))):
        mine = [shared[id(b)] if id(b) in shared else _garbage(b) for b in own]
        run = Run(kernel, [*arrays, *mine], dims)
        for var, value in zip(
            (*launch.group, *launch.thread), (*ids, *reversed(place)), strict=True
        ):
            run.vars[id(var)] = value
        threads.append(run.steps())
    while threads:
        waiting = [thread for thread in threads if next(thread, "end") is None]
        assert len(waiting) in (0, len(threads)), "some threads of a group miss a barrier"
        threads = waiting


def run_launch(launch: Launch, arrays: Sequence[Array], dims: Sequence[int]) -> None:
    """Run one launch. KernelFault where a thread faults; AssertionError where threads part at a barrier."""
    grid = [size_of(size, dims) for size in launch.grid]
    with np.errstate(all="ignore"):
        for ids in product(*(range(n) for n in reversed(grid))):
            _group(launch, list(reversed(ids)), arrays, dims)


class Grid:
    """The same face as tests.kernels.native.Library over launches."""

    def __init__(self, lowered: LoweredKernel) -> None:
        self.kernel = lowered.kernel
        self.launches = schedule_grid(lowered.kernel)

    def call(self, index: int, buffers: Sequence[Array], numbers: Sequence[int]) -> int:
        try:
            for launch in self.launches:
                run_launch(launch, buffers, numbers[: len(self.kernel.dims)])
        except KernelFault as fault:
            return status_number(fault.code)
        return 0


__all__ = ["Grid", "run_launch"]
