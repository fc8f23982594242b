"""What VTA instructions mean, one after the other in numpy: the oracle of the simulator. Knows no tokens and no time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nimblevm.devices.vta_isa import (
    ACC_BITS,
    INP_BITS,
    Alu,
    AluOp,
    Config,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    Store,
)


class Reference:
    """Scratchpads and memory of a VTA."""

    def __init__(self, config: Config, dram: np.ndarray) -> None:
        self.config, self.dram = config, dram
        lanes = config.batch * config.block_out
        self.uop = np.zeros(config.entries(Memory.UOP), np.uint32)
        self.inp = np.zeros((config.entries(Memory.INP), config.batch, config.block_in), np.int8)
        self.wgt = np.zeros(
            (config.entries(Memory.WGT), config.block_out, config.block_in), np.int8
        )
        self.acc = np.zeros((config.entries(Memory.ACC), lanes), np.int32)
        self.out = np.zeros((config.entries(Memory.ACC), lanes), np.int8)

    def run(self, program: Sequence[Instruction]) -> None:
        for instruction in program:
            match instruction:
                case Load():
                    self._load(instruction)
                case Store():
                    self._store(instruction)
                case Gemm() | Alu():
                    self._compute(instruction)
                case Finish():
                    pass

    def _rows(self, i: Load | Store, size: int) -> np.ndarray:
        """Indices of DRAM bytes: (y_size, x_size * size)."""
        starts = (i.dram + np.arange(i.y_size) * i.x_stride) * size
        return starts[:, None] + np.arange(i.x_size * size)[None, :]

    def _load(self, i: Load) -> None:
        target: Any = {Memory.UOP: self.uop, Memory.INP: self.inp, Memory.WGT: self.wgt}.get(
            i.memory, self.acc
        )
        size = self.config.entry_bytes(i.memory)
        tile = self.dram[self._rows(i, size)].reshape(i.y_size, i.x_size, size)
        pads = ((i.y_pad_0, i.y_pad_1), (i.x_pad_0, i.x_pad_1), (0, 0))
        flat = np.pad(tile, pads).reshape(-1, size)
        if i.memory is Memory.ACC8:
            self.acc[i.sram : i.sram + len(flat)] = flat.view(np.int8)
        else:
            part = target[i.sram : i.sram + len(flat)]
            part[...] = flat.reshape(-1).view(target.dtype).reshape(part.shape)

    def _store(self, i: Store) -> None:
        size = self.config.entry_bytes(Memory.OUT)
        tile = self.out[i.sram : i.sram + i.y_size * i.x_size].view(np.uint8)
        rows, tile = self._rows(i, size), tile.reshape(i.y_size, i.x_size * size)
        for at, row in zip(rows, tile, strict=True):  # in order: rows may overlap
            self.dram[at] = row

    def _compute(self, i: Gemm | Alu) -> None:
        for outer in range(i.iter_out):
            for inner in range(i.iter_in):
                for word in self.uop[i.uop_begin : i.uop_end]:
                    dst = (int(word) & 2**ACC_BITS - 1) + outer * i.dst_out + inner * i.dst_in
                    src = (
                        (int(word) >> ACC_BITS & 2**INP_BITS - 1)
                        + outer * i.src_out
                        + inner * i.src_in
                    )
                    if isinstance(i, Alu):
                        self._alu(i, dst, src)
                    else:
                        wgt = int(word) >> ACC_BITS + INP_BITS
                        self._gemm(i, dst, src, wgt + outer * i.wgt_out + inner * i.wgt_in)

    def _gemm(self, i: Gemm, dst: int, src: int, wgt: int) -> None:
        if i.reset:
            self.acc[dst] = 0
        else:
            product = self.inp[src].astype(np.int64) @ self.wgt[wgt].astype(np.int64).T
            self.acc[dst] = (self.acc[dst] + product.reshape(-1)).astype(np.int32)
        self.out[dst] = self.acc[dst].astype(np.int8)

    def _alu(self, i: Alu, dst: int, src: int) -> None:
        a = self.acc[dst].astype(np.int64)
        b = self.acc[src].astype(np.int64) if i.immediate is None else np.full_like(a, i.immediate)
        match i.op:
            case AluOp.MIN:
                value = np.minimum(a, b)
            case AluOp.MAX:
                value = np.maximum(a, b)
            case AluOp.ADD:
                value = a + b
            case AluOp.SHR:
                value = np.where(b >= 0, a >> (b & 31), a << (-b & 31))
        self.acc[dst] = value.astype(np.int32)
        self.out[dst] = self.acc[dst].astype(np.int8)
