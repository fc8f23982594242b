"""Runs a VTA program (external code for "vta") as its format says, in Python on the simulator: the oracle of the launch
in native/devices/vta_launch.c, and what tests code generators without a VM.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import msgpack
import numpy as np

from nimblevm.devices.vta import Simulator, Stats
from nimblevm.devices.vta_isa import Config, Instruction, Load, Memory, encode

PAGE = 4096
CONSTANTS, NO_SYMBOL, WHOLE = 0xFFFF, 0x7FFF, 0x8000


class Runner:
    """operands: arrays of the call, inputs first; what the program writes is written into them."""

    def __init__(self, data: bytes, operands: Sequence[np.ndarray]) -> None:
        self.record = msgpack.unpackb(data)
        self.operands = operands
        self.config = Config(*self.record["config"])
        kernels, constants = self.record["micro_kernels"], self.record["constants"]
        parts = [*(op.nbytes for op in operands), len(constants), sum(map(len, kernels))]
        starts = np.cumsum([0, *(-(-size // PAGE) * PAGE for size in parts)])
        self.vta = Simulator(self.config, int(starts[-1]) + PAGE)
        self.begin = {i: int(starts[i]) for i in range(len(operands))} | {
            CONSTANTS: int(starts[len(operands)])
        }
        for i, op in enumerate(operands):
            self._bytes(i, op.nbytes)[:] = np.ascontiguousarray(op).reshape(-1).view(np.uint8)
        self._bytes(CONSTANTS, len(constants))[:] = np.frombuffer(constants, np.uint8)
        at, words = int(starts[len(operands) + 1]), b"".join(kernels)
        self.vta.dram[at : at + len(words)] = np.frombuffer(words, np.uint8)
        self.kernels = np.cumsum([at // 4, *(len(words) // 4 for words in kernels)]).tolist()
        self.first: dict[int, int] = {}
        self.stats: list[Stats] = []
        self.streams: list[bytes] = []

    def _bytes(self, operand: int, size: int) -> np.ndarray:
        return self.vta.dram[self.begin[operand] : self.begin[operand] + size]

    def run(self) -> list[Stats]:
        """All steps; the work of each run."""
        for is_run, operand, axes, *rest in self.record["steps"]:
            rows = prod(self.operands[operand].shape[:axes])
            if not rows:
                continue
            if is_run:
                self._stream(rows, *rest)
            else:
                self._layout(rows, *rest)
        for i, op in enumerate(self.operands):
            op.reshape(-1).view(np.uint8)[:] = self._bytes(i, op.nbytes)
        self.vta.close()
        return self.stats

    def _layout(
        self,
        rows: int,
        src: int,
        dst: int,
        channels: int,
        positions: int,
        last: bool,
        to_blocks: bool,
    ) -> None:
        block = self.config.block_in
        count = -(-channels // block)
        blocked = (rows, count, positions, block)
        if to_blocks:
            plain = self._bytes(src, rows * channels * positions)
            shape = (rows, positions, channels) if last else (rows, channels, positions)
            tensor = plain.reshape(shape) if last else plain.reshape(shape).transpose(0, 2, 1)
            padded = np.zeros((rows, positions, count * block), np.uint8)
            padded[..., :channels] = tensor
            split = padded.reshape(rows, positions, count, block).transpose(0, 2, 1, 3)
            self._bytes(dst, prod(blocked))[:] = split.reshape(-1)
        else:
            source = self._bytes(src, prod(blocked)).reshape(blocked).transpose(0, 2, 1, 3)
            tensor = source.reshape(rows, positions, count * block)[..., :channels]
            flat = tensor if last else tensor.transpose(0, 2, 1)
            self._bytes(dst, rows * channels * positions)[:] = flat.reshape(-1)

    def _stream(self, rows: int, trip: int, symbols: list[list[int]], *parts: bytes) -> None:
        stream = self._micro_kernels(parts)
        stream += self._part(symbols, 0, trip, trip, *parts[:2])
        for t in range(-(-rows // trip)):
            stream += self._part(symbols, t, trip, min(trip, rows - t * trip), *parts[2:4])
        stream += self._part(symbols, 0, trip, trip, *parts[4:])
        self.streams.append(stream)
        self.stats.append(self.vta.run(stream))

    def _micro_kernels(self, parts: Sequence[bytes]) -> bytes:
        """LOADs of those that the streams name, one behind the other."""
        self.first, at = {}, 0
        loads: list[Instruction] = []
        for code, marks in zip(parts[::2], parts[1::2], strict=True):
            for i, mark in enumerate(np.frombuffer(marks, "<u2").tolist()):
                name = mark & ~WHOLE
                if code[16 * i] & 7 < 2 or name == NO_SYMBOL or name in self.first:
                    continue
                begin, end = self.kernels[name : name + 2]
                loads.append(Load(Memory.UOP, at, begin, 1, end - begin, end - begin))
                self.first[name] = at
                at += end - begin
        return encode(loads)

    def _part(
        self, symbols: list[list[int]], t: int, trip: int, rows: int, code: bytes, marks: bytes
    ) -> bytes:
        done = bytearray()
        for at, mark in enumerate(np.frombuffer(marks, "<u2").tolist()):
            word = int.from_bytes(code[16 * at : 16 * at + 16], "little")
            name, transfer = mark & ~WHOLE, word & 7 < 2
            if mark & WHOLE and rows < trip:
                place, width = (64, 16) if transfer else (35, 14)
                word = word & ~(((1 << width) - 1) << place) | rows << place
            if name != NO_SYMBOL and transfer:
                operand, offset, stride = symbols[name]
                byte = self.begin[operand] + offset + t * stride
                entry = self.config.entry_bytes(Memory(word >> 7 & 7))
                assert byte % entry == 0
                word += byte // entry << 26
            elif name != NO_SYMBOL:
                word += self.first[name] << 8 | self.first[name] << 21
            done += word.to_bytes(16, "little")
        return bytes(done)


__all__ = ["Runner"]
