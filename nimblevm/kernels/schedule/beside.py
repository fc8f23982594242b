"""Products of many rows beside the steps of a loop that wait for reading their weights.

before:  for r < n: for j < N: { a = 0; for k < K: a += x[r,k] * w[j/16,k,j%16]; rows[r,j] = f(a) }
         for t < n: for u < U: { (sums with packed weights) ... rows[t,u] ... }
after:   (the first nest for r < L + left)
         for t < n: for g < U / 64, parallel:
           tile = ... * ..., beside it a part of rows[r .. r + 8, 32 c .. + 32]         r, c: by t and g
           (the epilogue of the step); rows[..] = f(the other tile)

A step multiplies one row: its weights come from the caches at 32 bytes a cycle at best, which leaves the multiply-adds
idle for more than half of the time. The rows that steps take (kernels/ahead.py) are products of many rows, bound by the
multiply-adds. So in each turn of L steps the 8 rows behind those known are computed: L steps of U / 64 groups each have
one piece of 8 rows and 32 columns, or two, one beside each half of the step's products; a product gets a part of the
piece's depth. L is 4 to 8, the least for which there are places enough. Where few rows would be left for the last turn
they are computed at the beginning too. A turn with less than 8 new rows computes known ones once more and drops them.

What it costs is reading: a piece brings its weights through the first-level cache, as the step does its own. With 8
rows and 32 columns that are 0.16 cache lines a multiply-add of vectors (docs/performance-log.md). Several nests may
stand beside the same steps. A sum adds its terms in the order of a product by itself, whatever is beside it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from nimblevm.kernels.facts import loads_of, stored, touched
from nimblevm.kernels.llvm_beside import PANELS, ROWS, turns_beside
from nimblevm.kernels.loop_ir import (
    Beside,
    Buffer,
    Compare,
    Const,
    DimRef,
    For,
    If,
    Load,
    LoopVar,
    PanelProduct,
    Part,
    Statement,
    Store,
    Value,
)
from nimblevm.kernels.panel_tile import LANES, MAX_PANELS, TILE_ROW
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule.index import INDEX, const, folded, least
from nimblevm.kernels.schedule.panels import Nest, Paneler, nest_of
from nimblevm.kernels.variants import Choices

_FEW = 5
"""So many rows at the end are worth a turn of their own beside the steps; fewer are computed first."""
_MOST = 3 << 20
"""Bytes of weights that are read again every 8 rows: more than these, with the step's, a shared third-level cache may
not hold. Two layers 512->512, with 8 MB in the second, took 4 to 5 % less in turns with themselves on a quiet machine
and 5 to 16 % more in turns with another program (docs/performance-log.md).
"""


@dataclass(frozen=True, eq=False, slots=True)
class _Pair:
    """Statements of a kernel's body: sums of many rows, by number, and the steps that read them, number `second`."""

    rows: dict[int, Nest]
    second: int
    loop: For
    steps: Nest


def _find(body: Sequence[Statement], buffers: Sequence[Buffer]) -> _Pair | None:
    for second, loop in enumerate(body):
        if not isinstance(loop, For) or loop.parallel or len(loop.body) != 1:
            continue
        inside = loop.body[0]
        steps = nest_of(inside, buffers) if isinstance(inside, For) else None
        if steps is None or len(steps.loops) != 1 or not _is_float(steps):
            continue
        groups = -(-_size(steps.columns) // TILE_ROW)
        found: dict[int, Nest] = {}
        left = ROWS * groups
        for number, statement in enumerate(body[:second]):
            rows = nest_of(statement, buffers) if isinstance(statement, For) else None
            others = [s for n, s in enumerate(body) if n not in (number, second)]
            if rows is not None and _pieces(rows) <= left and _fits(rows, loop, others, buffers):
                found[number] = rows
                left -= _pieces(rows)
        if found and groups > 1:
            return _Pair(found, second, loop, steps)
    return None


def _is_float(nest: Nest) -> bool:
    known = all(isinstance(p.depth.extent, Const) for p in nest.products)
    return known and all(p.x.dtype == p.w.dtype == "float32" for p in nest.products)


def _fits(nest: Nest, loop: For, others: Sequence[Statement], buffers: Sequence[Buffer]) -> bool:
    """Whether rows go to scratch of which each step reads its own row alone."""
    rows = nest.rows
    if rows is None or len(nest.loops) != 2 or not _same(rows.extent, loop.extent):
        return False
    if len(nest.products) != 1 or not _is_float(nest):
        return False
    stores = [s for s in all_statements(nest.after) if isinstance(s, Store)]
    if len(stores) != 1 or stores[0].indices[0] is not rows.var:
        return False
    x, target = nest.products[0].x, stores[0].buffer
    if 4 * _size(nest.products[0].depth) * _size(nest.columns) > _MOST:
        return False
    literal = all(isinstance(axis.size, Const) for axis in buffers[x.buffer].axes[1:])
    if x.indices[0] is not rows.var or not literal:
        return False
    if buffers[target].role != "scratch" or target in touched(others):
        return False
    loads = [load for load in loads_of((loop,)) if load.buffer == target]
    return target not in stored((loop,)) and all(load.indices[0] is loop.var for load in loads)


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, DimRef) and isinstance(other, DimRef):
        return one.index == other.index
    return one is other


def _size(loop: For) -> int:
    assert isinstance(loop.extent, Const)
    return int(loop.extent.value)


def _pieces(nest: Nest) -> int:
    return -(-_size(nest.columns) // (LANES * PANELS))


class _Besider(Paneler):
    """Tiles the two nests of a pair."""

    def __init__(
        self, buffers: Sequence[Buffer], features: tuple[str, ...], choices: Choices, pair: _Pair
    ) -> None:
        super().__init__(buffers, features, choices)
        self.pair = pair
        self.total = pair.loop.extent
        self.pieces = list(itertools.accumulate(map(_pieces, pair.rows.values())))
        self.groups = -(-_size(pair.steps.columns) // TILE_ROW)
        count = len(pair.steps.products)
        self.halves = 1 + (count % 2 == 0)
        self.share = count // 2 if self.halves == 2 else max(count - 1, 1)  # products of a half
        self.turn = max(ROWS - _FEW, -(-self.pieces[-1] // (self.groups * self.halves)))
        rest = folded("floormod", folded("sub", self.total, const(self.turn)), const(ROWS))
        few = folded("sub", const(1), least(1, folded("floordiv", rest, const(_FEW))))
        self.left = folded("mul", rest, few)
        since = folded("sub", pair.loop.var, self.left)
        self.begun = least(1, folded("max", folded("add", since, const(1)), const(0)))
        self.phase = folded("floormod", since, const(self.turn))
        ahead = folded(
            "mul",
            const(ROWS - self.turn),
            folded("max", folded("floordiv", since, const(self.turn)), const(0)),
        )
        # From the row of this step to those behind the ones that are known.
        self.distance = folded("add", folded("sub", const(self.turn), self.phase), ahead)
        self.tile = self._tile("float32", ROWS)

    def before(self, nest: Nest) -> list[Statement]:
        """The rows that are computed before the first step."""
        rows, columns = nest.loops
        count = folded("min", folded("add", const(self.turn), self.left), self.total)
        first = For(rows.var, count, rows.body, parallel=True)
        return self.tiled(Nest((first, columns), nest.products, nest.after))

    def _sums(
        self, nest: Nest, products: Sequence[PanelProduct], panel: Value
    ) -> Sequence[Statement]:
        """Each half with its piece is a part; so is a product that is left over where their number is odd."""
        if nest is not self.pair.steps:
            return super()._sums(nest, products, panel)
        share = self.share
        parts: list[Sequence[Statement]] = [
            self._half(half, products[half * share : (half + 1) * share], panel)
            for half in range(self.halves)
        ]
        parts += [[self._alone(product)] for product in products[self.halves * share :]]
        return parts[0] if len(parts) == 1 else [Part(tuple(part)) for part in parts]

    def _alone(self, product: PanelProduct) -> PanelProduct:
        """A product with nothing beside it, by the same micro-kernel."""
        own = next(iter(self.pair.rows.values()))
        found = self._beside(own, product, (0, 1), const(0), const(0))
        assert found.beside is not None
        return dataclasses.replace(found, beside=dataclasses.replace(found.beside, depth=const(0)))

    def _half(self, half: int, products: Sequence[PanelProduct], panel: Value) -> list[Statement]:
        """Products with a piece beside them, and its results."""
        piece, rows = self._piece(half, panel)
        sums: list[list[Statement]] = []
        results: list[list[Statement]] = []
        for own, end in zip(self.pair.rows.values(), self.pieces, strict=True):
            first = folded("sub", piece, const(end - _pieces(own)))
            first = folded("mul", first, const(PANELS))
            sums.append([
                self._beside(own, product, (n, len(products)), rows, first)
                for n, product in enumerate(products)
            ])  # fmt: skip
            results.append(self._results(own, rows, first))
        both = (_choose(piece, self.pieces, sums), _choose(piece, self.pieces, results))
        return [*both[0], *both[1]]

    def _piece(self, half: int, panel: Value) -> tuple[Value, Value]:
        """The piece of one half of the group that begins with a panel, and how many of its rows are new: 0 before the
        first turn, where there is no piece, and at the end.
        """
        pieces, places = self.pieces[-1], self.turn * self.groups * self.halves
        group = folded("floordiv", panel, const(MAX_PANELS))
        unit = folded("add", folded("mul", self.phase, const(self.groups)), group)
        place = folded("add", folded("mul", unit, const(self.halves)), const(half))

        def before(number: Value) -> Value:
            return folded("floordiv", folded("mul", number, const(pieces)), const(places))

        piece = before(place)
        has = folded("sub", before(folded("add", place, const(1))), piece)
        known = folded("add", self.pair.loop.var, self.distance)
        new = folded("max", least(ROWS, folded("sub", self.total, known)), const(0))
        return piece, folded("mul", folded("mul", has, self.begun), new)

    def _beside(
        self, nest: Nest, product: PanelProduct, part: tuple[int, int], rows: Value, panel: Value
    ) -> PanelProduct:  # fmt: skip
        """A product of the step with a part of the depth of the piece beside it."""
        own = nest.products[0]
        depth, (number, of) = _size(own.depth), part
        begin, end = depth * number // of, depth * (number + 1) // of
        shortest = min(_size(p.depth) for p in self.pair.steps.products)
        turns = turns_beside(shortest, -(-depth // self.share))
        # The last turn computes rows that are known once more, so that there are always 8.
        first = folded("add", self.pair.loop.var, self.distance)
        start = folded("min", first, folded("sub", self.total, const(ROWS)))
        x = Load(own.x.dtype, own.x.buffer, (start, *own.x.indices[1:-1], const(begin)))
        panels = -(-_size(nest.columns) // LANES)
        if own.width == LANES:
            w = Load(own.w.dtype, own.w.buffer, (panel, const(begin), const(0)))
            w_panel = self._stride(own.w.buffer, 0)
        else:
            group = folded("floordiv", panel, const(MAX_PANELS))
            column = folded("mul", folded("floormod", panel, const(MAX_PANELS)), const(LANES))
            w, w_panel = (
                Load(own.w.dtype, own.w.buffer, (group, const(begin), column)),
                const(LANES),
            )
        count = least(PANELS, folded("sub", const(panels), panel))
        steps = (self._stride(own.x.buffer, 0), self._stride(own.w.buffer, 1), w_panel)
        beside = Beside(
            self.tile, x, w, *steps, const(end - begin), rows, count, number == 0, turns
        )
        return dataclasses.replace(product, beside=beside)

    def _results(self, nest: Nest, rows: Value, panel: Value) -> list[Statement]:
        """The epilogue of the rows, once their piece is complete: in the products' last part."""
        columns = _size(nest.columns)
        whole, rest = divmod(columns, LANES)
        row = LoopVar(INDEX, "r")
        start = folded("add", self.distance, row)
        at = folded("add", row, folded("sub", const(ROWS), rows))
        target = folded("add", self.pair.loop.var, start)
        panels = LoopVar(INDEX, "p")
        inside: list[Statement] = []
        lanes = self._lanes(nest, (self.tile,), target, at, panel, panels, LANES, target)
        full = folded("max", least(PANELS, folded("sub", const(whole), panel)), const(0))
        inside.append(For(panels, full, (lanes,)))
        if rest:
            end = folded("sub", const(whole), panel)
            last = self._lanes(nest, (self.tile,), target, at, panel, end, rest, target)
            inside.append(If(Compare("bool", "lt", end, const(PANELS)), (last,)))
        return [For(row, rows, tuple(inside))]


def _choose(
    piece: Value, ends: Sequence[int], blocks: Sequence[list[Statement]]
) -> list[Statement]:
    """The block of the nest that a piece is of."""
    found = blocks[-1]
    for end, block in zip(reversed(ends[:-1]), reversed(blocks[:-1]), strict=True):
        found = [If(Compare("bool", "lt", piece, const(end)), tuple(block), tuple(found))]
    return found


def tile_beside(
    buffers: tuple[Buffer, ...],
    body: Sequence[Statement],
    features: tuple[str, ...] = (),
    choices: Choices | None = None,
) -> tuple[tuple[Buffer, ...], tuple[Statement, ...]]:
    """Buffers, tiles on the stack behind them, and the new body."""
    pair = _find(body, buffers) if "avx512f" in features else None
    if pair is None:
        return buffers, tuple(body)
    besider = _Besider(buffers, features, choices or Choices(), pair)
    new: list[Statement] = []
    for number, statement in enumerate(body):
        if number in pair.rows:
            new += besider.before(pair.rows[number])
        elif number == pair.second:
            steps = besider.tiled(pair.steps)
            new.append(For(pair.loop.var, pair.loop.extent, tuple(steps)))
        else:
            new.append(statement)
    return tuple(besider.buffers), tuple(new)


__all__ = ["tile_beside"]
