"""Sums that share what they read along the lanes: several rows of outputs at once, so that each vector serves them all.

before:  for o < O: for q < Q: { acc = 0; for k < K: acc += w[o,k] * x[k,q]; out[o,q] = acc }
after:   for p < O / 4: for q < Q: { a0 = .. = a3 = 0; for k < K: { a0 += w[4p,k] * x[k,q]; .. }; out[4p,q] = a0 .. }
         the same for the O mod 4 rows that are left, one by one

lanes.py then makes vectors of the loop over q. The loops between rows and lanes may be several. Convolutions and
products of a row-major right operand have this form.
"""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm import dtypes
from nimblevm.kernels.loop_ir import (
    Binary,
    Const,
    For,
    Load,
    Local,
    LoopVar,
    Statement,
    Value,
)
from nimblevm.kernels.rewrite import Rewriter, all_values
from nimblevm.kernels.schedule.index import INDEX, const, folded, is_zero, mentions
from nimblevm.kernels.schedule.lanes import Sums, lies_along, sums_of


def _chain(rows: For) -> tuple[tuple[For, ...], Sums] | None:
    """The parallel loops inside `rows`, the last one over lanes, and what that one sums."""
    found: list[For] = []
    inner: For = rows
    while len(inner.body) == 1:
        below = inner.body[0]
        if not isinstance(below, For) or not below.parallel:
            return None
        if mentions(below.extent, rows.var):
            return None
        found.append(below)
        inner = below
    sums = sums_of(inner) if found else None
    if sums is None or len(sums.sums) != 1 or not lies_along(inner, sums):
        return None
    if any(mentions(depth.extent, rows.var) for depth in sums.depths):
        return None
    return tuple(found), sums


def _shares(rows: LoopVar, lanes: LoopVar, sums: Sums) -> bool:
    """Whether all rows read the same vectors, each with a factor of its own."""
    same = own = False
    for value in all_values([s.value for s in sums.sums]):
        if isinstance(value, Load):
            by_row, by_lane = mentions(value, rows), mentions(value, lanes)
            if by_row and by_lane:
                return False
            same = same or by_lane
            own = own or by_row
    return same and own


def _factor(sums: Sums, registers: int) -> int:
    """Rows at once: two vectors of sums for each, beside what they multiply."""
    wide = dtypes.dtype(sums.sums[0].local.dtype).itemsize > 4
    return registers // (8 if wide else 4)


def _jammed(rows: For, chain: Sequence[For], sums: Sums, factor: int) -> For:
    """The loop over groups of `factor` rows."""
    group = LoopVar(INDEX, rows.var.name + "p")
    first = Binary(INDEX, "mul", group, const(factor))
    lanes = chain[-1]
    at = len(sums.starts)
    before: list[Statement] = []
    adds: list[Statement] = []
    after: list[Statement] = []
    for turn in range(factor):
        fresh: dict[Value, Value] = {
            local: Local(local.dtype, f"{local.name}_{turn}") for local, _ in sums.starts
        }
        fresh[rows.var] = folded("add", first, const(turn))
        rewriter = Rewriter(fresh.get)
        before += rewriter.block(lanes.body[:at])
        adds += rewriter.block(sums.sums)
        after += rewriter.block(lanes.body[at + 1 :])
    below: tuple[Statement, ...] = tuple(adds)
    for depth in reversed(sums.depths):
        below = (For(depth.var, depth.extent, below),)
    body: tuple[Statement, ...] = (*before, *below, *after)
    for loop in reversed(chain):
        body = (For(loop.var, loop.extent, body, parallel=True),)
    return For(group, folded("floordiv", rows.extent, const(factor)), body, parallel=True)


def _rest(rows: For, factor: int) -> For | None:
    """The loop over the rows that make no group."""
    left = folded("floormod", rows.extent, const(factor))
    if is_zero(left):
        return None
    groups = folded("floordiv", rows.extent, const(factor))
    var = LoopVar(INDEX, rows.var.name + "r")
    place = folded("add", folded("mul", groups, const(factor)), var)
    rewriter = Rewriter(lambda value: place if value is rows.var else None)
    return For(var, left, rewriter.block(rows.body), parallel=True)


def jam_rows(body: Sequence[Statement], registers: int) -> tuple[Statement, ...]:
    """All such loops of a block. Loops nest at most 32 deep, so this recurses."""
    found: list[Statement] = []
    for statement in body:
        if not isinstance(statement, For):
            found.append(statement)
            continue
        chain = _chain(statement) if statement.parallel else None
        if chain is not None and _shares(statement.var, chain[0][-1].var, chain[1]):
            factor = _factor(chain[1], registers)
            if not isinstance(statement.extent, Const) or statement.extent.value >= factor:
                found.append(_jammed(statement, *chain, factor))
                rest = _rest(statement, factor)
                found.extend(() if rest is None else (rest,))
                continue
        new = jam_rows(statement.body, registers)
        found.append(statement.around(new))
    return tuple(found)


__all__ = ["jam_rows"]
