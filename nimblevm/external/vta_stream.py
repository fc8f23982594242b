"""The instructions of one layer: prologue, body for each trip (rows of a dense, an image of a convolution), epilogue.

Tokens. The load module may fill one of two buffers while compute reads the other: it takes a "free" token before each
phase, which compute hands back when its products are made; the prologue sends two. Tiles of accumulators are handed to
the store module and back in the same way. A body uses each buffer an even number of times, so that the next trip finds
them where it expects them; steps without work make up for odd numbers.

In the scratchpads: inputs of a dense [row][in block], of a convolution [in block][y][x]; weights [out block][in
block][tap]; results of a dense [row][out block], of a convolution [out block][y][x].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nimblevm.devices.vta_isa import (
    Alu,
    AluOp,
    Config,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    Store,
    uop,
)
from nimblevm.external.vta_layers import POINT, Geometry, Layer
from nimblevm.external.vta_tiles import Tiles, blocks, window

NO_SYMBOL = 0x7FFF
INPUT, WEIGHTS, OUTPUT, VECTORS = 0, 1, 2, 3
"""Symbols of a layer's run: what DRAM addresses count from; vectors of steps from 3 on."""


@dataclass(frozen=True, slots=True)
class Marked:
    """An instruction with the symbol or micro-kernel that it needs; whole: it is about all rows of the trip."""

    instruction: Instruction
    mark: int = NO_SYMBOL
    whole: bool = False


@dataclass(slots=True)
class MicroKernels:
    """Sequences of micro-ops, equal ones once."""

    words: dict[tuple[int, ...], int] = field(default_factory=dict)

    def number(self, words: Sequence[int]) -> int:
        return self.words.setdefault(tuple(words), len(self.words))

    @property
    def total(self) -> int:
        """Micro-ops of all of them."""
        return sum(map(len, self.words))


@dataclass(frozen=True, slots=True)
class LayerStreams:
    prologue: list[Marked]
    body: list[Marked]
    epilogue: list[Marked]


@dataclass(frozen=True, slots=True)
class _Tile:
    """A part of the result: rows and columns from (y, x), out blocks from o; its accumulators begin at acc."""

    y: int
    x: int
    o: int
    rows: int
    columns: int
    outs: int
    acc: int

    @property
    def plane(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True, slots=True)
class _Phase:
    """In blocks from c; where its inputs and weights begin, and weights of one out block to the next."""

    c: int
    ins: int
    inp: int
    wgt: int
    wgt_row: int


def _linked(items: list[Marked], first: dict[str, Any], last: dict[str, Any]) -> list[Marked]:
    """The items, the first and the last with these tokens."""
    done = list(items)
    done[0] = dataclasses.replace(
        done[0], instruction=dataclasses.replace(done[0].instruction, **first)
    )
    done[-1] = dataclasses.replace(
        done[-1], instruction=dataclasses.replace(done[-1].instruction, **last)
    )
    return done


class _Writer:
    """Writes one layer's streams."""

    def __init__(self, layer: Layer, tiles: Tiles, config: Config, kernels: MicroKernels) -> None:
        self.layer, self.tiles, self.config, self.kernels = layer, tiles, config, kernels
        self.dense = layer.geometry is None
        self.geometry: Geometry = layer.geometry or POINT
        self.taps = self.geometry.kernel[0] * self.geometry.kernel[1]
        self.ins = blocks(layer.in_channels, config.block_in)
        self.outs = blocks(layer.out_channels, config.block_out)
        self.vectors = [s for s in layer.steps if s.immediate is None]
        self.stay = tiles.vectors == len(self.vectors) * self.outs
        self.vector_base = config.entries(Memory.ACC) - tiles.vectors

    # --- parts ------------------------------------------------------------------------------------

    def prologue(self) -> list[Marked]:
        items = [Marked(Gemm(push_prev=True))] * 2 + [Marked(Store(push_prev=True))] * 2
        if self.stay:
            items += [self._vector(v, 0, self.outs) for v in range(len(self.vectors))]
        if self.tiles.resident:
            count = self.outs * self.ins * self.taps
            items.append(Marked(Load(Memory.WGT, 0, 0, 1, count, count), WEIGHTS))
        return items

    def epilogue(self) -> list[Marked]:
        free = [Marked(Load(Memory.INP, pop_next=True))] * 2 + [Marked(Gemm(pop_next=True))] * 2
        return [*free, Marked(Finish())]

    def body(self) -> list[Marked]:
        items: list[Marked] = []
        phases = tiles = 0
        for tile in self._tiles():
            compute = self._reset(tile)
            for phase in self._phases(tile, phases):
                phases += 1
                loads = self._inputs(tile, phase)
                if not self.tiles.resident:
                    loads.append(self._weights(tile, phase))
                items += _linked(loads, {"pop_next": True}, {"push_next": True})
                compute += _linked(
                    [self._product(tile, phase)], {"pop_prev": True}, {"push_prev": True}
                )
                if phase.c + phase.ins < self.ins:
                    items += compute
                    compute = []
            compute += self._steps(tile)
            items += _linked(compute, {}, {"push_next": True})
            items += _linked(self._stores(tile), {"pop_prev": True}, {"push_prev": True})
            tiles += 1
        if phases % 2:
            items.append(Marked(Load(Memory.INP, pop_next=True, push_next=True)))
            items.append(Marked(Gemm(pop_prev=True, push_prev=True)))
        if tiles % 2:
            items.append(Marked(Gemm(pop_next=True, push_next=True)))
            items.append(Marked(Store(pop_prev=True, push_prev=True)))
        return items

    def _tiles(self) -> Iterator[_Tile]:
        t = self.tiles
        height, width = (t.rows, 1) if self.dense else self.geometry.out
        half = (self.config.entries(Memory.ACC) - t.vectors) // 2
        number = 0
        for y in range(0, height, t.rows):
            for x in range(0, width, t.columns):
                for o in range(0, self.outs, t.out_blocks):
                    rows, columns = min(t.rows, height - y), min(t.columns, width - x)
                    yield _Tile(
                        y, x, o, rows, columns, min(t.out_blocks, self.outs - o), number % 2 * half
                    )
                    number += 1

    def _phases(self, tile: _Tile, number: int) -> Iterator[_Phase]:
        half_inp = self.config.entries(Memory.INP) // 2
        half_wgt = self.config.entries(Memory.WGT) // 2
        for c in range(0, self.ins, self.tiles.in_blocks):
            count = min(self.tiles.in_blocks, self.ins - c)
            if self.tiles.resident:
                row = self.ins * self.taps
                wgt = tile.o * row + c * self.taps
            else:
                row = count * self.taps
                wgt = number % 2 * half_wgt
            yield _Phase(c, count, number % 2 * half_inp, wgt, row)
            number += 1

    # --- transfers --------------------------------------------------------------------------------

    def _inputs(self, tile: _Tile, phase: _Phase) -> list[Marked]:
        if self.dense:
            load = Load(Memory.INP, phase.inp, phase.c, tile.rows, phase.ins, self.ins)
            return [Marked(load, INPUT, whole=True)]
        g = self.geometry
        height, width = window(g, tile.rows, tile.columns)
        top, rows, above, below = _clipped(tile.y * g.strides[0] - g.pads[0][0], height, g.height)
        left, columns, before, behind = _clipped(
            tile.x * g.strides[1] - g.pads[1][0], width, g.width
        )
        plane = g.height * g.width
        return [
            Marked(
                Load(Memory.INP, phase.inp + c * height * width, (phase.c + c) * plane + top * g.width + left, rows,
                     columns, g.width, above, below, before, behind),
                INPUT,
            )
            for c in range(phase.ins)
        ]  # fmt: skip

    def _weights(self, tile: _Tile, phase: _Phase) -> Marked:
        row = self.ins * self.taps
        load = Load(
            Memory.WGT,
            phase.wgt,
            tile.o * row + phase.c * self.taps,
            tile.outs,
            phase.ins * self.taps,
            row,
        )
        return Marked(load, WEIGHTS)

    def _vector(self, number: int, o: int, count: int) -> Marked:
        at = self.vector_base + number * (self.outs if self.stay else self.tiles.out_blocks)
        return Marked(Load(Memory.ACC, at, o, 1, count, count), VECTORS + number)

    def _stores(self, tile: _Tile) -> list[Marked]:
        if self.dense:
            store = Store(Memory.OUT, tile.acc, tile.o, tile.rows, tile.outs, self.outs)
            return [Marked(store, OUTPUT, whole=True)]
        height, width = self.geometry.out
        return [
            Marked(
                Store(Memory.OUT, tile.acc + o * tile.plane, ((tile.o + o) * height + tile.y) * width + tile.x,
                      tile.rows, tile.columns, width),
                OUTPUT,
            )
            for o in range(tile.outs)
        ]  # fmt: skip

    # --- arithmetic -------------------------------------------------------------------------------

    def _loops(self, tile: _Tile) -> dict[str, Any]:
        """The loops over the positions of a tile."""
        if self.dense:
            return {"iter_out": tile.rows, "dst_out": tile.outs}
        return {
            "iter_out": tile.rows,
            "iter_in": tile.columns,
            "dst_out": tile.columns,
            "dst_in": 1,
        }

    def _outs(self, tile: _Tile) -> list[int]:
        """The accumulators of the tile's out blocks at its first position."""
        step = 1 if self.dense else tile.plane
        return [tile.acc + o * step for o in range(tile.outs)]

    def _reset(self, tile: _Tile) -> list[Marked]:
        outs = self._outs(tile)
        kernel = self.kernels.number([uop(dst) for dst in outs])
        reset = Gemm(uop_end=len(outs), reset=True, pop_next=True, **self._loops(tile))
        items = [Marked(reset, kernel, whole=self.dense)]
        if not self.stay:
            items += [self._vector(v, tile.o, tile.outs) for v in range(len(self.vectors))]
        return items

    def _product(self, tile: _Tile, phase: _Phase) -> Marked:
        if self.dense:
            words = [uop(tile.acc, phase.inp + c, phase.wgt + c) for c in range(phase.ins)]
            gemm = Gemm(
                uop_end=len(words), iter_out=tile.rows, iter_in=tile.outs, dst_out=tile.outs, dst_in=1,
                src_out=phase.ins, wgt_in=phase.wgt_row,
            )  # fmt: skip
            return Marked(gemm, self.kernels.number(words), whole=True)
        g = self.geometry
        height, width = window(g, tile.rows, tile.columns)
        words = [
            uop(
                tile.acc + o * tile.plane,
                phase.inp + (c * height + i * g.dilation[0]) * width + j * g.dilation[1],
                phase.wgt + o * phase.wgt_row + c * self.taps + i * g.kernel[1] + j,
            )
            for o in range(tile.outs)
            for c in range(phase.ins)
            for i in range(g.kernel[0])
            for j in range(g.kernel[1])
        ]
        loops = self._loops(tile) | {"src_out": g.strides[0] * width, "src_in": g.strides[1]}
        return Marked(Gemm(uop_end=len(words), **loops), self.kernels.number(words))

    def _steps(self, tile: _Tile) -> list[Marked]:
        items: list[Marked] = []
        outs, vector = self._outs(tile), 0
        for step in self.layer.steps:
            words = [uop(dst) for dst in outs]
            if step.immediate is None:
                first = self.vector_base + vector * (
                    self.outs if self.stay else self.tiles.out_blocks
                )
                first += tile.o if self.stay else 0
                words = [uop(dst, first + o) for o, dst in enumerate(outs)]
                vector += 1
            alu = Alu(
                uop_end=len(words), op=AluOp(step.op), immediate=step.immediate, **self._loops(tile)
            )
            items.append(Marked(alu, self.kernels.number(words), whole=self.dense))
        return items


def _clipped(begin: int, count: int, size: int) -> tuple[int, int, int, int]:
    """Of `count` positions from `begin` on, those in [0, size): the first, how many, and how many before and behind."""
    first, last = max(begin, 0), min(begin + count, size)
    if first >= last:
        return 0, 0, count, 0
    return first, last - first, first - begin, begin + count - last


def write(layer: Layer, tiles: Tiles, config: Config, kernels: MicroKernels) -> LayerStreams:
    """The streams of a layer; its micro-kernels are added to `kernels`."""
    writer = _Writer(layer, tiles, config, kernels)
    return LayerStreams(writer.prologue(), writer.body(), writer.epilogue())


__all__ = [
    "INPUT",
    "NO_SYMBOL",
    "OUTPUT",
    "VECTORS",
    "WEIGHTS",
    "LayerStreams",
    "Marked",
    "MicroKernels",
    "write",
]
