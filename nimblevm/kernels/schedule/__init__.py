"""Schedules: loop IR -> loop IR on the way to machine code. The file keeps the unscheduled body."""

from __future__ import annotations

from dataclasses import replace

from nimblevm.kernels.loop_ir import Kernel
from nimblevm.kernels.registers import Registers
from nimblevm.kernels.schedule.beside import tile_beside
from nimblevm.kernels.schedule.blocks import tile_blocks
from nimblevm.kernels.schedule.byte_products import tile_bytes
from nimblevm.kernels.schedule.byte_windows import tile_byte_windows
from nimblevm.kernels.schedule.dense import tile_products
from nimblevm.kernels.schedule.index import STACK
from nimblevm.kernels.schedule.lanes import tile_lanes
from nimblevm.kernels.schedule.panels import tile_panels
from nimblevm.kernels.schedule.rows import jam_rows
from nimblevm.kernels.schedule.windows import tile_windows
from nimblevm.kernels.variants import Choices


def schedule(kernel: Kernel, features: tuple[str, ...], choices: Choices | None = None) -> Kernel:
    """The kernel with its loops arranged for a target with these CPU features.

    choices: how its products run; by default as the committed table says (variants.py).
    Buffers named STACK, behind the kernel's own, are arrays on the stack.
    """
    registers = Registers.of(features).count
    buffers, body = tile_byte_windows(kernel.buffers, kernel.body, features)
    buffers, body = tile_windows(buffers, body, images_only=True)
    buffers, body = tile_beside(buffers, body, features, choices)
    buffers, body = tile_panels(buffers, body, features, choices)
    buffers, body = tile_windows(buffers, body, images_only=False)
    buffers, body = tile_bytes(buffers, body, features)
    buffers, body = tile_blocks(buffers, body)
    buffers, body = tile_lanes(buffers, jam_rows(body, registers))
    return replace(kernel, buffers=buffers, body=tile_products(body, registers))


__all__ = ["STACK", "schedule"]
