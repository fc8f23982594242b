"""match -> tests and jumps.

The root constructor selects by one GetTag and one Switch. Clauses stand in their order; a clause
whose inner patterns fail goes on with the next one that its root constructor can still match, so no
root is tested twice and code is linear in the patterns' size (a backtracking automaton, Augustsson
1985, not a tree that copies clauses).
"""

from __future__ import annotations

from nimblevm.compiler.code_buffer import Label
from nimblevm.compiler.emit_frame import Frame
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

MAX_SWITCH = 16


class MatchArms:
    """The arms of a match in a function's code. emit_function.py writes their blocks between `bind`
    and `leave` of each.
    """

    def __init__(self, frame: Frame, match_: Match) -> None:
        self._frame = frame
        self._match = match_
        self._entries = [Label() for _ in match_.clauses]
        """Where each clause is entered once its root fits."""
        self._failure = Label()
        self._successors = self._find_successors()
        self._marks: list[int] = []

    def _root(self, index: int) -> Constructor | None:
        pattern = self._match.clauses[index].lhs
        return pattern.constructor if isinstance(pattern, PatternConstructor) else None

    def _find_successors(self) -> list[Label]:
        """For each clause, where its inner failure goes on. Linear: computed from the last clause
        backwards.
        """
        entries = self._entries
        following: dict[Constructor, Label] = {}
        anything: Label | None = None
        result: list[Label] = []
        for index in reversed(range(len(entries))):
            root = self._root(index)
            if root is None:
                result.append(entries[index + 1] if index + 1 < len(entries) else self._failure)
                following.clear()
                anything = entries[index]
            else:
                result.append(following.get(root) or anything or self._failure)
                following[root] = entries[index]
        return result[::-1]

    def select(self) -> None:
        """Jump to the first clause for the value's root constructor, unless the first clause takes
        everything.
        """
        first = self._root(0)
        if first is None:
            return
        frame = self._frame
        count = frame.program.constructor_count(first)
        targets: list[Label | None] = [None] * count
        for index, entry in enumerate(self._entries):
            root = self._root(index)
            if root is None:
                targets = [t or entry for t in targets]
                break
            targets[root.tag] = targets[root.tag] or entry
        if count == 1:
            return
        tag = frame.int_temp()
        frame.code.emit("GetTag", tag, frame.obj(self._match.data))
        frame.code.emit("Switch", tag, [t or self._failure for t in targets])

    def begin(self, index: int) -> None:
        """A clause starts here."""
        self._frame.code.place(self._entries[index])

    def bind(self, index: int) -> None:
        """Tests of a clause's inner patterns, then loads of the variables that are read."""
        frame = self._frame
        self._marks.append(frame.dims.mark())
        pattern = self._match.clauses[index].lhs
        if isinstance(pattern, PatternWildcard):
            return
        loads: list[tuple[Var, int, int]] = []
        stack: list[tuple[Pattern, int, bool]] = [(pattern, frame.obj(self._match.data), True)]
        while stack:
            current, register, is_root = stack.pop()
            if isinstance(current, PatternConstructor) and not is_root:
                _test(frame, current.constructor, register, self._successors[index])
            if not isinstance(current, PatternConstructor | PatternTuple):
                raise CompileError(f"{type(current).__name__} can't be tested")
            inner: list[tuple[Pattern, int, bool]] = []
            for position, part in enumerate(current.patterns):
                if isinstance(part, PatternVar):
                    if _is_read(frame, part.var):
                        loads.append((part.var, register, position))
                elif not isinstance(part, PatternWildcard):
                    field = frame.obj_temp()
                    frame.code.emit("GetField", field, register, position)
                    inner.append((part, field, False))
            stack.extend(reversed(inner))
        for var, register, position in loads:
            _load(frame, var, register, position)
        frame.free_temps()

    def leave(self) -> None:
        """Forget the dims that the clause's variables gave."""
        self._frame.dims.rollback(self._marks.pop())

    def may_fail(self) -> bool:
        """Whether code written so far jumps to where no clause applies."""
        return bool(self._failure.uses)

    def fail(self) -> None:
        """Where no clause applies."""
        frame, match_ = self._frame, self._match
        frame.code.place(self._failure)
        frame.code.at(match_.span)
        missing = ", ".join(pattern_text(p) for p in unmatched_cases(match_, frame.program.mod))
        text = (
            f"match in @{frame.name}: no clause applies; it has none for {missing or 'this value'}"
        )
        frame.code.emit("Fatal", frame.program.note(text, match_.span))


def _is_read(frame: Frame, var: Var) -> bool:
    if not never_read(var, frame.live):
        return True
    return any(isinstance(d, DimVar) and d in frame.live.needed for d in free_dims(type_of(var)))


def _load(frame: Frame, var: Var, register: int, position: int) -> None:
    place = frame.define(var)
    frame.obj_into(
        place, type_of(var), lambda r: frame.code.emit("GetField", r, register, position)
    )
    frame.bind_dims(var)


def _test(frame: Frame, constructor: Constructor, register: int, failure: Label) -> None:
    """Go to `failure` unless the value was built by `constructor`."""
    count = frame.program.constructor_count(constructor)
    if count == 1:
        return
    tag = frame.int_temp()
    frame.code.emit("GetTag", tag, register)
    if count <= MAX_SWITCH:
        fits = Label()
        frame.code.emit(
            "Switch", tag, [fits if t == constructor.tag else failure for t in range(count)]
        )
        frame.code.place(fits)
        return
    wanted = frame.int_temp()
    frame.code.emit_imm64(wanted, constructor.tag)
    frame.code.emit("IntEq", wanted, tag, wanted)
    frame.code.emit("If", wanted, failure)
