"""Matrix products: several outputs in one loop over the depth ("unroll and jam"), so that each
loaded row serves them all.

before:  for j < N: { acc = 0; for k < K: acc += x[i,k] * w[j,k]; out[i,j] = f(acc) }
after:   for q < N / 4: { a0 = .. = a3 = 0; for k < K: { a0 += x[i,k] * w[4q,k]; .. }; out[i,4q] = f(a0) .. }
         for r < N mod 4: the same for the columns that are left

The loop over k is then vectorised by LLVM with one vector of partial sums an output. Where the
loop around it (rows i) has nothing else in its body, 2 or 4 rows are taken together too. Operands
that are contiguous along j, not k, are lanes.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nimblevm.kernels.loop_ir import (
    Accumulate,
    Binary,
    Const,
    For,
    Local,
    LoopVar,
    SetLocal,
    Statement,
    Value,
)
from nimblevm.kernels.rewrite import Rewriter, all_statements, all_values, blocks_of
from nimblevm.kernels.schedule.index import INDEX, const, folded, is_zero, mentions


@dataclass(frozen=True, eq=False, slots=True)
class Dot:
    """The body of a loop over outputs: statements before, one loop that accumulates sums, statements after."""

    before: tuple[Statement, ...]
    inner: For
    after: tuple[Statement, ...]

    @property
    def body(self) -> tuple[Statement, ...]:
        return (*self.before, self.inner, *self.after)


def dot_of(loop: For) -> Dot | None:
    """The parts of a loop that computes one sum of products an output; None if it is another kind of loop."""
    if not loop.parallel:
        return None
    inner = [n for n, s in enumerate(loop.body) if isinstance(s, For)]
    if len(inner) != 1 or any(blocks_of(s) for n, s in enumerate(loop.body) if n != inner[0]):
        return None
    at = inner[0]
    depth = loop.body[at]
    assert isinstance(depth, For)
    sums = all(
        isinstance(s, Accumulate) and s.op == "add" and _multiplies(s.value) for s in depth.body
    )
    if not sums or depth.parallel or mentions(depth.extent, loop.var):
        return None
    own = _locals(loop.body)  # a depth of its own for every output: rows of a sparse matrix
    if any(value in own for value in all_values((depth.extent,))):
        return None
    return Dot(loop.body[:at], depth, loop.body[at + 1 :])


def _multiplies(value: Value) -> bool:
    return isinstance(value, Binary) and value.op == "mul"


def _locals(body: Sequence[Statement]) -> tuple[Local, ...]:
    found: dict[Local, None] = {}
    for statement in all_statements(body):
        if isinstance(statement, SetLocal | Accumulate):
            found.setdefault(statement.local)
    return tuple(found)


def _copy(dot: Dot, var: LoopVar, value: Value, number: int) -> Dot:
    """The body for loop variable = value, with locals of its own."""
    fresh: dict[Value, Value] = {
        local: Local(local.dtype, f"{local.name}_{number}") for local in _locals(dot.body)
    }
    fresh[var] = value
    rewriter = Rewriter(fresh.get)
    inner = For(dot.inner.var, dot.inner.extent, rewriter.block(dot.inner.body))
    return Dot(rewriter.block(dot.before), inner, rewriter.block(dot.after))


def _merged(dots: Sequence[Dot]) -> Dot:
    first = dots[0].inner
    return Dot(
        tuple(s for dot in dots for s in dot.before),
        For(first.var, first.extent, tuple(s for dot in dots for s in dot.inner.body)),
        tuple(s for dot in dots for s in dot.after),
    )


def jammed(var: LoopVar, dot: Dot, factor: int) -> tuple[LoopVar, Dot]:
    """`factor` turns of the loop over var at once: the variable that counts groups, and their body."""
    group = LoopVar(INDEX, var.name + "g")
    first = Binary(INDEX, "mul", group, const(factor))
    dots = [
        _copy(dot, var, folded("add", first, const(t)) if t else first, t) for t in range(factor)
    ]
    return group, _merged(dots)


def _rest(loop: For, dot: Dot, factor: int) -> tuple[Value, Value, LoopVar, Dot]:
    """(groups, turns left, variable and body of the turns left)."""
    groups = folded("floordiv", loop.extent, const(factor))
    left = folded("floormod", loop.extent, const(factor))
    var = LoopVar(INDEX, loop.var.name + "r")
    start = folded("mul", groups, const(factor))
    return groups, left, var, _copy(dot, loop.var, folded("add", start, var), 0)


def columns(loop: For, dot: Dot, factor: int) -> tuple[Statement, ...]:
    """The loop over one axis, `factor` turns at once."""
    if factor == 1 or (isinstance(loop.extent, Const) and loop.extent.value < factor):
        return (For(loop.var, loop.extent, dot.body, parallel=True),)
    groups, left, var, rest = _rest(loop, dot, factor)
    group, body = jammed(loop.var, dot, factor)
    found: list[Statement] = [For(group, groups, body.body, parallel=True)]
    if not is_zero(left):
        found.append(For(var, left, rest.body, parallel=True))
    return tuple(found)


def tiles(rows: For, loop: For, dot: Dot, row_factor: int, factor: int) -> tuple[Statement, ...]:
    """Two nested loops over outputs, row_factor x factor of them at once."""
    one_by_one = _for_each(rows.var, rows.extent, columns(loop, dot, factor))
    if row_factor == 1 or (isinstance(rows.extent, Const) and rows.extent.value < row_factor):
        return one_by_one
    groups, left, var, rest = _rest(rows, dot, row_factor)
    group, body = jammed(rows.var, dot, row_factor)
    found = _for_each(group, groups, columns(loop, body, factor))
    if not is_zero(left):
        found += _for_each(var, left, columns(loop, rest, factor))
    return found


def _for_each(var: LoopVar, extent: Value, parts: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """A loop of its own around each part: threads divide perfect nests, whichever loop of them is long."""
    return tuple(For(var, extent, (part,), parallel=True) for part in parts)


def _factors(dot: Dot, registers: int) -> tuple[int, int]:
    """(rows, columns) at once: as many sums as registers hold beside the operands."""
    if len(dot.inner.body) > 1:
        return 1, 1
    return (4, 4) if registers >= 32 else (2, 4)


def tile_products(body: Sequence[Statement], registers: int) -> tuple[Statement, ...]:
    """All products of a block tiled. Loops nest at most 32 deep, so this recurses."""
    found: list[Statement] = []
    for statement in body:
        if not isinstance(statement, For):
            found.append(statement)
            continue
        dot = dot_of(statement)
        if dot is not None:
            found.extend(columns(statement, dot, _factors(dot, registers)[1]))
            continue
        inner = statement.body[0] if len(statement.body) == 1 else None
        if (
            statement.parallel
            and isinstance(inner, For)
            and not mentions(inner.extent, statement.var)
        ):
            dot = dot_of(inner)
            if dot is not None and not mentions(dot.inner.extent, statement.var):
                row_factor, factor = _factors(dot, registers)
                found.extend(tiles(statement, inner, dot, row_factor, factor))
                continue
        new = tile_products(statement.body, registers)
        found.append(statement.around(new))
    return tuple(found)


__all__ = ["tile_products"]
