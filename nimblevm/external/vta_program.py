"""A region as a VTA program: tensors, layout steps and streams, in the bytes that native/devices/vta_program.c reads.

On the device, activations lie in blocks: rows (or images) x channel blocks x positions x block, the last block filled
up with zeros. Where a row-major tensor lies just so (one position and whole blocks, as between two dense layers of 16n
channels), a run uses it as it is; else a layout step makes a copy, which counts cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgpack
import numpy as np
import numpy.typing as npt

from nimblevm.compiler.external import Blob
from nimblevm.devices.vta_isa import Config, Memory, encode
from nimblevm.external.vta_layers import POINT, Layer, Step
from nimblevm.external.vta_stream import LayerStreams, Marked, MicroKernels, write
from nimblevm.external.vta_tiles import MAX_INSTRUCTIONS, ROWS, Tiles, blocks
from nimblevm.external.vta_timing import cycles
from nimblevm.relay.dims import Dim
from nimblevm.relay.types import TensorType

FORMAT = 1
CONSTANTS = 0xFFFF
"""The operand of a symbol that counts from the constants."""
MAX_STRIDE = 2**32 - 1
MAX_TIMED = 4
"""Trips of a dense that are timed; more take as long each."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An activation: rows (dims that count them), channels, positions; NHWC or NCHW if there is more than one."""

    leading: tuple[Dim, ...]
    channels: int
    positions: int
    channels_last: bool

    def blocked_row(self, block: int) -> int:
        """Bytes of one row in blocks."""
        return blocks(self.channels, block) * self.positions * block

    def is_blocked(self, block: int) -> bool:
        """Whether the row-major tensor lies in blocks as it is."""
        one_block = self.channels_last and self.channels == block
        return self.channels % block == 0 and (self.positions == 1 or one_block)


def input_shape(layer: Layer) -> Shape:
    g = layer.geometry or POINT
    return Shape(layer.leading, layer.in_channels, g.height * g.width, layer.channels_last)


def output_shape(layer: Layer) -> Shape:
    height, width = (layer.geometry or POINT).out
    return Shape(layer.leading, layer.out_channels, height * width, layer.channels_last)


@dataclass(slots=True)
class ProgramWriter:
    """Collects the steps of a program. scratch: tensors in blocks, operands of each call behind its outputs."""

    config: Config
    operands: int
    constants: bytearray = field(default_factory=bytearray)
    kernels: MicroKernels = field(default_factory=MicroKernels)
    steps: list[list[object]] = field(default_factory=list)
    scratch: list[TensorType] = field(default_factory=list)

    def add_scratch(self, shape: Shape) -> int:
        """A new operand for an activation in blocks."""
        size = shape.blocked_row(self.config.block_in)
        self.scratch.append(TensorType((*shape.leading, size), "int8"))
        return self.operands + len(self.scratch) - 1

    def add_layout(self, shape: Shape, src: int, dst: int, *, to_blocks: bool) -> None:
        """A copy between row-major and blocks."""
        self.steps.append(
            [
                False,
                src,
                len(shape.leading),
                src,
                dst,
                shape.channels,
                shape.positions,
                shape.channels_last,
                to_blocks,
            ]
        )

    def add_layer(self, layer: Layer, tiles: Tiles, src: int, dst: int) -> None:
        """A layer from blocks to blocks."""
        streams = write(layer, tiles, self.config, self.kernels)
        rows = tiles.rows if layer.geometry is None else 1
        block = self.config.block_in
        symbols = [
            [src, 0, rows * input_shape(layer).blocked_row(block)],
            [CONSTANTS, self._constant(_packed_weight(layer, self.config), Memory.WGT), 0],
            [dst, 0, rows * output_shape(layer).blocked_row(block)],
        ]
        for step in layer.steps:
            if step.immediate is None:
                symbols.append(
                    [
                        CONSTANTS,
                        self._constant(_packed_vector(step, layer, self.config), Memory.ACC),
                        0,
                    ]
                )
        parts = (streams.prologue, streams.body, streams.epilogue)
        packed = [
            data for part in parts for data in (encode(m.instruction for m in part), _marks(part))
        ]
        self.steps.append([True, src, len(layer.leading), rows, symbols, *packed])

    def _constant(self, array: npt.NDArray[np.generic], memory: Memory) -> int:
        """Its place among the constants, at a multiple of the scratchpad's entries."""
        entry = self.config.entry_bytes(memory)
        self.constants += bytes(-len(self.constants) % entry)
        at = len(self.constants)
        self.constants += array.tobytes()
        return at

    def data(self) -> bytes:
        """The program's bytes."""
        kernels = [np.array(words, "<u4").tobytes() for words in self.kernels.words]
        record = {
            "format": FORMAT,
            "config": self.config.numbers(),
            "constants": bytes(self.constants),
            "micro_kernels": kernels,
            "steps": self.steps,
        }
        return bytes(msgpack.packb(record, use_bin_type=True))

    def blob(self) -> Blob:
        return Blob(self.data(), tuple(self.scratch))


def _marks(items: Sequence[Marked]) -> bytes:
    return np.array([m.mark | (0x8000 if m.whole else 0) for m in items], "<u2").tobytes()


def _packed_weight(layer: Layer, config: Config) -> npt.NDArray[np.int8]:
    """(out blocks, in blocks, taps, block_out, block_in), filled up with zeros."""
    o, i, height, width = layer.weight.shape
    outs, ins = blocks(o, config.block_out), blocks(i, config.block_in)
    padded = np.zeros((outs * config.block_out, ins * config.block_in, height * width), np.int8)
    padded[:o, :i] = layer.weight.reshape(o, i, -1)
    split = padded.reshape(outs, config.block_out, ins, config.block_in, height * width)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 1, 3))


def _packed_vector(step: Step, layer: Layer, config: Config) -> npt.NDArray[np.int32]:
    """One number a channel, filled up with zeros."""
    padded = np.zeros(blocks(layer.out_channels, config.block_out) * config.block_out, np.int32)
    padded[: layer.out_channels] = step.operand
    return padded


def measured(layer: Layer, tiles: Tiles, config: Config) -> int | None:
    """Cycles of a run of these tiles, as long as MAX_TIMED trips; None if they do not keep to what instructions and
    scratchpads can hold.
    """
    kernels = MicroKernels()
    try:
        streams: LayerStreams = write(layer, tiles, config, kernels)
        encode(m.instruction for m in streams.body)
    except ValueError:  # a number that its field has no room for
        return None
    rows = tiles.rows if layer.geometry is None else 1
    strides = [
        rows * s.blocked_row(config.block_in) for s in (input_shape(layer), output_shape(layer))
    ]
    fits = max(strides) <= MAX_STRIDE and kernels.total <= config.entries(Memory.UOP)
    if not fits or len(streams.body) > MAX_INSTRUCTIONS:
        return None
    trips = blocks(ROWS, rows) if layer.geometry is None else 1
    stream = [*streams.prologue, *(streams.body * min(trips, MAX_TIMED)), *streams.epilogue]
    time = cycles([m.instruction for m in stream], config)
    return time * trips // min(trips, MAX_TIMED)


__all__ = ["ProgramWriter", "Shape", "input_shape", "measured", "output_shape"]
