"""Accumulations whose operands lie side by side along the outputs, not along the depth: a tile of outputs at once.

before:  for j < N: { acc = 0; for k < K: acc += a[i,k] * b[k,j]; out[i,j] = f(acc) }
after:   for q < N / 64: { for t < 64: tile[t] = 0
                           for k < K: for t < 64: tile[t] += a[i,k] * b[k,64q+t]
                           for t < 64: { acc = tile[t]; out[i,64q+t] = f(acc) } }
         the same for the N mod 64 outputs that are left

The loops over t become vectors, and LLVM keeps the tile, an array on the stack, in registers over the loop over k. Sums
along an axis that is not the last one and products of a row-major right operand have this form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nimblevm import dtypes
from nimblevm.kernels.loop_ir import (
    Accumulate,
    Axis,
    Binary,
    Buffer,
    For,
    Load,
    Local,
    LoopVar,
    SetLocal,
    Statement,
    Store,
    Value,
)
from nimblevm.kernels.rewrite import Rewriter, all_statements, all_values, values_of
from nimblevm.kernels.schedule.index import (
    INDEX,
    STACK,
    const,
    folded,
    is_zero,
    mentions,
    steps_with,
)

TILE_BYTES = 256


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """The body of a loop over outputs: start values, one nest that accumulates, statements that use the totals."""

    starts: tuple[tuple[Local, Value], ...]
    depths: tuple[For, ...]
    sums: tuple[Accumulate, ...]
    after: tuple[Statement, ...]


def sums_of(loop: For) -> Sums | None:
    """The parts of a loop that accumulates for each output; None for another kind of loop."""
    if not loop.parallel:
        return None
    inner = [n for n, s in enumerate(loop.body) if isinstance(s, For)]
    if len(inner) != 1:
        return None
    starts = [(s.local, s.value) for s in loop.body[: inner[0]] if isinstance(s, SetLocal)]
    depths: list[For] = []
    block: Sequence[Statement] = (loop.body[inner[0]],)
    while len(block) == 1 and isinstance(block[0], For):
        depths.append(block[0])
        block = block[0].body
    sums = tuple(s for s in block if isinstance(s, Accumulate))
    same = {local for local, _ in starts} == {s.local for s in sums}
    plain = not any(isinstance(v, Local) for s in sums for v in all_values((s.value,)))
    if len(starts) != inner[0] or len(sums) != len(block) or not same or not plain:
        return None
    if any(mentions(depth.extent, loop.var) for depth in depths):
        return None
    return Sums(tuple(starts), tuple(depths), sums, loop.body[inner[0] + 1 :])


def lies_along(loop: For, sums: Sums) -> bool:
    """Whether an operand is contiguous along the outputs and strided along the depth."""
    depth = sums.depths[-1].var
    across = along = False
    for value in all_values([s.value for s in sums.sums]):
        if isinstance(value, Load) and value.indices:
            *outer, last = value.indices
            slides = steps_with(last, loop.var) and mentions(last, depth)
            strided = mentions(last, loop.var) and any(mentions(i, depth) for i in outer)
            across = across or slides or strided
            along = along or mentions(last, depth)
    # A product of a row and a column may have both; the strided operand decides.
    return across or (
        not along and any(mentions(v, loop.var) for s in sums.sums for v in values_of(s))
    )


class Tiler:
    """Rewrites the loops of one kernel; `buffers` grows by the tiles."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = list(buffers)

    def block(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        """Loops nest at most 32 deep, so this recurses."""
        found: list[Statement] = []
        for statement in body:
            if not isinstance(statement, For):
                found.append(statement)
                continue
            sums = sums_of(statement)
            if sums is not None and lies_along(statement, sums):
                found.extend(self.tiled(statement, sums))
                continue
            new = self.block(statement.body)
            found.append(statement.around(new))
        return tuple(found)

    def tiled(self, loop: For, sums: Sums) -> tuple[Statement, ...]:
        widest = max(dtypes.dtype(local.dtype).itemsize for local, _ in sums.starts)
        # Several sums share the registers (rows.py).
        size = TILE_BYTES // max(widest, 4) // (1 if len(sums.starts) == 1 else 4)
        numbers: dict[Local, int] = {}
        for local, _ in sums.starts:
            numbers[local] = len(self.buffers)
            self.buffers.append(Buffer(STACK, local.dtype, "scratch", (Axis(const(size)),)))
        groups, left = (
            folded("floordiv", loop.extent, const(size)),
            folded("floormod", loop.extent, const(size)),
        )
        group = LoopVar(INDEX, loop.var.name + "q")
        found: list[Statement] = []
        if not is_zero(groups):
            first = Binary(INDEX, "mul", group, const(size))
            inside = _tile(
                loop.var, sums, numbers, lambda t: Binary(INDEX, "add", first, t), const(size)
            )
            found.append(For(group, groups, inside, parallel=True))
        if not is_zero(left):
            start = folded("mul", groups, const(size))
            found.extend(_tile(loop.var, sums, numbers, lambda t: folded("add", start, t), left))
        return tuple(found)


def _replacing(var: LoopVar, new: Value) -> Callable[[Value], Value | None]:
    return lambda value: new if value is var else None


def _tile(
    var: LoopVar,
    sums: Sums,
    numbers: dict[Local, int],
    place: Callable[[Value], Value],
    extent: Value,
) -> tuple[Statement, ...]:
    """The three steps for outputs place(0) .. place(extent - 1)."""
    turns = [LoopVar(INDEX, var.name + "t") for _ in range(3)]
    at = [Rewriter(_replacing(var, place(t))) for t in turns]
    starts = [
        Store(numbers[local], (turns[0],), at[0].value(value)) for local, value in sums.starts
    ]
    adds = [
        Store(numbers[s.local], (turns[1],), Binary(
            s.local.dtype, s.op, Load(s.local.dtype, numbers[s.local], (turns[1],)), at[1].value(s.value)
        ))
        for s in sums.sums
    ]  # fmt: skip
    totals = [
        SetLocal(local, Load(local.dtype, numbers[local], (turns[2],))) for local, _ in sums.starts
    ]
    deep: Statement = For(turns[1], extent, tuple(adds), parallel=True)
    for depth in reversed(sums.depths):
        deep = For(depth.var, depth.extent, (deep,))
    return (
        For(turns[0], extent, tuple(starts), parallel=True),
        deep,
        For(turns[2], extent, (*totals, *at[2].block(sums.after)), parallel=True),
    )


def tile_lanes(
    buffers: tuple[Buffer, ...], body: Sequence[Statement]
) -> tuple[tuple[Buffer, ...], tuple[Statement, ...]]:
    """Buffers, tiles on the stack behind them, and the new body."""
    if not any(isinstance(s, Accumulate) for s in all_statements(body)):
        return buffers, tuple(body)
    tiler = Tiler(buffers)
    new = tiler.block(body)
    return tuple(tiler.buffers), new


__all__ = ["tile_lanes"]
