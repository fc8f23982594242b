"""Sums over windows of planes of bytes (convolutions) with int32 sums: register tiles of an instruction for them.

before:  for o < O: for b < B: for t < 16: {
           a = 0; for i < I: for r < R: for s < S: a += int32(d[i, 16b + t + shift(r, s)]) * int32(w[o, i, r, s])
           out[o, 16b + t] = f(a) }
after:   for g < O / 24, parallel: for c < B / 4, parallel:
           for i < I: for r < R: for s < S: offsets[(i R + r) S + s] = the place of d[i, 64c + shift(r, s)]
           tile = ByteWindows(d, offsets, w[24g..])                         (a tile on the stack)
           for m < 24: for p < 4: for t < 16: { a = tile[m, p, t]; out[24g + m, 64c + 16p + t] = f(a) }

Whatever the places of a window's elements are, they are in the table, so that strides, dilation and planes by stride
phase (compute/windows.py) are all one; what counts is that neighbours in t are neighbours in d, and that the weights of
a window lie one after the other. A window of more elements than the table has room for is summed in parts of its
outermost loop. Only for CPUs that have the instruction (llvm_bytes.py); the other ones' way is rows.py's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nimblevm.kernels import llvm_bytes
from nimblevm.kernels.llvm_byte_windows import MOST_ROWS
from nimblevm.kernels.loop_ir import (
    Accumulate,
    Axis,
    Binary,
    Buffer,
    ByteWindows,
    CheckIndex,
    Compare,
    Const,
    For,
    Load,
    Local,
    LoopVar,
    SetLocal,
    Statement,
    Store,
    Value,
)
from nimblevm.kernels.panel_tile import LANES, MAX_PANELS, TILE_ROW
from nimblevm.kernels.rewrite import Rewriter, all_statements, all_values, replace_loops
from nimblevm.kernels.schedule.blocks import only_axis, stride
from nimblevm.kernels.schedule.byte_products import factors
from nimblevm.kernels.schedule.index import (
    INDEX,
    STACK,
    const,
    folded,
    is_zero,
    least,
    mentions,
)
from nimblevm.kernels.schedule.narrow import narrowed

TABLE = 8192
"""Elements of a window that a table has room for: 64 KiB."""


@dataclass(frozen=True, eq=False, slots=True)
class Nest:
    """Loops around 16 outputs that lie side by side; `local` gets the sum over `depths` of x * w; then `after`.

    outer   loops whose turns have tiles of their own
    rows    the loop over rows of weights, w_row elements apart
    blocks  the loop over blocks of LANES outputs; lanes: the one inside
    inside  elements of a window in all loops of depth but the first
    """

    outer: tuple[For, ...]
    rows: For
    blocks: For
    lanes: For
    local: Local
    depths: tuple[For, ...]
    x: Load
    w: Load
    after: tuple[Statement, ...]
    w_row: Value
    inside: int


def nest_of(statement: For, buffers: Sequence[Buffer]) -> Nest | None:
    """The parts of a perfect nest of parallel loops that is one; rows and blocks have one turn where there is no loop
    over them. None for another kind of loop.
    """
    loops = _chain(statement)
    if not all(loop.parallel for loop in loops) or not _are_independent(loops):
        return None
    lanes = loops.pop()
    sum_ = _sum_of(lanes.body)
    if sum_ is None or not (isinstance(lanes.extent, Const) and lanes.extent.value == LANES):
        return None
    local, depths, x, w = sum_
    if not _are_independent([*loops, lanes, *depths]) or not _are_plain(x, buffers):
        return None
    blocks = rows = _once()
    if loops and mentions(x, loops[-1].var) and not mentions(w, loops[-1].var):
        blocks = loops.pop() if _is_row(x, lanes.var, loops[-1].var) else blocks
    if loops and not mentions(x, loops[-1].var):
        rows = loops.pop()
    if not _is_row(x, lanes.var, blocks.var) or mentions(w, lanes.var):
        return None
    inside, w_row = _inside(w, depths, buffers), _row_of(w, rows.var, buffers)
    if inside is None or w_row is None:
        return None
    after = lanes.body[2:]
    return Nest(tuple(loops), rows, blocks, lanes, local, depths, x, w, after, w_row, inside)


def _once() -> For:
    return For(LoopVar(INDEX, "o"), const(1), (), parallel=True)


def _chain(loop: For) -> list[For]:
    """A loop, the one that is all of its body, and so on."""
    found = [loop]
    while len(found[-1].body) == 1 and isinstance(found[-1].body[0], For):
        found.append(found[-1].body[0])
    return found


def _are_independent(loops: Sequence[For]) -> bool:
    """Whether no loop's extent depends on another's variable."""
    vars_ = {loop.var for loop in loops}
    return not any(v in vars_ for loop in loops for v in all_values((loop.extent,)))


def _sum_of(body: Sequence[Statement]) -> tuple[Local, tuple[For, ...], Load, Load] | None:
    """What a body begins with, if that is a sum of products of bytes; there is no other behind."""
    if len(body) < 2 or any(isinstance(s, For | Accumulate) for s in all_statements(body[2:])):
        return None
    start, depth = body[:2]
    if not isinstance(start, SetLocal) or not isinstance(depth, For) or not is_zero(start.value):
        return None
    depths = _chain(depth)
    step = depths[-1].body[0] if len(depths[-1].body) == 1 else None
    if not isinstance(step, Accumulate) or step.local is not start.local or step.op != "add":
        return None
    x, w = factors(step.value)
    return None if x is None or w is None else (start.local, tuple(depths), x, w)


def _are_plain(x: Load, buffers: Sequence[Buffer]) -> bool:
    """Whether the places of a load's elements are known before the loops around it run."""
    known = not any(isinstance(v, CheckIndex | Load | Local) for v in all_values(x.indices))
    return known and bool(x.indices) and not any(a.broadcast for a in buffers[x.buffer].axes)


def _is_row(x: Load, lane: LoopVar, block: LoopVar) -> bool:
    """Whether turns of a loop are neighbours in x, and those of another, if x depends on it, LANES elements apart."""
    *others, last = x.indices
    if any(mentions(index, var) for index in others for var in (lane, block)):
        return False
    todo, lanes, blocks = [last], 0, 0
    while todo:
        value = todo.pop()
        if value is lane:
            lanes += 1
        elif _is_block(value, block):
            blocks += 1
        elif isinstance(value, Binary) and value.op == "add":
            todo += (value.lhs, value.rhs)
        elif mentions(value, lane) or mentions(value, block):
            return False
    return lanes == 1 and blocks <= 1


def _is_block(value: Value, block: LoopVar) -> bool:
    if not isinstance(value, Binary) or value.op != "mul" or value.lhs is not block:
        return False
    return isinstance(value.rhs, Const) and value.rhs.value == LANES


def _row_of(w: Load, row: LoopVar, buffers: Sequence[Buffer]) -> Value | None:
    """Elements between the rows of weights; None if they lie in another way."""
    if not mentions(w, row):
        return const(0)
    axis = only_axis(w, row)
    return None if axis is None else stride(buffers[w.buffer], axis)


def _inside(w: Load, depths: Sequence[For], buffers: Sequence[Buffer]) -> int | None:
    """How many weights all loops but the first take, if these lie one after the other and are few enough."""
    size = 1
    for number, loop in reversed(list(enumerate(depths))):
        axis = only_axis(w, loop.var)
        step = None if axis is None else stride(buffers[w.buffer], axis)
        if not isinstance(step, Const) or step.value != size:
            return None
        if number == 0:
            break
        if not isinstance(loop.extent, Const):
            return None
        size *= int(loop.extent.value)
    return size if 0 < size <= TABLE else None


class _Tiler:
    """Rewrites the nests of one kernel; `buffers` grows by tiles and tables."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = list(buffers)

    def of(self, loop: For) -> Sequence[Statement] | None:
        """What a loop becomes; None if it stays."""
        nest = nest_of(loop, self.buffers)
        return None if nest is None else self._tiled(nest)

    def _on_stack(self, dtype: str, size: int) -> int:
        self.buffers.append(Buffer(STACK, dtype, "scratch", (Axis(const(size)),)))
        return len(self.buffers) - 1

    def _tiled(self, nest: Nest) -> tuple[Statement, ...]:
        first = nest.depths[0].extent
        size = TABLE // nest.inside
        if isinstance(first, Const):
            size = min(size, max(int(first.value), 1))
        tile = self._on_stack("int32", MOST_ROWS * TILE_ROW)
        table = self._on_stack(INDEX, size * nest.inside)
        row, row_start, rows = _parts(nest.rows, MOST_ROWS)
        block, block_start, panels = _parts(nest.blocks, MAX_PANELS)
        at: dict[Value, Value] = {
            nest.rows.var: row_start, nest.blocks.var: block_start, nest.lanes.var: const(0)
        }  # fmt: skip
        part, depth_start, turns = _parts(nest.depths[0], size)
        filled = self._places(nest, table, at, depth_start, turns)
        at.update((loop.var, const(0)) for loop in nest.depths)
        at[nest.depths[0].var] = depth_start
        w = Rewriter(at.get).value(nest.w)
        assert isinstance(w, Load)
        x = Load(nest.x.dtype, nest.x.buffer, tuple(const(0) for _ in nest.x.indices))
        depth = folded("mul", turns, const(nest.inside))
        more: Value = Compare("bool", "gt", part.var, const(0))
        if _is_once(part):
            more = Const("bool", value=False)
        product = ByteWindows(tile, x, table, w, nest.w_row, depth, rows, panels, more)
        sums: tuple[Statement, ...] = (filled, product)
        if not _is_once(part):
            # A window of no elements has the sum 0, which one turn stores.
            some = folded("max", part.extent, const(1))
            sums = (For(part.var, some, sums),)
        after = self._after(nest, tile, (row_start, rows), (block_start, panels))
        body: tuple[Statement, ...] = (*sums, after)
        for loop in (block, row, *reversed(nest.outer)):
            if not _is_once(loop):
                body = (loop.around(body),)
        return body

    def _places(
        self, nest: Nest, table: int, at: Mapping[Value, Value], start: Value, turns: Value
    ) -> For:
        """The places of a window's elements, those of `turns` turns of its outermost loop, into the table."""
        first, *others = nest.depths
        replace: dict[Value, Value] = {**at, first.var: folded("add", start, first.var)}
        place = Rewriter(replace.get).value(_place(nest.x, self.buffers))
        number: Value = first.var
        for loop in others:
            number = folded("add", folded("mul", number, loop.extent), loop.var)
        body: tuple[Statement, ...] = (Store(table, (number,), place),)
        for loop in reversed(others):
            body = (For(loop.var, loop.extent, body, parallel=True),)
        return For(first.var, turns, body, parallel=True)

    def _after(
        self, nest: Nest, tile: int, rows: tuple[Value, Value], panels: tuple[Value, Value]
    ) -> For:
        """What is done with the sums of a tile; rows and panels: the first one and how many."""
        row, panel, lane = (LoopVar(INDEX, name) for name in "rpt")
        place: Value = folded("mul", row, const(TILE_ROW))
        place = folded("add", place, folded("mul", panel, const(LANES)))
        place = Binary(INDEX, "add", place, lane)
        # Locals of its own: else LLVM may take the last lane's value for one that is used after the loop.
        inside = {s.local for s in all_statements(nest.after) if isinstance(s, SetLocal)}
        replace: dict[Value, Value] = {
            local: Local(local.dtype, local.name) for local in (nest.local, *inside)
        }
        sum_ = replace[nest.local]
        assert isinstance(sum_, Local)
        replace[nest.rows.var] = folded("add", rows[0], row)
        replace[nest.blocks.var] = folded("add", panels[0], panel)
        replace[nest.lanes.var] = lane
        total = SetLocal(sum_, Load("int32", tile, (place,)))
        after = Rewriter(replace.get).block(nest.after)
        lanes = For(lane, const(LANES), (total, *after), parallel=True)
        return For(row, rows[1], (For(panel, panels[1], (lanes,), parallel=True),), parallel=True)


def _place(x: Load, buffers: Sequence[Buffer]) -> Value:
    """How many elements of its buffer lie before an element."""
    found: Value = const(0)
    for index, axis in zip(x.indices, buffers[x.buffer].axes, strict=True):
        found = folded("add", folded("mul", found, axis.size), index)
    return found


def _parts(loop: For, size: int) -> tuple[For, Value, Value]:
    """A loop over parts of at most so many turns, without a body; a part's first turn, and how many it has."""
    var = LoopVar(INDEX, loop.var.name + "g")
    if isinstance(loop.extent, Const) and loop.extent.value <= size:
        return For(var, const(1), (), parallel=True), const(0), loop.extent
    parts = folded("floordiv", folded("add", loop.extent, const(size - 1)), const(size))
    start = Binary(INDEX, "mul", var, const(size))
    return For(var, parts, (), parallel=True), start, least(size, folded("sub", loop.extent, start))


def _is_once(loop: For) -> bool:
    return isinstance(loop.extent, Const) and loop.extent.value == 1


def tile_byte_windows(
    buffers: tuple[Buffer, ...], body: Sequence[Statement], features: tuple[str, ...]
) -> tuple[tuple[Buffer, ...], tuple[Statement, ...]]:
    """Buffers, tiles and tables on the stack behind them, and the new body, for a CPU with these features."""
    if not llvm_bytes.has_instruction(features):
        return buffers, tuple(body)
    narrow, changed = narrowed(buffers, body)
    tiler = _Tiler(narrow)
    new = replace_loops(changed, tiler.of)
    if len(tiler.buffers) == len(buffers):
        return buffers, tuple(body)  # nothing is narrowed for nothing
    return tuple(tiler.buffers), new


__all__ = ["Nest", "nest_of", "tile_byte_windows"]
