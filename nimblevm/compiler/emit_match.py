"""match -> tests and jumps.

The root constructor selects by one GetTag and one Switch. Clauses stand in their order; a clause
whose inner patterns fail goes on with the next one that its root constructor can still match, so no
root is tested twice and code is linear in the patterns' size (a backtracking automaton, Augustsson
1985, not a tree that copies clauses).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from nimblevm.compiler.code_buffer import Label
from nimblevm.compiler.liveness import never_read
from nimblevm.compiler.rewrite import type_of
from nimblevm.errors import CompileError
from nimblevm.relay.analysis import pattern_text, unmatched_cases
from nimblevm.relay.dims import DimVar
from nimblevm.relay.ir import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Var,
)
from nimblevm.relay.types import free_dims

if TYPE_CHECKING:
    from nimblevm.compiler.emit_function import FunctionEmitter, Place
    from nimblevm.compiler.liveness import Item

MAX_SWITCH = 16


@dataclass(slots=True)
class _Automaton:
    """Labels of a match: where each clause is entered once its root fits, and what happens when
    none fits.
    """

    match_: Match
    entries: list[Label]
    fatal: Label

    def root(self, index: int) -> Constructor | None:
        pattern = self.match_.clauses[index].lhs
        return pattern.constructor if isinstance(pattern, PatternConstructor) else None


def emit_match(
    fe: FunctionEmitter, item: Item, match_: Match, dst: Place | None, end: Label
) -> None:
    """Write a match; the clauses' blocks are queued on the emitter's work stack."""
    automaton = _Automaton(match_, [Label() for _ in match_.clauses], Label())
    tests = _successors(automaton)
    _switch(fe, automaton)
    fe.free_temps()
    fe.expire_before_branches(item)
    work: list[partial[None]] = []
    marks: list[int] = []
    for index in range(len(match_.clauses)):
        last = index == len(match_.clauses) - 1
        work.append(partial(fe.code.place, automaton.entries[index]))
        work.append(partial(fe.kill_dead, item.blocks[index]))
        work.append(partial(_clause, fe, automaton, index, tests[index], marks))
        work.append(partial(fe.block, item.blocks[index], dst))
        work.append(partial(_leave, fe, marks))
        if dst is not None and not last:
            work.append(partial(fe.code.emit, "Goto", end))
    work.append(partial(_fatal, fe, automaton, match_, dst, end))
    fe.work.extend(reversed(work))


def _successors(automaton: _Automaton) -> list[Label]:
    """For each clause, where its inner failure goes on. Linear: computed from the last clause
    backwards.
    """
    following: dict[Constructor, Label] = {}
    anything: Label | None = None
    result: list[Label] = []
    for index in reversed(range(len(automaton.entries))):
        root = automaton.root(index)
        if root is None:
            result.append(
                automaton.entries[index + 1]
                if index + 1 < len(automaton.entries)
                else automaton.fatal
            )
            following.clear()
            anything = automaton.entries[index]
        else:
            result.append(following.get(root) or anything or automaton.fatal)
            following[root] = automaton.entries[index]
    return result[::-1]


def _switch(fe: FunctionEmitter, automaton: _Automaton) -> None:
    """Jump to the first clause for the value's root constructor, unless the first clause takes
    everything.
    """
    first = automaton.root(0)
    if first is None:
        return
    count = fe.program.constructor_count(first)
    targets: list[Label | None] = [None] * count
    for index in range(len(automaton.entries)):
        root = automaton.root(index)
        if root is None:
            targets = [t or automaton.entries[index] for t in targets]
            break
        targets[root.tag] = targets[root.tag] or automaton.entries[index]
    labels = [t or automaton.fatal for t in targets]
    if count == 1:
        return
    tag = fe.temp(True)
    fe.code.emit("GetTag", tag, fe.obj(automaton.match_.data))
    fe.code.emit("Switch", tag, labels)


def _leave(fe: FunctionEmitter, marks: list[int]) -> None:
    """Forget the dims that the clause's variables gave."""
    fe.dims.rollback(marks.pop())


def _clause(
    fe: FunctionEmitter, automaton: _Automaton, index: int, failure: Label, marks: list[int]
) -> None:
    """Tests of the inner patterns, then loads of the variables that are read."""
    marks.append(fe.dims.mark())
    data = automaton.match_.data
    pattern = automaton.match_.clauses[index].lhs
    if isinstance(pattern, PatternWildcard):
        return
    loads: list[tuple[Var, int, int]] = []
    stack: list[tuple[Pattern, int, bool]] = [(pattern, fe.obj(data), True)]
    while stack:
        current, register, is_root = stack.pop()
        if isinstance(current, PatternConstructor) and not is_root:
            _test(fe, current.constructor, register, failure)
        if not isinstance(current, PatternConstructor | PatternTuple):
            raise CompileError(f"{type(current).__name__} can't be tested")
        inner: list[tuple[Pattern, int, bool]] = []
        for position, part in enumerate(current.patterns):
            if isinstance(part, PatternVar):
                if _is_read(fe, part.var):
                    loads.append((part.var, register, position))
            elif not isinstance(part, PatternWildcard):
                field = fe.temp(False)
                fe.code.emit("GetField", field, register, position)
                inner.append((part, field, False))
        stack.extend(reversed(inner))
    for var, register, position in loads:
        _load(fe, var, register, position)
    fe.free_temps()


def _is_read(fe: FunctionEmitter, var: Var) -> bool:
    if not never_read(var, fe.live):
        return True
    return any(isinstance(d, DimVar) and d in fe.live.needed for d in free_dims(type_of(var)))


def _load(fe: FunctionEmitter, var: Var, register: int, position: int) -> None:
    place = fe.define(var)
    fe.into(place, type_of(var), False, lambda r: fe.code.emit("GetField", r, register, position))
    fe.bind_dims(var)


def _test(fe: FunctionEmitter, constructor: Constructor, register: int, failure: Label) -> None:
    """Go to `failure` unless the value was built by `constructor`."""
    count = fe.program.constructor_count(constructor)
    if count == 1:
        return
    tag = fe.temp(True)
    fe.code.emit("GetTag", tag, register)
    if count <= MAX_SWITCH:
        fits = Label()
        fe.code.emit(
            "Switch", tag, [fits if t == constructor.tag else failure for t in range(count)]
        )
        fe.code.place(fits)
        return
    wanted = fe.temp(True)
    fe.code.emit_imm64(wanted, constructor.tag)
    fe.code.emit("IntEq", wanted, tag, wanted)
    fe.code.emit("If", wanted, failure)


def _fatal(
    fe: FunctionEmitter, automaton: _Automaton, match_: Match, dst: Place | None, end: Label
) -> None:
    """Where no clause applies."""
    if not automaton.fatal.uses:
        return
    if dst is not None:
        fe.code.emit("Goto", end)
    fe.code.place(automaton.fatal)
    fe.code.at(match_.span)
    missing = ", ".join(pattern_text(p) for p in unmatched_cases(match_, fe.program.mod))
    text = f"match in @{fe.name}: no clause applies; it has none for {missing or 'this value'}"
    fe.code.emit("Fatal", fe.program.note(text, match_.span))
