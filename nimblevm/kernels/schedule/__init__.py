"""Schedules: loop IR -> loop IR on the way to machine code. The file keeps the unscheduled body."""

from __future__ import annotations

from dataclasses import replace

from nimblevm.kernels.loop_ir import Kernel
from nimblevm.kernels.schedule.dense import tile_products


def schedule(kernel: Kernel, features: tuple[str, ...]) -> Kernel:
    """The kernel with its loops arranged for a target with these CPU features."""
    registers = 32 if "avx512vl" in features or "neon" in features else 16
    return replace(kernel, body=tile_products(kernel, kernel.body, registers))


__all__ = ["schedule"]
