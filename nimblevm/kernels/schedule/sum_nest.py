"""Two parallel loops around a sum: what products of floats (blocks.py) and of bytes (byte_products.py) look for."""

from __future__ import annotations

from dataclasses import dataclass

from nimblevm.kernels.loop_ir import Accumulate, For, Local, SetLocal, Statement, Value
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule.index import is_zero, mentions


@dataclass(frozen=True, eq=False, slots=True)
class SumNest:
    """for rows: for columns: { local = 0; for depth: local += term; after }, where no size depends on a variable of
    the nest and `after` has neither loops nor sums.
    """

    rows: For
    columns: For
    depth: For
    local: Local
    term: Value
    after: tuple[Statement, ...]


def sum_nest(rows: For, columns: Statement) -> SumNest | None:
    """The parts of such a nest, whose `columns` are what `rows` holds; None for another one."""
    if not isinstance(columns, For) or not (rows.parallel and columns.parallel):
        return None
    if mentions(columns.extent, rows.var) or len(columns.body) < 2:
        return None
    start, depth, *after = columns.body
    if not isinstance(start, SetLocal) or not isinstance(depth, For) or not is_zero(start.value):
        return None
    if mentions(depth.extent, rows.var) or mentions(depth.extent, columns.var):
        return None
    if any(isinstance(s, For | Accumulate) for s in all_statements(after)):
        return None
    step = depth.body[0] if len(depth.body) == 1 else None
    if not isinstance(step, Accumulate) or step.local is not start.local or step.op != "add":
        return None
    return SumNest(rows, columns, depth, start.local, step.value, tuple(after))


__all__ = ["SumNest", "sum_nest"]
