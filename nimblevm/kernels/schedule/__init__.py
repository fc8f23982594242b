"""Schedules: loop IR -> loop IR on the way to machine code. The file keeps the unscheduled body."""

from __future__ import annotations

from nimblevm.kernels.loop_ir import Kernel


def schedule(kernel: Kernel, features: tuple[str, ...]) -> Kernel:
    """The kernel with its loops arranged for a target with these CPU features."""
    return kernel


__all__ = ["schedule"]
