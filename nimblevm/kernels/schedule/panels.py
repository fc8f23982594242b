"""Products with packed weights (panels of 16 or 64 columns, K-major): register tiles, and the epilogue on the tile.

before:  for i < M: for j < N: { a = 0; for k < K: a += x[i,k] * w[j/16,k,j%16]; (more such sums) out[i,j] = f(a, ..) }
after:   for g < N / 64, parallel:
           for q < M / 12:
             tile_a = x[12q.., :] * w[4g.., :, :]        (PanelProduct, a tile on the stack; one a sum)
             for r < 12: for p < 4: for t < 16: { a = tile_a[r,p,t]; out[12q+r, 64g+16p+t] = f(a, ..) }

A panel of 64 columns counts as four of 16 that lie side by side, or in pairs (relay/op/dense_pack.py).

Rows, panels and columns that are left over take the same path: rows and panels are counts that the micro-kernels
branch on, columns that do not fill a panel are one masked vector. Several sums, each with weights of its own, share
the epilogue: so the gates of a recurrent cell, or a product and what is added to it, are one kernel.

Sums whose weights share panels (pieces.py) are one product with a wide tile:

         for g < N / block, parallel: for q < M / 6:
           tile = x[6q.., :] * w[panels g.., :, :]
           for r < 6: for p < block / 16: for t < 16: { a = tile[r, 16p+t]; b = tile[r, block+16p+t]; .. }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nimblevm.kernels.loop_ir import (
    Accumulate,
    Axis,
    Binary,
    Buffer,
    Cast,
    Compare,
    Const,
    For,
    If,
    Load,
    Local,
    LoopVar,
    PanelProduct,
    Part,
    SetLocal,
    Statement,
    Unary,
    Value,
)
from nimblevm.kernels.panel_tile import LANES, LOW, MANY, MAX_PANELS, MAX_ROWS, TILE_ROW
from nimblevm.kernels.rewrite import Rewriter, all_statements, all_values, replace_loops
from nimblevm.kernels.schedule.index import INDEX, STACK, const, folded, is_zero, least, mentions
from nimblevm.kernels.schedule.pieces import Piece, piece_of, share_panels
from nimblevm.kernels.variants import Choices, Shape, Variant
from nimblevm.relay.op.dense_pack import PAIRS

_PAIRED_RANK = 2 + len(PAIRS)
"""Of a weight whose columns lie in pairs."""
ROWS_OF_MANY = 6
"""The most rows of a tile where several products share the first-level cache."""


@dataclass(frozen=True, eq=False, slots=True)
class Product:
    """One sum of a nest: `local` gets sum over `depth` of x * w, whose panels have `width` columns, in pairs or not;
    piece: if it shares them.
    """

    local: Local
    depth: For
    x: Load
    w: Load
    width: int
    piece: Piece | None = None

    @property
    def pairs(self) -> bool:
        return len(self.w.indices) == _PAIRED_RANK


@dataclass(frozen=True, eq=False, slots=True)
class Nest:
    """Loops around outputs, from the outermost to the one over columns; products; what is done with the sums."""

    loops: tuple[For, ...]
    products: tuple[Product, ...]
    after: tuple[Statement, ...]

    @property
    def columns(self) -> For:
        return self.loops[-1]

    @property
    def rows(self) -> For | None:
        """The loop around that over columns, if there is one."""
        return self.loops[-2] if len(self.loops) > 1 else None


def nest_of(statement: For, buffers: Sequence[Buffer], shared: bool = False) -> Nest | None:
    """The parts of a perfect nest of parallel loops whose body is products with packed weights and an epilogue. shared:
    weights that share their panels are asked for.
    """
    loops = [statement]
    while len(loops[-1].body) == 1 and isinstance(loops[-1].body[0], For):
        loops.append(loops[-1].body[0])
    columns = loops[-1]
    if not all(loop.parallel for loop in loops) or not isinstance(columns.extent, Const):
        return None
    vars_ = {loop.var for loop in loops}
    if any(
        isinstance(v, LoopVar) and v in vars_ for loop in loops for v in all_values((loop.extent,))
    ):
        return None
    products: list[Product] = []
    body = columns.body
    while len(body) > 1 and isinstance(body[1], For):
        found = _product(body[0], body[1], columns.var, buffers, shared)
        if found is None:
            return None
        products.append(found)
        body = body[2:]
    if not products or any(isinstance(s, For | Accumulate) for s in all_statements(body)):
        return None
    if shared and not share_panels(
        [p.piece for p in products], [p.x for p in products], [p.w for p in products]
    ):
        return None
    nest = Nest(tuple(loops), tuple(products), body)
    return nest if all(_rows_step(nest, p.x, buffers) for p in products) else None


def _product(
    start: Statement, loop: For, column: LoopVar, buffers: Sequence[Buffer], shared: bool
) -> Product | None:
    if not isinstance(start, SetLocal) or not is_zero(start.value) or len(loop.body) != 1:
        return None
    step = loop.body[0]
    local = start.local
    if not isinstance(step, Accumulate) or step.local is not local or step.op != "add":
        return None
    value = step.value
    if (
        local.dtype not in ("float32", "float64")
        or not isinstance(value, Binary)
        or value.op != "mul"
    ):
        return None
    x, w = value.lhs, _weight(value.rhs, local.dtype)
    if not isinstance(x, Load) or w is None or x.dtype != local.dtype:
        return None
    piece = piece_of(w, loop.var, column) if shared else None
    width = LANES if piece is not None else _width(w, loop.var, column)
    if width is None or not _is_row(x, loop.var, column, buffers):
        return None
    return Product(local, loop, x, w, width, piece)


def _weight(value: Value, dtype: str) -> Load | None:
    """The load of a weight: of `dtype`, or of 16 bits widened to float32 (compute/dense_pack.py)."""
    match value:
        case Load(dtype=own) if own == dtype:
            return value
        case Cast(dtype="float32", operand=Load(dtype="float16") as load):
            return load
        case Unary(
            op="bits",
            dtype="float32",
            operand=Binary(op="shl", lhs=Cast(operand=Load(dtype="uint16") as load)),
        ):
            return load
    return None


def _is_row(x: Load, depth: LoopVar, column: LoopVar, buffers: Sequence[Buffer]) -> bool:
    """Whether a load runs along its last axis with the depth and is the same for all columns."""
    if not x.indices or x.indices[-1] is not depth:
        return False
    if buffers[x.buffer].axes[-1].broadcast:
        return False
    return not any(mentions(index, depth) for index in x.indices[:-1]) and not mentions(x, column)


def _width(w: Load, depth: LoopVar, column: LoopVar) -> int | None:
    """The columns of a panel of w; None if w does not lie in such panels."""
    if len(w.indices) < 3 or w.indices[1] is not depth:
        return None
    width = _by(w.indices[0], "floordiv", column)
    lanes = w.indices[2:]
    if len(w.indices) == _PAIRED_RANK and w.dtype == "uint16":
        return width if width == TILE_ROW and _are_pairs(lanes, column) else None
    same = len(lanes) == 1 and width is not None and width == _by(lanes[0], "floormod", column)
    return width if same and width in (LANES, TILE_ROW) else None


def _are_pairs(lanes: Sequence[Value], column: LoopVar) -> bool:
    """Whether indices are the block, the lane and the number in its pair of a column."""

    def bit(index: Value) -> int | None:
        """n if an index is `column / n % 2`."""
        match index:
            case Binary(op="floormod", lhs=number, rhs=Const(value=2)):
                return _by(number, "floordiv", column)
        return None

    block, lane, number = lanes
    return (bit(block), _by(lane, "floormod", column), bit(number)) == (2 * LANES, LANES, LANES)


def _by(index: Value, op: str, column: LoopVar) -> int | None:
    """n if an index is `column op n`."""
    if not isinstance(index, Binary) or index.op != op or index.lhs is not column:
        return None
    return int(index.rhs.value) if isinstance(index.rhs, Const) else None


def _rows_step(nest: Nest, x: Load, buffers: Sequence[Buffer]) -> bool:
    """Whether a row's element lies a fixed stride behind that of the row before."""
    rows = nest.rows
    if rows is None:
        return True
    with_rows = [a for a, index in enumerate(x.indices) if mentions(index, rows.var)]
    if len(with_rows) > 1:
        return False
    return all(
        x.indices[a] is rows.var and not any(b.broadcast for b in buffers[x.buffer].axes[a:])
        for a in with_rows
    )


class Paneler:
    """Rewrites the nests of one kernel; `buffers` grows by the tiles."""

    def __init__(
        self, buffers: Sequence[Buffer], features: tuple[str, ...], choices: Choices
    ) -> None:
        self.buffers = list(buffers)
        self.features = features
        self.choices = choices

    def of(self, loop: For) -> list[Statement] | None:
        """What a loop becomes; None if it stays."""
        nest = nest_of(loop, self.buffers)
        if nest is not None:
            return self.tiled(nest)
        shared = nest_of(loop, self.buffers, shared=True)
        return None if shared is None else [self._shared(shared)]

    def tiled(self, nest: Nest) -> list[Statement]:
        columns = nest.columns.extent
        assert isinstance(columns, Const)
        if columns.value == 0:
            return []
        height = self._variant(nest, nest.products[0]).height
        height = height if len(nest.products) == 1 else min(height, ROWS_OF_MANY)
        height = height if nest.rows is not None else 1
        panels = -(-int(columns.value) // LANES)
        groups = -(-panels // MAX_PANELS)
        group = LoopVar(INDEX, "g")
        first_panel = folded("mul", group, const(MAX_PANELS)) if groups > 1 else const(0)
        whole = panels % MAX_PANELS == 0
        here = const(MAX_PANELS) if whole else panels_left(panels, first_panel)
        tiles = [self._tile(product.local.dtype, height) for product in nest.products]

        def block(start: Value, count: Value, part: Value, blocks: Value) -> list[Statement]:
            return self._block(nest, tiles, start, count, part, blocks, first_panel, here)

        body = self._blocks_of_rows(nest, height, block)
        return body if groups == 1 else [For(group, const(groups), tuple(body), parallel=True)]

    def _shared(self, nest: Nest) -> For:
        """The statements for products whose weights share panels: a turn for each block of columns."""
        columns, first = nest.columns.extent, nest.products[0]
        pieces = [p.piece for p in nest.products if p.piece is not None]
        assert isinstance(columns, Const)
        size, all_panels = pieces[0].block, pieces[0].panels
        # Those that these products have columns in.
        skipped = min(piece.first for piece in pieces) // LANES
        panels = -(-(max(piece.first for piece in pieces) + size) // LANES) - skipped
        height = min(self._variant(nest, first).height, ROWS_OF_MANY)
        tile = self._tile(first.local.dtype, height, panels * LANES)
        groups = int(columns.value) // size
        group, row = LoopVar(INDEX, "g"), LoopVar(INDEX, "r")
        here, after = (
            folded("add", folded("mul", number, const(all_panels)), const(skipped))
            for number in (group, folded("floormod", folded("add", group, const(1)), const(groups)))
        )

        def lanes(start: Value, panel: Value, count: int) -> For:
            lane, before = LoopVar(INDEX, "t"), folded("mul", panel, const(LANES))
            at = folded("add", folded("mul", row, const(panels * LANES)), before)
            at = Binary(INDEX, "add", at, lane)
            firsts = [piece.first - skipped * LANES for piece in pieces]
            sums = [(tile, folded("add", at, const(first))) for first in firsts]
            column = folded("add", folded("mul", group, const(size)), before)
            column = folded("add", column, lane)
            return self._epilogue(nest, sums, folded("add", start, row), column, lane, count)

        def block(start: Value, count: Value, part: Value, blocks: Value) -> list[Statement]:
            following = self._weights(first, after, folded("min", part, const(panels - 1)))
            product = self._statement(
                nest, first, tile, start, count, blocks, here, const(panels), following, panels * LANES
            )  # fmt: skip
            inside: list[Statement] = []
            whole, rest = divmod(size, LANES)
            if whole:
                panel = LoopVar(INDEX, "p")
                inside.append(For(panel, const(whole), (lanes(start, panel, LANES),)))
            if rest:
                inside.append(lanes(start, const(whole), rest))
            return [product, *_of_rows(nest, row, count, inside)]

        body = self._blocks_of_rows(nest, height, block)
        return For(group, const(groups), tuple(body), parallel=True)

    def _blocks_of_rows(
        self,
        nest: Nest,
        height: int,
        block: Callable[[Value, Value, Value, Value], list[Statement]],
    ) -> list[Statement]:
        """What `block` (first row, rows, part: see `_following`, number of blocks) gives, for blocks of `height` rows,
        in the loops around rows.
        """
        rows = nest.rows
        if rows is None:
            body = block(const(0), const(1), const(0), const(1))
        else:
            number = LoopVar(INDEX, rows.var.name + "q")
            blocks = folded(
                "floordiv", folded("add", rows.extent, const(height - 1)), const(height)
            )
            start, count = _rows_of(rows.extent, height, blocks, number)
            inside = block(start, count, *_shares_of(number, blocks, height))
            body = [For(number, blocks, tuple(inside), parallel=True)]
        for loop in reversed(nest.loops[:-2]):
            body = [For(loop.var, loop.extent, tuple(body), parallel=True)]
        return body

    def _variant(self, nest: Nest, product: Product) -> Variant:
        depth, units = product.depth.extent, nest.columns.extent
        assert isinstance(units, Const)
        known = int(depth.value) if isinstance(depth, Const) else 0
        shape = Shape(product.x.dtype, product.w.dtype, known, int(units.value))
        return self.choices.of(shape, self.features)

    def _tile(self, dtype: str, height: int, width: int = TILE_ROW) -> int:
        self.buffers.append(Buffer(STACK, dtype, "scratch", (Axis(const(height * width)),)))
        return len(self.buffers) - 1

    def _block(
        self, nest: Nest, tiles: Sequence[int], start: Value, count: Value, part: Value, blocks: Value, panel: Value,
        panels: Value,
    ) -> list[Statement]:  # fmt: skip
        """Products for rows start .. start + count, one of so many blocks, and the panels of one group, then the
        epilogue. part: see `_following`.
        """
        found = [
            self._statement(nest, product, tile, start, count, blocks, panel, panels, following)
            for product, tile, following in zip(
                nest.products, tiles, self._following(nest, part, panel), strict=True
            )
        ]
        columns = nest.columns.extent
        assert isinstance(columns, Const)
        whole, rest = divmod(int(columns.value), LANES)
        row = LoopVar(INDEX, "r")
        inside: list[Statement] = []
        if whole:
            at = LoopVar(INDEX, "p")
            lanes = self._lanes(nest, tiles, start, row, panel, at, LANES)
            inside.append(For(at, panels_left(whole, panel), (lanes,)))
        if rest:
            at_end = folded("sub", const(whole), panel)
            lanes = self._lanes(nest, tiles, start, row, panel, at_end, rest)
            last = Compare("bool", "lt", at_end, const(MAX_PANELS))
            inside.append(lanes if isinstance(panel, Const) else If(last, (lanes,)))
        return [*self._sums(nest, found, panel), *_of_rows(nest, row, count, inside)]

    def _sums(
        self, nest: Nest, products: Sequence[PanelProduct], panel: Value
    ) -> Sequence[Statement]:
        """The products of a group. Those of one row are parts: the order in which they read their weights is free."""
        if nest.rows is not None or len(products) == 1:
            return products
        return [Part((product,)) for product in products]

    def _following(self, nest: Nest, part: Value, panel: Value) -> list[Load]:
        """For each product the weights to fetch meanwhile: those of the next product, of the next group after the last
        one. Blocks of rows fetch a part each (llvm_panels.py).
        """
        columns = nest.columns.extent
        assert isinstance(columns, Const)
        groups = -(-int(columns.value) // TILE_ROW)
        after = folded(
            "floormod", folded("add", panel, const(MAX_PANELS)), const(groups * MAX_PANELS)
        )
        found = [self._weights(product, panel, part) for product in nest.products[1:]]
        return [*found, self._weights(nest.products[0], after, part)]

    def _weights(self, product: Product, panel: Value, part: Value) -> Load:
        """The first weight of a product for the columns from `panel`, counted in panels of 16; `part` quarters of the
        group's weights behind it.
        """
        if product.width == LANES:
            return Load(
                product.w.dtype, product.w.buffer, (folded("add", panel, part), const(0), const(0))
            )
        group = folded("floordiv", panel, const(MAX_PANELS))
        skipped = folded("mul", part, product.depth.extent)
        turn = folded("floordiv", skipped, const(MAX_PANELS))
        zeros = (const(0),) * (len(product.w.indices) - 2)
        return Load(product.w.dtype, product.w.buffer, (group, turn, *zeros))

    def _statement(
        self, nest: Nest, product: Product, tile: int, start: Value, count: Value, blocks: Value, panel: Value,
        panels: Value, following: Load, tile_row: int = TILE_ROW,
    ) -> PanelProduct:  # fmt: skip
        rows = nest.rows
        at: dict[Value, Value] = {product.depth.var: const(0)}
        x_row: Value = const(0)
        if rows is not None:
            at[rows.var] = start
            for axis, index in enumerate(product.x.indices):
                if index is rows.var:
                    x_row = self._stride(product.x.buffer, axis)
        x = Rewriter(at.get).value(product.x)
        assert isinstance(x, Load)
        w = self._weights(product, panel, const(0))
        w_panel = const(LANES) if product.width > LANES else self._stride(w.buffer, 0)
        if product.pairs:  # both panels of a pair, also where the second one is empty
            panels = folded(
                "mul", folded("floordiv", folded("add", panels, const(1)), const(2)), const(2)
            )
        return PanelProduct(
            tile, x, x_row, w, self._stride(w.buffer, 1), w_panel, product.depth.extent, count, panels,
            self._variant(nest, product), following, blocks, None, tile_row, product.pairs,
        )  # fmt: skip

    def _stride(self, buffer: int, axis: int) -> Value:
        """Elements from one index of an axis to the next."""
        total: Value = const(1)
        for size in self.buffers[buffer].axes[axis + 1 :]:
            total = folded("mul", total, size.size)
        return total

    def _lanes(
        self, nest: Nest, tiles: Sequence[int], start: Value, row: Value, panel: Value, at: Value, count: int,
        index: Value | None = None,
    ) -> For:  # fmt: skip
        """The epilogue of one row of one panel. row: in the tile; index: of the row, if not start + row."""
        lane = LoopVar(INDEX, "t")
        place = folded("add", folded("mul", row, const(TILE_ROW)), folded("mul", at, const(LANES)))
        place = Binary(INDEX, "add", place, lane)
        column = folded("add", folded("mul", folded("add", panel, at), const(LANES)), lane)
        rows = folded("add", start, row) if index is None else index
        return self._epilogue(nest, [(tile, place) for tile in tiles], rows, column, lane, count)

    def _epilogue(
        self, nest: Nest, sums: Sequence[tuple[int, Value]], row: Value, column: Value, lane: LoopVar, count: int,
    ) -> For:  # fmt: skip
        """What is done with the sums of one row and `count` columns, of which `column` is a lane's. sums: the tile
        of each product's, and the place in it.
        """
        # Locals of its own: else LLVM may take the last lane's value for one that is used after the loop.
        replace: dict[Value, Value] = {
            local: Local(local.dtype, local.name) for local in _locals(nest)
        }
        loads = [
            SetLocal(local, Load(local.dtype, tile, (place,)))
            for product, (tile, place) in zip(nest.products, sums, strict=True)
            if isinstance(local := replace[product.local], Local)
        ]
        replace[nest.columns.var] = column
        if nest.rows is not None:
            replace[nest.rows.var] = row
        after = Rewriter(replace.get).block(nest.after)
        return For(lane, const(count), (*loads, *after), parallel=True, masked=count < LANES)


def _of_rows(
    nest: Nest, row: LoopVar, count: Value, inside: Sequence[Statement]
) -> list[Statement]:
    """The epilogues of a row, for all rows of a block."""
    if nest.rows is not None:
        return [For(row, count, tuple(inside))]
    replace = {row: const(0)}
    return list(Rewriter(lambda v: replace.get(v)).block(inside))  # type: ignore[call-overload]


def _rows_of(rows: Value, height: int, blocks: Value, block: Value) -> tuple[Value, Value]:
    """The first row of a block and how many rows it has: `height`, fewer at the end. But where a single row would be
    left, which takes as long as three do, all blocks begin half a block earlier, the first one at row 0.

    Every call of a product computes this, however small: all but the block's number is the same for all of its blocks.
    """
    last = folded("mul", folded("sub", blocks, const(1)), const(height))
    more = folded("sub", folded("sub", rows, const(1)), last)  # rows of the last block, less 1
    single = folded("max", folded("sub", const(1), more), const(0))  # 1 if there is but one
    shift = folded("mul", single, const(height // 2))
    whole = folded("sub", folded("mul", block, const(height)), shift)
    start = whole if is_zero(shift) else folded("max", whole, const(0))
    after = folded("min", folded("add", whole, const(height)), rows)
    most = min(height, int(rows.value)) if isinstance(rows, Const) else height
    return start, least(most, folded("sub", after, start))


def _shares_of(block: Value, blocks: Value, height: int) -> tuple[Value, Value]:
    """Which part of the weights behind it a block of rows fetches, 0 to 3, and the number of blocks as PanelProduct has
    it. LOW rows fetch a part; where MANY blocks of MAX_ROWS meet the weights, twice as many do.
    """
    if height != MAX_ROWS:
        part = folded("mul", block, const(max(1, height // LOW)))
        return folded("floormod", part, const(MAX_PANELS)), least(MANY - 1, blocks)
    quick = folded("sub", const(MAX_ROWS // LOW), folded("floordiv", blocks, const(MANY)))
    part = folded("mul", block, folded("max", quick, const(1)))
    return folded("floormod", part, const(MAX_PANELS)), blocks


def _locals(nest: Nest) -> set[Local]:
    """The locals that a turn of the innermost loop sets."""
    inside = {s.local for s in all_statements(nest.after) if isinstance(s, SetLocal)}
    return inside | {product.local for product in nest.products}


def panels_left(total: int, first: Value) -> Value:
    """How many panels of `total` a group takes that begins with panel `first`."""
    return least(MAX_PANELS, folded("sub", const(total), first))


def tile_panels(
    buffers: tuple[Buffer, ...],
    body: Sequence[Statement],
    features: tuple[str, ...] = (),
    choices: Choices | None = None,
) -> tuple[tuple[Buffer, ...], tuple[Statement, ...]]:
    """Buffers, tiles on the stack behind them, and the new body."""
    if not any(isinstance(s, Accumulate) for s in all_statements(body)):
        return buffers, tuple(body)
    paneler = Paneler(buffers, features, choices or Choices())
    new = replace_loops(body, paneler.of)
    return tuple(paneler.buffers), new


__all__ = ["Nest", "Paneler", "nest_of", "panels_left", "tile_panels"]
