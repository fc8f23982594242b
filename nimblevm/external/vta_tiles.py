"""How a layer is cut to VTA's scratchpads: the sizes of tiles, chosen by the cycles that they would take.

A tile is a part of the result that stays in the accumulators while all its products are added. Its inputs and weights
come in phases, each a block of in-channels; two of each are held, so that the load module fills one while products read
the other. Accumulators are halved too, so that a tile is stored while the next one is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from nimblevm.devices.vta_isa import Config, Memory
from nimblevm.external.vta_layers import POINT, Geometry, Layer

MAX_UOPS = 512
"""Micro-ops of one block of products: some of them must fit the scratchpad side by side."""
MAX_ROWS = 256
"""Rows of a dense that one trip of its loop takes at most."""
MAX_INSTRUCTIONS = 1 << 17
ROWS = 64
"""Rows of a dense, where the program does not say, that tiles are chosen for."""


def blocks(channels: int, block: int) -> int:
    return -(-channels // block)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Sizes of a full tile: rows x columns of the result (columns of a dense: 1), blocks of out and in channels.

    resident  all weights are loaded once, before the loop, and stay
    vectors   accumulators that hold operands of steps; all of the layer's if they stay
    """

    rows: int
    columns: int
    out_blocks: int
    in_blocks: int
    resident: bool
    vectors: int
    cycles: int


@dataclass(frozen=True, slots=True)
class _Problem:
    """A layer in numbers. vectors: how many steps have a vector as operand; alu: cycles an accumulator of all steps."""

    config: Config
    geometry: Geometry
    dense: bool
    in_blocks: int
    out_blocks: int
    rows: int
    columns: int
    vectors: int
    alu: int

    @property
    def taps(self) -> int:
        return self.geometry.kernel[0] * self.geometry.kernel[1]


def candidates(layer: Layer, config: Config) -> tuple[Tiles, ...]:
    """Tiles that fit the scratchpads, by cost."""
    return _by_cost(_problem(layer, config))


@lru_cache(maxsize=256)
def _by_cost(problem: _Problem) -> tuple[Tiles, ...]:
    found = [t for t in _candidates(problem) if t is not None]
    found.sort(key=lambda t: (t.cycles, t.rows, t.columns, t.out_blocks, t.in_blocks, t.resident))
    return tuple(found)


def _problem(layer: Layer, config: Config) -> _Problem:
    dense = layer.geometry is None
    geometry = layer.geometry or POINT
    rows, columns = (ROWS, 1) if dense else geometry.out
    if dense and all(isinstance(dim, int) for dim in layer.leading):
        rows = 1
        for dim in layer.leading:
            rows *= int(dim) if isinstance(dim, int) else 1
    vectors = sum(step.immediate is None for step in layer.steps)
    return _Problem(
        config, geometry, dense, blocks(layer.in_channels, config.block_in),
        blocks(layer.out_channels, config.block_out), max(rows, 1), columns, vectors,
        len(layer.steps) + vectors,
    )  # fmt: skip


def _parts(size: int, counts: tuple[int, ...]) -> list[int]:
    """Sizes that cut `size` into so many parts of about one size, largest first."""
    return sorted({-(-size // min(count, size)) for count in counts}, reverse=True)


def _candidates(p: _Problem) -> Iterator[Tiles | None]:
    for r in _parts(p.rows, (1, 2, 3, 4, 6, 8, 14, 28, 64, p.rows)):
        if p.dense and r > MAX_ROWS:
            continue
        for c in _parts(p.columns, (1, 2, 4, 8, 16, p.columns)):
            for o in _parts(p.out_blocks, (1, 2, 3, 4, 8, 16, p.out_blocks)):
                for i in _parts(p.in_blocks, (1, 2, 3, 4, 8, 16, p.in_blocks)):
                    yield _tiles(p, r, c, o, i, resident=True)
                    yield _tiles(p, r, c, o, i, resident=False)


def window(p: Geometry, rows: int, columns: int) -> tuple[int, int]:
    """Height and width of the inputs that a tile of the result reads."""
    return (
        (rows - 1) * p.strides[0] + (p.kernel[0] - 1) * p.dilation[0] + 1,
        (columns - 1) * p.strides[1] + (p.kernel[1] - 1) * p.dilation[1] + 1,
    )


def _tiles(p: _Problem, r: int, c: int, o: int, i: int, resident: bool) -> Tiles | None:
    """These sizes with their cost; None if they do not fit."""
    config = p.config
    height, width = (r, 1) if p.dense else window(p.geometry, r, c)
    weights = o * i * p.taps
    held = p.out_blocks * p.in_blocks * p.taps if resident else 2 * weights
    if 2 * i * height * width > config.entries(Memory.INP) or held > config.entries(Memory.WGT):
        return None
    acc = config.entries(Memory.ACC)
    stay = p.vectors * p.out_blocks
    vectors = stay if stay <= acc // 4 else p.vectors * o
    uops = i if p.dense else weights
    fits = 2 * r * c * o + vectors <= acc and uops <= min(MAX_UOPS, config.entries(Memory.UOP) // 8)
    if not fits or _instructions(p, (r, c, o, i)) > MAX_INSTRUCTIONS:
        return None
    return Tiles(r, c, o, i, resident, vectors, _cycles(p, (r, c, o, i), resident, vectors != stay))


def _instructions(p: _Problem, sizes: tuple[int, int, int, int]) -> int:
    """About how many a body has. A dense of many rows has trips; all tiles of an image are one body."""
    r, c, o, i = sizes
    tiles = (1 if p.dense else blocks(p.rows, r) * blocks(p.columns, c)) * blocks(p.out_blocks, o)
    phase = 3 if p.dense else 2 + i
    return tiles * (blocks(p.in_blocks, i) * phase + 1 + p.alu + (1 if p.dense else o))


def _cycles(p: _Problem, sizes: tuple[int, int, int, int], resident: bool, reloads: bool) -> int:
    """About how long all tiles take: the slowest module, and what it waits for at the start and the end."""
    r, c, o, i = sizes
    config = p.config
    height, width = (r, 1) if p.dense else window(p.geometry, r, c)
    spatial, outs, phases = (
        blocks(p.rows, r) * blocks(p.columns, c),
        blocks(p.out_blocks, o),
        blocks(p.in_blocks, i),
    )

    def moved(memory: Memory, entries: int, transfers: int) -> int:
        return (
            entries * config.entry_bytes(memory) // config.bytes_a_cycle
            + transfers * config.dram_latency
        )

    loads_inp = moved(Memory.INP, i * height * width, 1 if p.dense else i)
    loads_wgt = moved(Memory.WGT, o * i * p.taps, 1)
    out = r * c * o
    reset_and_steps = out * (1 + p.alu) + (
        moved(Memory.ACC, p.vectors * o, p.vectors) if reloads else 0
    )
    compute = spatial * outs * (phases * out * i * p.taps + reset_and_steps)
    load = spatial * outs * phases * (loads_inp + (0 if resident else loads_wgt))
    store = spatial * outs * moved(Memory.OUT, out, 1 if p.dense else o)
    trips = blocks(p.rows, r) if p.dense else 1
    fetch = 2 * trips * _instructions(p, sizes)
    first = (
        loads_inp + moved(Memory.WGT, p.out_blocks * p.in_blocks * p.taps, 1)
        if resident
        else loads_inp + loads_wgt
    )
    overhead = fetch  # each instruction costs its module a little more than its cycles: it waits for tokens
    return max(compute, load, store, fetch) + overhead + first + moved(Memory.OUT, out, 1)


__all__ = ["MAX_INSTRUCTIONS", "ROWS", "Tiles", "blocks", "candidates", "window"]
