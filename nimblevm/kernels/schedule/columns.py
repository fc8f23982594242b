"""Loops whose turns follow each other, but keep to columns of what they write: a thread a column.

before:  for i < N: for j < M: out[index[i,j], j] += update[i,j]
after:   thread j: for i < N: out[index[i,j], j] += update[i,j]

A scatter has this form: which row a turn writes is in the data, and later turns win, or add to what earlier ones left.
But no turn touches another column than its own, if every access to a written buffer has j alone as index of one axis.
"""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm.kernels.facts import loads_of
from nimblevm.kernels.loop_ir import For, Kernel, Statement, Store, Value
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule.launch import is_size, locals_of


def columns_of(
    kernel: Kernel, segment: Sequence[Statement]
) -> tuple[list[For], tuple[Statement, ...]]:
    """The loops over columns, and the other loops of the nest around its body. No loops: it has none."""
    loops: list[For] = []
    body = tuple(segment)
    while len(body) == 1 and isinstance(body[0], For) and is_size(body[0].extent):
        loops.append(body[0])
        body = body[0].body
    accesses = _accesses(kernel, body)
    if locals_of(body) or not accesses:
        return [], tuple(segment)
    columns = [loop for loop in loops if all(_keeps(loop, rows) for rows in accesses)]
    for loop in reversed([loop for loop in loops if loop not in columns]):
        body = (loop.around(body),)
    return columns, body


def _accesses(kernel: Kernel, body: Sequence[Statement]) -> list[list[tuple[Value, ...]]]:
    """For each written buffer, all indices that it is read or written at; buffers that share storage are one."""
    same = dict(kernel.alias)
    found: dict[int, list[tuple[Value, ...]]] = {}
    for statement in all_statements(body):
        if isinstance(statement, Store):
            found.setdefault(same.get(statement.buffer, statement.buffer), []).append(
                statement.indices
            )
    for load in loads_of(body):
        buffer = same.get(load.buffer, load.buffer)
        if buffer in found:
            found[buffer].append(load.indices)
    return list(found.values())


def _keeps(loop: For, rows: Sequence[tuple[Value, ...]]) -> bool:
    """Whether all indices have the loop's variable alone for one axis."""
    axes = range(min(len(row) for row in rows))
    return any(all(row[axis] is loop.var for row in rows) for axis in axes)


__all__ = ["columns_of"]
