"""A kernel that runs several steps of a loop: loop IR of one step -> loop IR of all of them.

before:  for j < 4: out[0,j] = tanh(rows[%i,j] + h[0,j])
after:   for j < 4: state[0,0,j] = h[0,j]
         for t < %count:
           for j < 4: { v = tanh(rows[%i + t,j] + state[t % 2,0,j]); out[0,j] = v; state[(t + 1) % 2,0,j] = v }

What a step carries to the next one lies in scratch buffers of two places, which are read and written in turns: so no
element is overwritten that another turn, on whatever thread, still reads. Rows that are collected are stored once more.
What waits for no step before is computed first, for all steps (ahead.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nimblevm.kernels.ahead import find_ahead, rows_to_copy
from nimblevm.kernels.expr import INDEX
from nimblevm.kernels.facts import loads_of, stored
from nimblevm.kernels.loop_ir import (
    Axis,
    Binary,
    Buffer,
    Const,
    DimRef,
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
from nimblevm.kernels.rewrite import Rewriter

_TWO = Const(INDEX, 2)


class _Repeater:
    """Writes the loop for one kernel; arguments as for `repeat`."""

    def __init__(
        self,
        kernel: Kernel,
        counters: Mapping[int, int],
        count: int,
        carried: Sequence[tuple[int, int]],
        collected: Sequence[int],
    ) -> None:
        self.old = kernel.buffers
        self.n_operands = sum(b.role != "scratch" for b in kernel.buffers)
        self.counters = counters
        self.count = DimRef(INDEX, count)
        self.step = LoopVar(INDEX, "step")
        self.rows = {result: self.n_operands + k for k, result in enumerate(collected)}
        self.moved = len(collected)  # scratch buffers of the step stand so much further behind
        first_state = len(kernel.buffers) + len(collected)
        self.state = {source: first_state + k for k, (source, _) in enumerate(carried)}
        self.carried = tuple(carried)
        self.kept = {*(result for _, result in carried), *collected}
        self.now = Binary(INDEX, "floormod", self.step, _TWO)
        following = Binary(INDEX, "add", self.step, Const(INDEX, 1))
        self.next = Binary(INDEX, "floormod", following, _TWO)
        self.n_locals = 0
        growing = {dim for dim, by in counters.items() if by}
        self.ahead = find_ahead(self.old, kernel.body, set(self.state), growing)
        self.at = self.step
        self.copies: list[Buffer] = []
        self.first_copy = first_state + len(self.state)
        self.rewriter = Rewriter(self._value)

    def buffers(self) -> tuple[Buffer, ...]:
        """Inputs, results, rows of results, scratch, states, copies of rows."""
        first = self.n_operands
        rows = [
            Buffer(f"rows{k}", self.old[r].dtype, "out", (Axis(self.count), *self.old[r].axes[1:]))
            for k, r in enumerate(self.rows)
        ]
        states = [
            Buffer(f"state{k}", self.old[s].dtype, "scratch", (Axis(_TWO), *self.old[s].axes))
            for k, s in enumerate(self.state)
        ]
        scratch = [
            Buffer(b.name, b.dtype, b.role, (Axis(self.count), *b.axes))
            if n in self.ahead.varies
            else b
            for n, b in enumerate(self.old[first:], first)
        ]
        return (*self.old[:first], *rows, *scratch, *states, *self.copies)

    def body(self) -> tuple[Statement, ...]:
        ahead = [s for statement in self.ahead.first for s in self._before(statement)]
        self.at = self.step
        self.rewriter = Rewriter(self._value)
        loop = For(self.step, self.count, self._block(self.ahead.rest))
        return (*ahead, *(self._begin(source) for source in self.state), loop)

    def _before(self, statement: Statement) -> list[Statement]:
        """A statement that goes ahead, for all steps; before it copies of the rows that it reads."""
        self.at = LoopVar(INDEX, "row")
        self.rewriter = Rewriter(self._value)
        (new,) = self._block((statement,))
        if stored((statement,)) & self.ahead.once:
            return [new]
        copies: dict[Load, Load] = {}
        found: list[Statement] = []
        for load, loops in rows_to_copy(new, self.at, self.n_operands).items():
            axes = (Axis(self.count), *(Axis(loop.extent) for loop in loops))
            number = self.first_copy + len(self.copies)
            self.copies.append(Buffer(f"copy{len(self.copies)}", load.dtype, "scratch", axes))
            index = (self.at, *(loop.var for loop in loops))
            copies[load] = Load(load.dtype, number, index)
            copy: Statement = Store(number, index, load)
            for loop in reversed(loops):
                copy = For(loop.var, loop.extent, (copy,), parallel=True)
            found.append(For(self.at, self.count, (copy,), parallel=True))
        if copies:
            new = Rewriter(lambda v: copies.get(v) if isinstance(v, Load) else None).statement(new)
        return [*found, For(self.at, self.count, (new,), parallel=True)]

    def _begin(self, source: int) -> Statement:
        """The first step reads what came in."""
        axes = self.old[source].axes
        index = tuple(LoopVar(INDEX, f"b{a}") for a in range(len(axes)))
        value = Load(self.old[source].dtype, source, index)
        found: Statement = Store(self.state[source], (Const(INDEX, 0), *index), value)
        for var, axis in zip(reversed(index), reversed(axes), strict=True):
            found = For(var, axis.size, (found,), parallel=True)
        return found

    # --- one step ---------------------------------------------------------------------------------

    def _value(self, value: Value) -> Value | None:
        match value:
            case DimRef(index=index) if self.counters.get(index):
                slope = self.counters[index]
                grown = (
                    self.at if slope == 1 else Binary(INDEX, "mul", self.at, Const(INDEX, slope))
                )
                return Binary(INDEX, "add", value, grown)
            case Load(dtype=dtype, buffer=buffer, indices=indices):
                new = tuple(map(self.rewriter.value, indices))
                if buffer in self.state:
                    return Load(dtype, self.state[buffer], (self.now, *new))
                return Load(dtype, self._place(buffer), (*self._row(buffer), *new))
        return None

    def _row(self, buffer: int) -> tuple[Value, ...]:
        """The index that scratch has in front which is computed ahead."""
        return (self.at,) if buffer in self.ahead.varies else ()

    def _place(self, buffer: int) -> int:
        return buffer if buffer < self.n_operands else buffer + self.moved

    def _block(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        """Statements nest at most 32 deep, so this recurses."""
        found: list[Statement] = []
        run: list[Store] = []
        for statement in body:
            if isinstance(statement, Store) and not self._reads(statement, run):
                run.append(statement)
                continue
            found += self._stores(run)
            run = [statement] if isinstance(statement, Store) else []
            match statement:
                case Store():
                    pass
                case For(var=var, extent=extent, body=inside, parallel=parallel):
                    size = self.rewriter.value(extent)
                    found.append(For(var, size, self._block(inside), parallel=parallel))
                case If(cond=cond, then=then, otherwise=otherwise):
                    both = (self._block(then), self._block(otherwise))
                    found.append(If(self.rewriter.value(cond), *both))
                case _:
                    found.append(self.rewriter.statement(statement))
        return (*found, *self._stores(run))

    @staticmethod
    def _reads(statement: Store, run: Sequence[Store]) -> bool:
        """Whether a statement reads a buffer that the stores before it write."""
        written = stored(run)
        return any(load.buffer in written for load in loads_of((statement,)))

    def _stores(self, run: Sequence[Store]) -> list[Statement]:
        """Stores that stand together: all values first, so that what they share is computed once."""
        if not any(store.buffer in self.kept for store in run):
            return [self._store(store.buffer, store.indices, store.value) for store in run]
        values: list[Statement] = []
        stores: list[Statement] = []
        for store in run:
            self.n_locals += 1
            local = Local(store.value.dtype, f"r{self.n_locals}")
            values.append(SetLocal(local, self.rewriter.value(store.value)))
            index = tuple(map(self.rewriter.value, store.indices))
            stores.append(Store(self._place(store.buffer), index, local))
            for source, result in self.carried:
                if result == store.buffer:
                    stores.append(Store(self.state[source], (self.next, *index), local))
            if store.buffer in self.rows:
                stores.append(Store(self.rows[store.buffer], (self.step, *index[1:]), local))
        return [*values, *stores]

    def _store(self, buffer: int, indices: Sequence[Value], value: Value) -> Statement:
        index = (*self._row(buffer), *map(self.rewriter.value, indices))
        return Store(self._place(buffer), index, self.rewriter.value(value))


def repeat(
    kernel: Kernel,
    counters: Mapping[int, int],
    count: int,
    carried: Sequence[tuple[int, int]],
    collected: Sequence[int],
) -> Kernel:
    """The kernel of `dims[count]` steps, which is one of the step's in-dims or a new one behind them.

    counters: in-dim -> what it grows by with each step. carried: (input, result), of equal dtypes and shapes without
    broadcast axes, and collected: results of one row; numbers of the step's operands. Operands of the new kernel: the
    step's inputs and results, for each collected result its rows [steps, ...], the step's scratch, for each carried
    input a state [2, ...]; of scratch that is computed ahead the rows [steps, ...], and copies of rows of inputs.
    """
    repeater = _Repeater(kernel, counters, count, carried, collected)
    body = repeater.body()
    dims = (*kernel.dims, "steps") if count == len(kernel.dims) else kernel.dims
    return Kernel(kernel.name, repeater.buffers(), dims, body, kernel.out_dims)


__all__ = ["repeat"]
