"""Sums over windows with packed weights (convolutions): register tiles of any outputs, and the epilogue on the tile.

before:  for y < H: for x < W: for o < O: {
           a = 0; for r < R: for s < S: for i < I: a += d[2y+r,2x+s,i] * w[o/16,(rS+s)I+i,o%16]
           out[y,x,o] = f(a, ..) }
after:   for g < O / 64, parallel: for q < H W / 12, parallel:
           for m < 12: offsets[m] = the place of d[2y,2x,0], y and x those of output 12q+m
           tile = WindowProduct(d, offsets, w[4g..])        (a tile on the stack)
           for m < 12: for p < 4: for t < 16: { a = tile[m,p,t]; out[y,x,64g+16p+t] = f(a, ..) }

All loops around the columns are one, so lines of 7 outputs make full tiles. What is contiguous in the innermost loops
of a window (a row of S elements of I channels) is one loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nimblevm.kernels.loop_ir import (
    Accumulate,
    Axis,
    Binary,
    Buffer,
    Compare,
    Const,
    For,
    If,
    Load,
    Local,
    LoopVar,
    SetLocal,
    Statement,
    Store,
    Value,
    WindowProduct,
)
from nimblevm.kernels.panel_tile import LANES, MAX_PANELS, TILE_ROW
from nimblevm.kernels.rewrite import Rewriter, all_statements, all_values, replace_loops
from nimblevm.kernels.schedule.index import INDEX, STACK, const, folded, is_zero, mentions
from nimblevm.kernels.schedule.panels import panels_left

HEIGHT = 12
"""Rows of a tile, between which the epilogue runs."""


@dataclass(frozen=True, eq=False, slots=True)
class Nest:
    """Loops around outputs, the last one over columns; `local` gets the sum over `depths` of x * w; then `after`.

    The first `outer` loops choose a weight, and so stay loops around the tiles.
    """

    loops: tuple[For, ...]
    local: Local
    depths: tuple[For, ...]
    x: Load
    w: Load
    after: tuple[Statement, ...]
    outer: int = 0

    @property
    def rows(self) -> tuple[For, ...]:
        """The loops whose turns are rows of tiles."""
        return self.loops[self.outer : -1]

    @property
    def of_images(self) -> bool:
        """Whether this is no product of a matrix, for which panels.py has more."""
        return len(self.depths) > 1 or len(self.rows) > 2 or self.outer > 0


def affine(value: Value) -> dict[LoopVar | None, int] | None:
    """Factors of loop variables in an index, of None the constant; None if it is no such sum."""
    match value:
        case Const():
            return {None: int(value.value)}
        case LoopVar():
            return {value: 1}
        case Binary(op="add" | "sub" | "mul", lhs=lhs, rhs=rhs):
            a, b = affine(lhs), affine(rhs)
            if a is None or b is None:
                return None
            if value.op == "mul":
                if len(a) == 1 and None in a:
                    a, b = b, a
                if len(b) != 1 or None not in b:
                    return None
                return {var: factor * b[None] for var, factor in a.items()}
            sign = 1 if value.op == "add" else -1
            return {v: a.get(v, 0) + sign * b.get(v, 0) for v in (*a, *b)}
    return None


def nest_of(statement: For, buffers: Sequence[Buffer]) -> Nest | None:
    """The parts of a perfect nest of parallel loops whose body is one sum over windows and an epilogue."""
    loops = [statement]
    while len(loops[-1].body) == 1 and isinstance(loops[-1].body[0], For):
        loops.append(loops[-1].body[0])
    vars_ = {loop.var for loop in loops}
    columns, body = loops[-1], loops[-1].body
    independent = not any(v in vars_ for loop in loops for v in all_values((loop.extent,)))
    if not all(loop.parallel for loop in loops) or not independent or len(body) < 2:
        return None
    start, inner = body[0], body[1]
    if not isinstance(start, SetLocal) or not is_zero(start.value) or not isinstance(inner, For):
        return None
    depths = [inner]
    while len(depths[-1].body) == 1 and isinstance(depths[-1].body[0], For):
        depths.append(depths[-1].body[0])
    step = depths[-1].body[0]
    if len(depths[-1].body) != 1 or not isinstance(step, Accumulate) or step.op != "add":
        return None
    value = step.value
    if step.local is not start.local or not isinstance(value, Binary) or value.op != "mul":
        return None
    x, w, dtype = value.lhs, value.rhs, start.local.dtype
    plain = isinstance(columns.extent, Const) and dtype in ("float32", "float64")
    if (
        not plain
        or not isinstance(x, Load)
        or not isinstance(w, Load)
        or {x.dtype, w.dtype} != {dtype}
    ):
        return None
    if any(isinstance(s, For | Accumulate) for s in all_statements(body[2:])):
        return None
    outer = len(w.indices) - 3
    nest = Nest(tuple(loops), start.local, tuple(depths), x, w, body[2:], max(outer, 0))
    fits = _weights_fit(nest) and _data_fits(nest, buffers)
    return nest if fits else None


def _weights_fit(nest: Nest) -> bool:
    """Whether w is read as panels, an element of the window after the other."""
    column, indices = nest.loops[-1].var, nest.w.indices[nest.outer :]
    if len(indices) != 3 or not all(isinstance(d.extent, Const) for d in nest.depths):
        return False
    loops = [loop.var for loop in nest.loops[: nest.outer]]
    if len(nest.loops) <= nest.outer or list(nest.w.indices[: nest.outer]) != loops:
        return False
    for index, op in ((indices[0], "floordiv"), (indices[2], "floormod")):
        if not isinstance(index, Binary) or index.op != op or index.lhs is not column:
            return False
        if not isinstance(index.rhs, Const) or index.rhs.value != LANES:
            return False
    found, size = affine(indices[1]) or {}, 1
    for loop in reversed(nest.depths):
        if found.pop(loop.var, None) != size:
            return False
        assert isinstance(loop.extent, Const)
        size *= int(loop.extent.value)
    return not any(found.values())


def _data_fits(nest: Nest, buffers: Sequence[Buffer]) -> bool:
    """Whether x is the same for all columns and has a fixed stride along each loop of the window, 1 along the last."""
    if mentions(nest.x, nest.loops[-1].var) or any(
        a.broadcast for a in buffers[nest.x.buffer].axes
    ):
        return False
    inner = {loop.var for loop in nest.depths}
    for index in nest.x.indices:
        found = affine(index)
        if found is None and any(v in inner for v in all_values((index,))):
            return False
    last = _stride(nest, nest.depths[-1].var, buffers)
    return isinstance(last, Const) and last.value == 1


def _stride(nest: Nest, var: LoopVar, buffers: Sequence[Buffer]) -> Value:
    """Elements of x from one turn of a loop to the next."""
    axes, total = buffers[nest.x.buffer].axes, const(0)
    found: Value = total
    for axis, index in enumerate(nest.x.indices):
        factor = (affine(index) or {}).get(var, 0)
        if factor:
            stride: Value = const(factor)
            for size in axes[axis + 1 :]:
                stride = folded("mul", size.size, stride)
            found = folded("add", found, stride)
    return found


class Tiler:
    """Rewrites the nests of one kernel; `buffers` grows by tiles and offsets."""

    def __init__(self, buffers: Sequence[Buffer], images_only: bool) -> None:
        self.buffers = list(buffers)
        self.images_only = images_only

    def of(self, loop: For) -> list[Statement] | None:
        """What a loop becomes; None if it stays."""
        nest = nest_of(loop, self.buffers)
        if nest is None or (self.images_only and not nest.of_images):
            return None
        return self.tiled(nest)

    def _on_stack(self, dtype: str, size: int) -> int:
        self.buffers.append(Buffer(STACK, dtype, "scratch", (Axis(const(size)),)))
        return len(self.buffers) - 1

    def tiled(self, nest: Nest) -> list[Statement]:
        columns = nest.loops[-1].extent
        assert isinstance(columns, Const)
        if columns.value == 0:
            return []
        panels = -(-int(columns.value) // LANES)
        groups = -(-panels // MAX_PANELS)
        group, block = LoopVar(INDEX, "g"), LoopVar(INDEX, "q")
        panel = folded("mul", group, const(MAX_PANELS)) if groups > 1 else const(0)
        rows: Value = const(1)
        for loop in nest.rows:
            rows = folded("mul", rows, loop.extent)
        first = Binary(INDEX, "mul", block, const(HEIGHT))
        count = Binary(INDEX, "min", const(HEIGHT), folded("sub", rows, first))
        body = self._block(nest, first, count, panel, panels_left(panels, panel))
        blocks = folded("floordiv", folded("add", rows, const(HEIGHT - 1)), const(HEIGHT))
        found = For(block, blocks, tuple(body), parallel=True)
        if groups > 1:
            found = For(group, const(groups), (found,), parallel=True)
        for loop in reversed(nest.loops[: nest.outer]):
            found = For(loop.var, loop.extent, (found,), parallel=True)
        return [found]

    def _block(
        self, nest: Nest, first: Value, count: Value, panel: Value, panels: Value
    ) -> list[Statement]:
        """The tile of outputs first .. first + count - 1 and the panels of one group, then the epilogue."""
        tile = self._on_stack(nest.local.dtype, HEIGHT * TILE_ROW)
        offsets = self._on_stack(INDEX, HEIGHT)
        place, row = LoopVar(INDEX, "m"), LoopVar(INDEX, "r")
        at: dict[Value, Value] = {loop.var: const(0) for loop in nest.depths}
        at.update(_places(nest, folded("add", first, place)))
        offset = self._offset(nest, Rewriter(at.get))
        zeros = tuple(const(0) for _ in nest.x.indices)
        (outer, inner), depth = self._steps(nest)
        columns = nest.loops[-1].extent
        assert isinstance(columns, Const)
        first_weight = (*nest.w.indices[: nest.outer], panel, const(0), const(0))
        w = Load(nest.w.dtype, nest.w.buffer, first_weight)
        w_panel = folded("mul", self.buffers[w.buffer].axes[-2].size, const(LANES))
        product = WindowProduct(
            tile, Load(nest.x.dtype, nest.x.buffer, zeros), offsets, (outer, inner), w, w_panel, depth, count, panels
        )  # fmt: skip
        whole, rest = divmod(int(columns.value), LANES)
        inside: list[Statement] = []
        if whole:
            turn = LoopVar(INDEX, "p")
            lanes = self._lanes(nest, tile, folded("add", first, row), row, panel, turn, LANES)
            inside.append(For(turn, panels_left(whole, panel), (lanes,)))
        if rest:
            at_end = folded("sub", const(whole), panel)
            lanes = self._lanes(nest, tile, folded("add", first, row), row, panel, at_end, rest)
            last = Compare("bool", "lt", at_end, const(MAX_PANELS))
            inside.append(lanes if isinstance(panel, Const) else If(last, (lanes,)))
        return [
            For(place, count, (Store(offsets, (place,), offset),), parallel=True),
            product,
            For(row, count, tuple(inside)),
        ]

    def _offset(self, nest: Nest, rewriter: Rewriter) -> Value:
        """The place of the first element of an output's window."""
        total: Value = const(0)
        axes = self.buffers[nest.x.buffer].axes
        for index, axis in zip(nest.x.indices, axes, strict=True):
            total = folded("add", folded("mul", total, axis.size), rewriter.value(index))
        return total

    def _steps(self, nest: Nest) -> tuple[tuple[tuple[Value, Value], tuple[Value, Value]], Value]:
        """The two outer loops of a window as (count, stride), and how many elements are contiguous inside."""
        loops = [(loop.extent, _stride(nest, loop.var, self.buffers)) for loop in nest.depths]
        depth = loops.pop()[0]
        while loops and isinstance(depth, Const):
            count, stride = loops[-1]
            if not isinstance(stride, Const) or stride.value != depth.value:
                break
            depth = folded("mul", count, depth)
            loops.pop()
        once: tuple[Value, Value] = (const(1), const(0))
        outer, inner = [once, once, *loops][-2:]
        return (outer, inner), depth

    def _lanes(
        self, nest: Nest, tile: int, number: Value, row: LoopVar, panel: Value, at: Value, count: int
    ) -> For:  # fmt: skip
        """The epilogue of one panel of output `number`, row `row` of the tile."""
        lane = LoopVar(INDEX, "t")
        place = folded("add", folded("mul", row, const(TILE_ROW)), folded("mul", at, const(LANES)))
        place = Binary(INDEX, "add", place, lane)
        # Locals of its own: else LLVM may take the last lane's value for one that is used after the loop.
        inside = {s.local for s in all_statements(nest.after) if isinstance(s, SetLocal)}
        replace: dict[Value, Value] = {
            local: Local(local.dtype, local.name) for local in (nest.local, *inside)
        }
        sum_ = replace[nest.local]
        assert isinstance(sum_, Local)
        column = folded("mul", folded("add", panel, at), const(LANES))
        replace[nest.loops[-1].var] = folded("add", column, lane)
        replace.update(_places(nest, number))
        start = SetLocal(sum_, Load(sum_.dtype, tile, (place,)))
        after = Rewriter(replace.get).block(nest.after)
        return For(lane, const(count), (start, *after), parallel=True, masked=count < LANES)


def _places(nest: Nest, number: Value) -> dict[Value, Value]:
    """The loop variables around the columns for an output's number."""
    found: dict[Value, Value] = {}
    loops = nest.rows
    for loop in reversed(loops[1:]):
        size = loop.extent
        if not isinstance(size, Const):
            size = Binary(INDEX, "max", size, const(1))
        found[loop.var] = Binary(INDEX, "mod", number, size)
        number = Binary(INDEX, "div", number, size)
    if loops:
        found[loops[0].var] = number
    return found


def tile_windows(
    buffers: tuple[Buffer, ...], body: Sequence[Statement], images_only: bool
) -> tuple[tuple[Buffer, ...], tuple[Statement, ...]]:
    """Buffers, tiles on the stack behind them, and the new body. images_only: not of what may be a matrix product."""
    if not any(isinstance(s, Accumulate) for s in all_statements(body)):
        return buffers, tuple(body)
    tiler = Tiler(buffers, images_only)
    new = replace_loops(body, tiler.of)
    return tuple(tiler.buffers), new


__all__ = ["Nest", "nest_of", "tile_windows"]
