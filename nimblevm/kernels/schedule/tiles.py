"""Products of two operands on a grid: a tile of outputs a group, through shared memory and registers.

before:  for i < M: for j < N: { acc = 0; for k < K: acc += x[i,k] * w[j,k]; out[i,j] = f(acc) }
after:   group (I, J) of 16 x 16 threads (r, c):
           xn, wn = parts of x[64 I + i, k], w[64 J + j, k] for k < 16, a few elements a thread
           for t < K / 16: { xs[k,i] = xn, ws[k,j] = wn by all threads; barrier; xn, wn = the next parts
                             for k < 16: tile[a,b] += xs[k, 4 r + a] * ws[k, 4 c + b]; barrier }
           out[64 I + 4 r + a, 64 J + 4 c + b] = f(tile[a,b])

The next parts are on their way while these are multiplied. A thread's rows and columns are neighbours, so one
instruction loads four. Rows of shared memory are 4 elements longer, so that threads which store along k meet in few
banks.

The rows are all loops on which only one factor depends, the columns those on which only the other does, the depth all
loops that sum; so this is dense and batch_matmul with any layout of operands (panels too), and convolutions. Other
parallel loops number batches. What lies beyond M, N or K is 0 in shared memory, and not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nimblevm.kernels.facts import stored
from nimblevm.kernels.loop_ir import (
    Accumulate,
    Barrier,
    Binary,
    Buffer,
    Compare,
    Const,
    For,
    If,
    Kernel,
    Load,
    Local,
    LoopVar,
    SetLocal,
    Statement,
    Store,
    Value,
)
from nimblevm.kernels.rewrite import Rewriter, all_values
from nimblevm.kernels.schedule.index import INDEX, const, folded, mentions
from nimblevm.kernels.schedule.lanes import sums_of
from nimblevm.kernels.schedule.launch import (
    ONE,
    Launch,
    array,
    groups_of,
    ids,
    is_size,
    places,
    split,
    turns,
)

SIDE = 16
"""Threads along each side of a group, and depth of what lies in shared memory."""
EACH = 4
"""Rows and columns of a thread."""
TILE = SIDE * EACH
ROW = TILE + 4
"""Elements between rows of shared memory."""
PART = TILE * SIDE // (SIDE * SIDE)
"""Elements that each thread brings there."""
FEW = 4
"""With so few rows or columns a group sums one output instead."""


@dataclass(frozen=True, eq=False, slots=True)
class Product:
    """A nest of loops that multiplies and sums.

    start, after   the local's first value, and the statements that use the total
    x, w           the factors; rows, columns: the loops that only one of them depends on
    batch, depth   the loops that both or none depend on, the loops that sum
    """

    local: Local
    start: Value
    x: Value
    w: Value
    rows: tuple[For, ...]
    columns: tuple[For, ...]
    batch: tuple[For, ...]
    depth: tuple[For, ...]
    after: tuple[Statement, ...]


def product_of(kernel: Kernel, loops: Sequence[For]) -> Product | None:
    """The parts of a nest of parallel loops, if it is a product; its sizes are known before it."""
    sums = sums_of(loops[-1]) if loops else None
    if sums is None or len(sums.sums) != 1:
        return None
    (one,) = sums.sums
    value = one.value
    if one.op != "add" or not (isinstance(value, Binary) and value.op == "mul"):
        return None
    if not all(is_size(depth.extent) for depth in sums.depths):
        return None
    x, w = value.lhs, value.rhs
    if mentions(x, loops[-1].var) and not mentions(w, loops[-1].var):
        x, w = w, x  # the innermost loop is one over columns
    rows = [loop for loop in loops if mentions(x, loop.var) and not mentions(w, loop.var)]
    columns = [loop for loop in loops if mentions(w, loop.var) and not mentions(x, loop.var)]
    if not rows or not columns or not _is_apart(kernel, (x, w), sums.after):
        return None
    batch = [loop for loop in loops if loop not in rows and loop not in columns]
    (start,) = (first for local, first in sums.starts if local is one.local)
    return Product(
        one.local, start, x, w, tuple(rows), tuple(columns), tuple(batch), sums.depths, sums.after
    )


def _is_apart(kernel: Kernel, factors: Sequence[Value], after: Sequence[Statement]) -> bool:
    """Whether nothing that the factors read is written behind, and they hold no local."""
    same = dict(kernel.alias)
    written = stored(after)
    written |= {same[b] for b in written if b in same}
    values = list(all_values(factors))
    if any(isinstance(v, Local) for v in values):
        return False
    return not written & {v.buffer for v in values if isinstance(v, Load)}


def few(product: Product) -> Value | None:
    """1 where the product has too few rows or columns for tiles, else 0, as a size; None: it never has."""
    for loops in (product.rows, product.columns):
        total = turns(loops)
        if isinstance(total, Const):
            if total.value <= FEW:
                return ONE
            continue
        left = Binary(INDEX, "max", folded("sub", const(FEW + 1), total), const(0))
        return Binary(INDEX, "min", left, ONE)
    return None


@dataclass(frozen=True, eq=False, slots=True)
class _Side:
    """Where a group's rows or columns lie: loops, how many turns they have, the group's first turn."""

    loops: tuple[For, ...]
    total: Value
    first: Value

    def at(self, inside: Value) -> Value:
        return folded("add", self.first, inside)


class Tiles:
    """Writes the launch of one product."""

    def __init__(self, kernel: Kernel, product: Product) -> None:
        self.kernel, self.product = kernel, product
        self.group, self.thread = ids("g"), ids("t")
        self.buffers: list[Buffer] = list(kernel.buffers)
        m, n = turns(product.rows), turns(product.columns)
        self.depth = turns(product.depth)
        across, down = groups_of(n, TILE), groups_of(m, TILE)
        self.groups = folded("mul", folded("mul", across, down), turns(product.batch))
        index: Value = self.group[0]
        if isinstance(across, Const) and across.value == 1:
            column: Value = const(0)
        else:
            column, index = split(index, across)
        if product.batch:
            row, index = split(index, down)
        else:
            row, index = index, const(0)
        self.rows = _Side(product.rows, m, folded("mul", row, const(TILE)))
        self.columns = _Side(product.columns, n, folded("mul", column, const(TILE)))
        self.batch = places(product.batch, index)
        self.xs, self.ws = (
            self._array("xs", "shared", SIDE, ROW),
            self._array("ws", "shared", SIDE, ROW),
        )
        self.next_x, self.next_w = (
            self._array("xn", "private", PART),
            self._array("wn", "private", PART),
        )
        self.tile = self._array("tile", "private", EACH, EACH)
        self.own_x, self.own_w = (
            self._array("x", "private", EACH),
            self._array("w", "private", EACH),
        )

    def _array(self, name: str, role: Literal["shared", "private"], *sizes: int) -> int:
        """The number of a new buffer."""
        self.buffers.append(array(name, self.product.local.dtype, role, *sizes))
        return len(self.buffers) - 1

    def launch(self, name: str, times: Value) -> Launch:
        """times: 0 or 1, whether to launch it at all."""
        grid = self.groups if times is ONE else folded("mul", self.groups, times)
        body = (*self._cleared(), *self._sum(), *self._stored())
        return Launch(
            name, self.kernel, (grid, ONE, ONE), (SIDE * SIDE, 1, 1), self.group, self.thread, tuple(self.buffers), body
        )  # fmt: skip

    def _thread_place(self) -> tuple[Value, Value]:
        """Row and column of a thread in its group."""
        t = self.thread[0]
        return folded("floordiv", t, const(SIDE)), folded("floormod", t, const(SIDE))

    def _each(self, turn: tuple[LoopVar, LoopVar], body: Sequence[Statement]) -> For:
        return For(turn[0], const(EACH), (For(turn[1], const(EACH), tuple(body)),))

    def _cleared(self) -> tuple[Statement, ...]:
        zero = Const(self.product.local.dtype, _zero(self.product.local.dtype))
        a, b = LoopVar(INDEX, "a"), LoopVar(INDEX, "b")
        return (self._each((a, b), (Store(self.tile, (a, b), zero),)),)

    def _sum(self) -> tuple[Statement, ...]:
        step = LoopVar(INDEX, "s")
        behind = folded("mul", folded("add", step, ONE), const(SIDE))
        body = [
            self._kept(self.xs, self.next_x, self.product.x),
            self._kept(self.ws, self.next_w, self.product.w),
            Barrier(),
            *self._fetched(behind),
            self._multiplied(),
            Barrier(),
        ]
        return (*self._fetched(const(0)), For(step, groups_of(self.depth, SIDE), tuple(body)))

    def _element(self, turn: LoopVar, factor: Value) -> tuple[Value, Value]:
        """Depth and place in the group's tile of an element that a thread brings; neighbours among threads take
        neighbours in memory.
        """
        element = folded("add", folded("mul", turn, const(SIDE * SIDE)), self.thread[0])
        if self._is_deep(factor):
            return (
                folded("floormod", element, const(SIDE)),
                folded("floordiv", element, const(SIDE)),
            )
        return folded("floordiv", element, const(TILE)), folded("floormod", element, const(TILE))

    def _fetched(self, first: Value) -> tuple[Statement, ...]:
        """A thread's part of both factors at depth `first`; 0 where there is none."""
        return (
            self._fetch(self.next_x, self.product.x, self.rows, first),
            self._fetch(self.next_w, self.product.w, self.columns, first),
        )

    def _fetch(self, own: int, factor: Value, side: _Side, first: Value) -> Statement:
        turn = LoopVar(INDEX, "q")
        k, inside = self._element(turn, factor)
        place, depth = side.at(inside), folded("add", first, k)
        rewriter = Rewriter(
            {**self.batch, **places(side.loops, place), **places(self.product.depth, depth)}.get
        )
        there = Binary(
            "bool",
            "and",
            Compare("bool", "lt", place, side.total),
            Compare("bool", "lt", depth, self.depth),
        )
        zero = Const(factor.dtype, _zero(factor.dtype))
        taken = Store(own, (turn,), rewriter.value(factor))
        return For(turn, const(PART), (If(there, (taken,), (Store(own, (turn,), zero),)),))

    def _kept(self, shared: int, own: int, factor: Value) -> Statement:
        """A thread's part goes where all of its group see it."""
        turn = LoopVar(INDEX, "q")
        k, inside = self._element(turn, factor)
        return For(
            turn, const(PART), (Store(shared, (k, inside), Load(factor.dtype, own, (turn,))),)
        )

    def _is_deep(self, factor: Value) -> bool:
        """Whether a factor's elements lie side by side along the depth."""
        last = self.product.depth[-1].var
        loads = [v for v in all_values((factor,)) if isinstance(v, Load) and v.indices]
        return any(mentions(load.indices[-1], last) for load in loads)

    def _multiplied(self) -> Statement:
        row, column = self._thread_place()
        dtype = self.product.local.dtype
        k, a, b = LoopVar(INDEX, "k"), LoopVar(INDEX, "a"), LoopVar(INDEX, "b")
        i, j = LoopVar(INDEX, "i"), LoopVar(INDEX, "j")
        x_at = folded("add", folded("mul", row, const(EACH)), i)
        w_at = folded("add", folded("mul", column, const(EACH)), j)
        term = Binary(dtype, "mul", Load(dtype, self.own_x, (a,)), Load(dtype, self.own_w, (b,)))
        total = Binary(dtype, "add", Load(dtype, self.tile, (a, b)), term)
        body: tuple[Statement, ...] = (
            For(i, const(EACH), (Store(self.own_x, (i,), Load(dtype, self.xs, (k, x_at))),)),
            For(j, const(EACH), (Store(self.own_w, (j,), Load(dtype, self.ws, (k, w_at))),)),
            self._each((a, b), (Store(self.tile, (a, b), total),)),
        )
        return For(k, const(SIDE), body)

    def _stored(self) -> tuple[Statement, ...]:
        row, column = self._thread_place()
        product = self.product
        a, b = LoopVar(INDEX, "a"), LoopVar(INDEX, "b")
        m = self.rows.at(folded("add", folded("mul", row, const(EACH)), a))
        n = self.columns.at(folded("add", folded("mul", column, const(EACH)), b))
        rewriter = Rewriter(
            {**self.batch, **places(product.rows, m), **places(product.columns, n)}.get
        )
        inside = Binary(
            "bool",
            "and",
            Compare("bool", "lt", m, self.rows.total),
            Compare("bool", "lt", n, self.columns.total),
        )
        total = Load(product.local.dtype, self.tile, (a, b))
        body = (
            SetLocal(product.local, rewriter.value(product.start)),
            Accumulate(product.local, "add", total),
            *rewriter.block(product.after),
        )
        return (self._each((a, b), (If(inside, body),)),)


def _zero(dtype: str) -> float | int | bool:
    if dtype == "bool":
        return False
    return 0.0 if dtype.startswith("float") else 0


__all__ = ["Product", "Tiles", "few", "product_of"]
