"""A kernel that goes over all levels of a tree: loop IR of one level -> loop IR of all of them.

before:  for i < n: for j < 4: x[i,j] = done[names[row + i], j]                     (what the level reads)
         for i < n: for j < 4: out[i,j] = tanh(x[i,j])                              (what it adds)
after:   for i < m: for j < 4: all[i,j] = done[i,j]
         row = 0
         for t < levels:
           n = max(sizes[t], 0); past = m + row
           for i < n: for j < 4: x[i,j] = all[names[row + i], j]
           for i < n: for j < 4: all[past + i, j] = tanh(x[i,j])
           row = row + n

A table that a level adds to is an input of the level's m rows; it becomes a result that has all rows, read and written
in place. A nest of loops may read of a table that it adds to if the rows are min(.., m - 1), which plainly are none of
the added ones (regions.py). Scratch has room for the largest level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nimblevm.kernels.expr import INDEX
from nimblevm.kernels.facts import loads_of, stored
from nimblevm.kernels.loop_ir import (
    Axis,
    Binary,
    Buffer,
    Cast,
    Const,
    DimRef,
    For,
    If,
    Kernel,
    Load,
    Local,
    LoopVar,
    SetDim,
    SetLocal,
    Statement,
    Store,
    Value,
)
from nimblevm.kernels.rewrite import Rewriter, all_statements


class NotByLevels(Exception):
    """A kernel can't be run for all levels."""


@dataclass(frozen=True, slots=True)
class Table:
    """Operands: the table as it comes in, and what a level adds to it. rows: the in-dim that is its number of rows."""

    source: int
    result: int
    rows: int


class _Levels:
    """Writes the loop for one kernel; arguments as for `over_levels`."""

    def __init__(
        self, kernel: Kernel, sizes: int, size: int, row: int, total: int, tables: Sequence[Table]
    ) -> None:
        self.kernel = kernel
        self.sizes, self.size, self.row_dim = sizes, size, row
        self.tables = tuple(tables)
        self.by_result = {t.result: t for t in tables}
        self.by_source = {t.source: t for t in tables}
        self.step = LoopVar(INDEX, "level")
        self.n, self.row = Local(INDEX, "n"), Local(INDEX, "row")
        self.past = {t.rows: Local(INDEX, f"past{k}") for k, t in enumerate(tables)}
        self.places: dict[tuple[int, Value], Value] = {}
        self.rewriter = Rewriter(self._value)
        self.kept = tuple(d for d in range(len(kernel.dims)) if d not in (size, row))
        self.number = {old: DimRef(INDEX, new) for new, old in enumerate(self.kept)}
        self.total = self.number[total]
        self.most = DimRef(INDEX, len(self.kept))

    # --- operands ---------------------------------------------------------------------------------

    def buffers(self) -> tuple[Buffer, ...]:
        found: list[Buffer] = []
        for number, buffer in enumerate(self.kernel.buffers):
            grows = buffer.role == "scratch"
            axes = [Axis(self._size(a.size, grows), a.broadcast) for a in buffer.axes]
            table = self.by_result.get(number)
            if table is not None:
                if not self._is_size(buffer.axes[0].size):
                    raise NotByLevels
                axes[0] = Axis(Binary(INDEX, "add", self.number[table.rows], self.total))
            elif buffer.role == "out":
                raise NotByLevels
            found.append(replace(buffer, axes=tuple(axes)))
        return tuple(found)

    def _is_size(self, value: Value) -> bool:
        return isinstance(value, DimRef) and value.index == self.size

    def _size(self, size: Value, grows: bool = False) -> Value:
        """A size of an operand for all levels; grows: one that may not depend on how many rows a table has by now."""

        def new(value: Value) -> Value | None:
            if not isinstance(value, DimRef):
                return None
            if grows and value.index in self.past:
                raise NotByLevels
            return self.most if value.index == self.size else self.number[value.index]

        return Rewriter(new).value(size)

    # --- statements -------------------------------------------------------------------------------

    def body(self) -> tuple[Statement, ...]:
        found: list[Statement] = [self._begin(t) for t in self.tables]
        found.append(SetLocal(self.row, Const(INDEX, 0)))
        size = Cast(INDEX, Load(self.kernel.buffers[self.sizes].dtype, self.sizes, (self.step,)))
        turn: list[Statement] = [SetLocal(self.n, Binary(INDEX, "max", size, Const(INDEX, 0)))]
        for rows, past in self.past.items():
            turn.append(SetLocal(past, Binary(INDEX, "add", self.number[rows], self.row)))
        turn += [self._rewritten(self._checked(s)) for s in self.kernel.body]
        turn.append(SetLocal(self.row, Binary(INDEX, "add", self.row, self.n)))
        levels = self._size(self.kernel.buffers[self.sizes].axes[0].size)
        return (*found, For(self.step, levels, tuple(turn)))

    def _begin(self, table: Table) -> Statement:
        """The rows that are there already."""
        buffer = self.kernel.buffers[table.source]
        index = tuple(LoopVar(INDEX, f"b{a}") for a in range(len(buffer.axes)))
        found: Statement = Store(table.result, index, Load(buffer.dtype, table.source, index))
        for var, axis in zip(reversed(index), reversed(buffer.axes), strict=True):
            found = For(var, self._size(axis.size), (found,), parallel=True)
        return found

    def _checked(self, statement: Statement) -> Statement:
        """A statement of a level whose loops read no rows of a table that they might add."""
        if any(isinstance(s, SetDim) for s in all_statements((statement,))):
            raise NotByLevels
        written = {self.by_result[b].source for b in stored((statement,)) if b in self.by_result}
        for load in loads_of((statement,)):
            if load.buffer in written and not self._is_older(load):
                raise NotByLevels
        return statement

    def _is_older(self, load: Load) -> bool:
        """Whether a row is one that was there before the level, by its form: min(.., rows - 1)."""
        row = load.indices[0]
        if not isinstance(row, Binary) or row.op != "min":
            return False
        last = row.rhs
        return (
            isinstance(last, Binary)
            and last.op == "sub"
            and isinstance(last.lhs, DimRef)
            and last.lhs.index == self.by_source[load.buffer].rows
            and isinstance(last.rhs, Const)
            and last.rhs.value == 1
        )

    def _rewritten(self, statement: Statement) -> Statement:
        """Of a level, with the level's own sizes and places."""
        match statement:
            case For(var=var, extent=extent, body=body, parallel=parallel):
                inside = tuple(self._rewritten(s) for s in body)
                return For(var, self.rewriter.value(extent), inside, parallel=parallel)
            case If(cond=cond, then=then, otherwise=otherwise):
                both = [tuple(map(self._rewritten, block)) for block in (then, otherwise)]
                return If(self.rewriter.value(cond), both[0], both[1])
            case Store(buffer=buffer, indices=indices, value=value) if buffer in self.by_result:
                new = self._behind(buffer, tuple(map(self.rewriter.value, indices)))
                return Store(buffer, new, self.rewriter.value(value))
            case _:
                return self.rewriter.statement(statement)

    def _value(self, value: Value) -> Value | None:
        match value:
            case DimRef(index=index):
                if index == self.size:
                    return self.n
                if index == self.row_dim:
                    return self.row
                return self.past.get(index, self.number[index])
            case Load(dtype=dtype, buffer=buffer, indices=indices):
                new = tuple(map(self.rewriter.value, indices))
                if buffer in self.by_source:
                    return Load(dtype, self.by_source[buffer].result, new)
                return Load(dtype, buffer, self._behind(buffer, new) if buffer in self.by_result else new)  # fmt: skip
        return None

    def _behind(self, buffer: int, indices: tuple[Value, ...]) -> tuple[Value, ...]:
        """Rows that a level adds stand behind those that were there. One object for one place (regions.py)."""
        table = self.by_result[buffer]
        key = (table.rows, indices[0])
        if key not in self.places:
            # A schedule may put anything for the variable of a loop: that it is no negative number stays to be seen.
            natural = Binary(INDEX, "max", indices[0], Const(INDEX, 0))
            self.places[key] = Binary(INDEX, "add", self.past[table.rows], natural)
        return (self.places[key], *indices[1:])


def over_levels(
    kernel: Kernel, sizes: int, size: int, row: int, total: int, tables: Sequence[Table]
) -> tuple[Kernel, tuple[int, ...]]:
    """The kernel of all levels, and which of the in-dims it keeps; the largest level's size is one more. Raises
    NotByLevels.

    sizes   the input with the number of rows of each level; a number below 0 counts as 0
    size    the in-dim that is this number for one level
    row     the in-dim that is the sum of those before
    total   the in-dim that is the sum of all of them, or more

    Operands are those of one level, with scratch behind them; a table's result has the rows of the source and `total`
    more.
    """
    levels = _Levels(kernel, sizes, size, row, total, tables)
    body = levels.body()
    dims = (*(kernel.dims[d] for d in levels.kept), "most")
    return Kernel(kernel.name, levels.buffers(), dims, body), levels.kept


__all__ = ["NotByLevels", "Table", "over_levels"]
