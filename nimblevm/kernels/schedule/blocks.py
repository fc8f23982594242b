"""Products whose number of columns is unknown, or whose right operand is no constant: register tiles for these too.

before:  for i < M: for j < N: { a = 0; for k < K: a += x[.., i, k] * w[.., k, j]; out[i,j] = f(a) }
after:   for g < N / 64: for q < M / 12:
             tile = x[12q.., :] * w[:, 64g..]                       (PanelProduct, a tile on the stack)
             for r < 12: for t < min(64, N - 64g): { a = tile[r,t]; out[12q+r, 64g+t] = f(a) }

w lies in panels, w[.., j/16, k, j%16], or in rows that are contiguous along j. Of panels the last one may be partly
full: its other columns are computed and not used. Of rows whole panels are taken, and the columns that are left go the
way of lanes.py. The copy that fills such panels is one statement too (PackPanels).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nimblevm.kernels.facts import at_most
from nimblevm.kernels.loop_ir import (
    Accumulate,
    Axis,
    Binary,
    Buffer,
    Const,
    For,
    Load,
    Local,
    LoopVar,
    PackPanels,
    PanelProduct,
    SetLocal,
    Statement,
    Store,
    Value,
)
from nimblevm.kernels.panel_tile import LANES, TILE_ROW
from nimblevm.kernels.rewrite import Rewriter, all_statements, replace_loops
from nimblevm.kernels.schedule.index import (
    INDEX,
    STACK,
    const,
    folded,
    is_zero,
    least,
    mentions,
    steps_with,
)
from nimblevm.kernels.schedule.sum_nest import sum_nest

ROWS = 12
"""Rows of a tile: twice the rows of the largest micro-kernel."""


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """Two loops around a sum of products: what the sum is of, and how far elements lie apart.

    packed            w lies in panels
    x_row             elements from a row of x to the next
    w_step, w_panel   elements from one turn of the depth to the next, and from panel to panel
    """

    rows: For
    columns: For
    depth: For
    local: Local
    x: Load
    w: Load
    after: tuple[Statement, ...]
    packed: bool
    x_row: Value
    w_step: Value
    w_panel: Value


def block_of(rows: For, buffers: Sequence[Buffer]) -> Block | None:
    """The parts of such a nest; None for another kind of loop."""
    nest = sum_nest(rows, rows.body[0]) if len(rows.body) == 1 else None
    if nest is None:
        return None
    x, w = _factors(nest.term)
    if x is None or w is None or not x.dtype == w.dtype == nest.local.dtype:
        return None
    columns, depth = nest.columns, nest.depth
    x_row = row_stride(x, rows.var, columns.var, depth.var, buffers)
    steps = _right_strides(w, rows.var, columns.var, depth.var, buffers)
    if x_row is None or steps is None:
        return None
    return Block(rows, columns, depth, nest.local, x, w, nest.after, steps[0], x_row, *steps[1:])


def _factors(value: Value) -> tuple[Load | None, Load | None]:
    if not isinstance(value, Binary) or value.op != "mul":
        return None, None
    if value.dtype not in ("float32", "float64"):
        return None, None
    x, w = value.lhs, value.rhs
    return (x, w) if isinstance(x, Load) and isinstance(w, Load) else (None, None)


def stride(buffer: Buffer, axis: int) -> Value | None:
    """Elements from one index of an axis to the next; None if an axis may be stretched."""
    if any(a.broadcast for a in buffer.axes[axis:]):
        return None
    total: Value = const(1)
    for size in buffer.axes[axis + 1 :]:
        total = folded("mul", total, size.size)
    return total


def only_axis(load: Load, var: LoopVar) -> int | None:
    """The axis whose index is `var` plus what does not depend on it, if no other index depends on it."""
    axes = [a for a, index in enumerate(load.indices) if mentions(index, var)]
    if len(axes) != 1 or not steps_with(load.indices[axes[0]], var):
        return None
    return axes[0]


def row_stride(
    x: Load, row: LoopVar, column: LoopVar, depth: LoopVar, buffers: Sequence[Buffer]
) -> Value | None:
    """Elements between the rows of a left operand that is contiguous along the depth; None for another one."""
    buffer = buffers[x.buffer]
    last = len(x.indices) - 1
    if last < 0 or only_axis(x, depth) != last or buffer.axes[last].broadcast:
        return None
    if mentions(x, column):
        return None
    if not mentions(x, row):
        return const(0)
    axis = only_axis(x, row)
    return None if axis is None else stride(buffer, axis)


def _right_strides(
    w: Load, row: LoopVar, column: LoopVar, depth: LoopVar, buffers: Sequence[Buffer]
) -> tuple[bool, Value, Value] | None:
    """(packed, step along the depth, step from panel to panel) of a right operand; None if it lies in another way."""
    buffer = buffers[w.buffer]
    axis = only_axis(w, depth)
    last = len(w.indices) - 1
    if axis is None or axis == last or mentions(w, row):
        return None
    step = stride(buffer, axis)
    if step is None:
        return None
    with_column = [a for a, index in enumerate(w.indices) if mentions(index, column)]
    if with_column == [last] and steps_with(w.indices[last], column):
        return False, step, const(LANES)
    size = buffer.axes[last].size
    whole = isinstance(size, Const) and size.value == LANES
    if len(with_column) != 2 or with_column[1] != last or not whole:
        return None
    panel = stride(buffer, with_column[0])
    if panel is None or not _is_of(w.indices[last], "floormod", column):
        return None
    return (True, step, panel) if _is_of(w.indices[with_column[0]], "floordiv", column) else None


def _is_of(index: Value, op: str, column: LoopVar) -> bool:
    """Whether an index is `column op 16`."""
    if not isinstance(index, Binary) or index.op != op or index.lhs is not column:
        return False
    return isinstance(index.rhs, Const) and index.rhs.value == LANES


def pack_of(loop: For, buffers: Sequence[Buffer]) -> PackPanels | None:
    """The copy of rows into panels that a nest is, as blocks that are packed before they are multiplied; or None."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(inner, For) or len(inner.body) != 1 or not (loop.parallel and inner.parallel):
        return None
    store, row, depth = inner.body[0], loop.var, inner.var
    if not isinstance(store, Store) or len(store.indices) < 3 or mentions(inner.extent, row):
        return None
    source = store.value
    if not isinstance(source, Load) or source.dtype not in ("float32", "float64"):
        return None
    *outer, panel, at, lane = store.indices
    in_place = at is depth and _is_of(panel, "floordiv", row) and _is_of(lane, "floormod", row)
    if not in_place or any(mentions(i, v) for i in outer for v in (row, depth)):
        return None
    target = buffers[store.buffer]
    step = stride(target, len(outer))
    # The row runs along the depth: as a left operand does.
    between = row_stride(source, row, LoopVar(INDEX, ""), depth, buffers)
    size = target.axes[-1].size
    if step is None or between is None or not (isinstance(size, Const) and size.value == LANES):
        return None
    at_start: dict[Value, Value] = {row: const(0), depth: const(0)}
    first = Rewriter(at_start.get).value(source)
    assert isinstance(first, Load)
    start = Load(source.dtype, store.buffer, (*outer, const(0), const(0), const(0)))
    return PackPanels(start, step, first, between, loop.extent, inner.extent)


class Blocker:
    """Rewrites the nests of one kernel; `buffers` grows by the tiles."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = list(buffers)

    def of(self, loop: For) -> list[Statement] | None:
        """What a loop becomes; None if it stays."""
        nest = block_of(loop, self.buffers)
        if nest is not None:
            return self._tiled(nest)
        pack = pack_of(loop, self.buffers)
        return None if pack is None else [pack]

    def _tiled(self, nest: Block) -> list[Statement]:
        columns = nest.columns.extent
        lanes = const(LANES)
        used = columns if nest.packed else folded("mul", folded("floordiv", columns, lanes), lanes)
        found: list[Statement] = []
        if not is_zero(used):
            found += self._groups(nest, used)
        rest = const(0) if nest.packed else folded("sub", columns, used)
        if not is_zero(rest):
            var = LoopVar(INDEX, nest.columns.var.name + "r")
            place = folded("add", used, var)
            body = Rewriter(lambda v: place if v is nest.columns.var else None).block(
                nest.columns.body
            )
            inner = For(var, rest, body, parallel=True)
            found.append(For(nest.rows.var, nest.rows.extent, (inner,), parallel=True))
        return found

    def _groups(self, nest: Block, used: Value) -> list[Statement]:
        """The loop over groups of panels of the first `used` columns."""
        width = const(TILE_ROW)
        groups = folded("floordiv", folded("add", used, const(TILE_ROW - 1)), width)
        group = LoopVar(INDEX, nest.columns.var.name + "g")
        one = isinstance(groups, Const) and groups.value == 1
        first = const(0) if one else Binary(INDEX, "mul", group, width)
        here = least(TILE_ROW, folded("sub", used, first))
        body = tuple(self._rows(nest, first, here))
        return list(body) if one else [For(group, groups, body)]

    def _rows(self, nest: Block, first: Value, here: Value) -> list[Statement]:
        """All rows for columns first .. first + here, at most TILE_ROW."""
        rows = nest.rows.extent
        self.buffers.append(
            Buffer(STACK, nest.local.dtype, "scratch", (Axis(const(ROWS * TILE_ROW)),))
        )
        tile = len(self.buffers) - 1
        if at_most(rows, ROWS):
            return self._tile(nest, tile, const(0), rows, first, here)
        block = LoopVar(INDEX, nest.rows.var.name + "q")
        start = Binary(INDEX, "mul", block, const(ROWS))
        count = least(ROWS, folded("sub", rows, start))
        blocks = folded("floordiv", folded("add", rows, const(ROWS - 1)), const(ROWS))
        return [For(block, blocks, tuple(self._tile(nest, tile, start, count, first, here)))]

    def _tile(
        self, nest: Block, tile: int, start: Value, count: Value, first: Value, here: Value
    ) -> list[Statement]:
        """The product of `count` rows and `here` columns, and what is done with it."""
        panels = folded("floordiv", folded("add", here, const(LANES - 1)), const(LANES))
        at: dict[Value, Value] = {
            nest.rows.var: start, nest.depth.var: const(0), nest.columns.var: first
        }  # fmt: skip
        x, w = (Rewriter(at.get).value(load) for load in (nest.x, nest.w))
        assert isinstance(x, Load)
        assert isinstance(w, Load)
        product = PanelProduct(
            tile, x, nest.x_row, w, nest.w_step, nest.w_panel, nest.depth.extent, count, panels
        )
        row, lane = LoopVar(INDEX, "r"), LoopVar(INDEX, "t")
        place = Binary(INDEX, "add", folded("mul", row, const(TILE_ROW)), lane)
        total = SetLocal(nest.local, Load(nest.local.dtype, tile, (place,)))
        here_: dict[Value, Value] = {
            nest.rows.var: folded("add", start, row),
            nest.columns.var: folded("add", first, lane),
        }
        after = Rewriter(here_.get).block(nest.after)
        inside = For(lane, here, (total, *after), parallel=True, masked=not isinstance(here, Const))
        return [product, For(row, count, (inside,), parallel=True)]


def tile_blocks(
    buffers: tuple[Buffer, ...], body: Sequence[Statement]
) -> tuple[tuple[Buffer, ...], tuple[Statement, ...]]:
    """Buffers, tiles on the stack behind them, and the new body."""
    if not any(isinstance(s, Accumulate) for s in all_statements(body)):
        return buffers, tuple(body)
    blocker = Blocker(buffers)
    new = replace_loops(body, blocker.of)
    return tuple(blocker.buffers), new


__all__ = ["Block", "block_of", "only_axis", "row_stride", "stride", "tile_blocks"]
