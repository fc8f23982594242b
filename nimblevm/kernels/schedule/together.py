"""Bodies that the threads of a group run together: softmax and layer_norm rows, sums and other reductions.

before:  for i < N: { m = -inf; for k < K: m max= x[i,k]; for j < K: out[i,j] = exp(x[i,j] - m) }
after:   group i, of 128 threads t:
           m = -inf; p = -inf; for q < (K + 127 - t) / 128: p max= x[i, 128 q + t]
           part[t] = p; barrier; the tree: part[t] max= part[t + 64], ... ; m max= part[0]; barrier
           for q < (K + 127 - t) / 128: out[i, 128 q + t] = exp(x[i, 128 q + t] - m)

Every thread runs the statements outside of loops, so all of them hold the same locals; thread 0 alone stores there. The
turns of parallel loops and of reductions are dealt out; other loops are run by all threads, turn by turn. Barriers are
put between statements of which one writes what the other reads or writes. What may fail has another schedule: a thread
that gives up would miss the barriers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nimblevm import dtypes
from nimblevm.kernels.facts import loads_of, stored
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
from nimblevm.kernels.rewrite import Rewriter, all_statements, all_values
from nimblevm.kernels.schedule.index import INDEX, const, folded, mentions
from nimblevm.kernels.schedule.launch import (
    ONE,
    Launch,
    array,
    ids,
    locals_of,
    places,
    turns,
)

SHORT = 32
"""Turns that one thread takes rather than a group."""
THREADS = 128


@dataclass(frozen=True, slots=True)
class Reduction:
    """A nest of loops that only accumulates."""

    loops: tuple[For, ...]
    sums: tuple[Accumulate, ...]


def reduction_of(loop: For) -> Reduction | None:
    """The parts of such a nest; None for another loop."""
    loops = [loop]
    while len(loops[-1].body) == 1 and isinstance(loops[-1].body[0], For):
        inner = loops[-1].body[0]
        if any(mentions(inner.extent, outer.var) for outer in loops):
            return None
        loops.append(inner)
    sums = [s for s in loops[-1].body if isinstance(s, Accumulate)]
    if len(sums) != len(loops[-1].body) or len({s.local for s in sums}) != len(sums):
        return None
    changed = {s.local for s in sums}
    if any(v in changed for s in sums for v in all_values((s.value,))):
        return None
    return Reduction(tuple(loops), tuple(sums))


def independent(loop: For) -> tuple[list[For], tuple[Statement, ...]]:
    """Nested parallel loops whose sizes do not depend on each other, and what is inside."""
    loops = [loop]
    body = loop.body
    while len(body) == 1 and isinstance(body[0], For) and body[0].parallel:
        inner = body[0]
        if any(mentions(inner.extent, outer.var) for outer in loops):
            break
        loops.append(inner)
        body = inner.body
    return loops, body


def _is_short(loops: Sequence[For]) -> bool:
    total = turns(loops)
    return isinstance(total, Const) and total.value <= SHORT


def shares_work(body: Sequence[Statement]) -> bool:
    """Whether a group has something to deal out in every loop of a body, and is not too many for it."""
    return _deals(body) and any(_is_long(s) for s in all_statements(body))


def _deals(body: Sequence[Statement]) -> bool:
    """Loops nest at most 32 deep, so this recurses."""
    for statement in body:
        if isinstance(statement, If) and not (
            _deals(statement.then) and _deals(statement.otherwise)
        ):
            return False
        if not isinstance(statement, For) or statement.parallel:
            continue
        plain = not any(isinstance(s, For) for s in all_statements(statement.body))
        if reduction_of(statement) is None and (plain or not _deals(statement.body)):
            return False
    return True


def _is_long(statement: Statement) -> bool:
    if not isinstance(statement, For):
        return False
    reduction = reduction_of(statement)
    if reduction is not None:
        return not _is_short(reduction.loops)
    return statement.parallel and not _is_short(independent(statement)[0])


def _keeps_locals(body: Sequence[Statement]) -> bool:
    """Whether no local that turns of a parallel loop set is used outside of that loop."""
    inside: list[tuple[For, frozenset[Local]]] = []
    for statement in all_statements(body):
        if isinstance(statement, For) and statement.parallel:
            changed = {
                s.local
                for s in all_statements(statement.body)
                if isinstance(s, SetLocal | Accumulate)
            }
            inside.append((statement, frozenset(changed)))
    return not any(changed & _used_outside(body, loop) for loop, changed in inside)


def _used_outside(body: Sequence[Statement], loop: For) -> set[Local]:
    """The locals of a body without one of its loops. Loops nest at most 32 deep, so this recurses."""
    found: set[Local] = set()
    for statement in body:
        if statement is loop:
            continue
        if not any(s is loop for s in all_statements((statement,))):
            found |= locals_of((statement,))
        elif isinstance(statement, For):
            found |= locals_of((For(statement.var, statement.extent, ()),))
            found |= _used_outside(statement.body, loop)
        elif isinstance(statement, If):
            found |= locals_of((If(statement.cond, ()),))
            found |= _used_outside((*statement.then, *statement.otherwise), loop)
    return found


_IDENTITY = {"add": 0, "or": 0, "mul": 1}


def identity(op: str, dtype: str) -> Const:
    """What an accumulation of no values gives."""
    row = dtypes.dtype(dtype)
    if row.is_bool:
        return Const(dtype, op in ("mul", "min", "and"))
    if op in _IDENTITY:
        return Const(dtype, float(_IDENTITY[op]) if row.is_float else _IDENTITY[op])
    if op == "and":
        return Const(dtype, -1 if row.is_signed else (1 << row.bits) - 1)
    if row.is_float:
        return Const(dtype, float("inf") if op == "min" else -float("inf"))
    least = -(1 << (row.bits - 1)) if row.is_signed else 0
    most = (1 << (row.bits - 1)) - 1 if row.is_signed else (1 << row.bits) - 1
    return Const(dtype, most if op == "min" else least)


class Group:
    """Rewrites a body for the threads of a group; `buffers` grows by what they share."""

    def __init__(self, kernel: Kernel, threads: int) -> None:
        self.buffers: list[Buffer] = list(kernel.buffers)
        self.threads = threads
        self.thread = ids("t")
        self.parts: dict[tuple[str, int], int] = {}
        self.same = dict(kernel.alias)

    # --- what is read and written ---

    def _touched(self, statement: Statement) -> tuple[set[int], set[int]]:
        """Buffers that are read, and written; those that share storage count as one."""
        reads = {self.same.get(v.buffer, v.buffer) for v in loads_of((statement,))}
        return reads, {self.same.get(b, b) for b in stored((statement,))}

    def block(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        """Statements with barriers between them. Loops nest at most 32 deep, so this recurses."""
        found: list[Statement] = []
        read: set[int] = set()
        written: set[int] = set()
        for statement in body:
            reads, writes = self._touched(statement)
            if written & (reads | writes) or read & writes:
                found.append(Barrier())
                read, written = set(), set()
            found += self._statement(statement)
            read |= reads
            written |= writes
        return tuple(found)

    def _statement(self, statement: Statement) -> list[Statement]:
        match statement:
            case Store():
                first = Compare("bool", "eq", self.thread[0], const(0))
                return [If(first, (statement,))]
            case If(cond=cond, then=then, otherwise=otherwise):
                return [If(cond, self.block(then), self.block(otherwise))]
            case For(parallel=True):
                return self._dealt(statement)
            case For():
                reduction = reduction_of(statement)
                if reduction is not None:
                    return self._reduced(reduction)
                return [self._in_turns(statement)]
        return [statement]

    def _in_turns(self, loop: For) -> Statement:
        """A loop whose turns follow each other: all threads take each turn together."""
        _, writes = self._touched(loop)
        body = self.block(loop.body)
        if writes:
            body = (*body, Barrier())
        return For(loop.var, loop.extent, body)

    # --- loops that are dealt out ---

    def _share(self, total: Value) -> tuple[LoopVar, Value, Value]:
        """A variable, how many turns of `total` this thread takes, and which is the variable's."""
        var = LoopVar(INDEX, "q")
        left = folded("sub", folded("add", total, const(self.threads - 1)), self.thread[0])
        count = folded("floordiv", left, const(self.threads))
        turn = folded("add", folded("mul", var, const(self.threads)), self.thread[0])
        return var, count, turn

    def _dealt(self, loop: For) -> list[Statement]:
        loops, body = independent(loop)
        var, count, turn = self._share(turns(loops))
        return [For(var, count, Rewriter(places(loops, turn).get).block(body))]

    def _reduced(self, reduction: Reduction) -> list[Statement]:
        var, count, turn = self._share(turns(reduction.loops))
        rewriter = Rewriter(places(reduction.loops, turn).get)
        found: list[Statement] = []
        adds: list[Statement] = []
        mine: list[tuple[Accumulate, Local, int]] = []
        for number, one in enumerate(reduction.sums):
            part = Local(one.local.dtype, one.local.name + "p")
            mine.append((one, part, self._part(one.local.dtype, number)))
            found.append(SetLocal(part, identity(one.op, one.local.dtype)))
            adds.append(Accumulate(part, one.op, rewriter.value(one.value)))
        found.append(For(var, count, tuple(adds)))
        at = self.thread[0]
        found += [Store(shared, (at,), part) for _, part, shared in mine]
        step = self.threads // 2
        while step:
            found.append(Barrier())
            joined = tuple(self._joined(one, shared, step) for one, _, shared in mine)
            found.append(If(Compare("bool", "lt", at, const(step)), joined))
            step //= 2
        found.append(Barrier())
        for one, _, shared in mine:
            total = Load(one.local.dtype, shared, (const(0),))
            found.append(SetLocal(one.local, Binary(one.local.dtype, one.op, one.local, total)))
        return [*found, Barrier()]

    def _joined(self, one: Accumulate, shared: int, step: int) -> Statement:
        at, dtype = self.thread[0], one.local.dtype
        other = Load(dtype, shared, (folded("add", at, const(step)),))
        return Store(shared, (at,), Binary(dtype, one.op, Load(dtype, shared, (at,)), other))

    def _part(self, dtype: str, number: int) -> int:
        """The shared array of one element a thread for the number-th sum of a loop."""
        if (dtype, number) not in self.parts:
            self.parts[dtype, number] = len(self.buffers)
            self.buffers.append(array(f"part{len(self.parts)}", dtype, "shared", self.threads))
        return self.parts[dtype, number]


def together(
    kernel: Kernel, name: str, loops: Sequence[For], body: tuple[Statement, ...], times: Value = ONE
) -> Launch | None:
    """A group a turn of a nest of parallel loops (one group for none); None for a body that has another form.

    times: 0 or 1, a size that a host can compute: whether to launch it at all.
    """
    if not _keeps_locals(body):
        return None
    group = Group(kernel, THREADS)
    index = ids("g")
    made = group.block(Rewriter(places(loops, index[0]).get).block(body))
    grid = turns(loops) if times is ONE else folded("mul", turns(loops), times)
    return Launch(
        name, kernel, (grid, ONE, ONE), (THREADS, 1, 1), index, group.thread, tuple(group.buffers), made
    )  # fmt: skip


__all__ = ["Reduction", "identity", "independent", "reduction_of", "shares_work", "together"]
