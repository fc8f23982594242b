"""Counted loops: recursive local functions that go through 0 .. n - 1 once each, as programs write them.

    let %loop = fn (%i, %h, ...) { if (less(%i, %n)) { ...; %loop(%i + 1, ...) } else { ... } };  ... %loop(0, ...)

A `Loop` is proved: the function is only called, never a value; every call from outside starts the counter at 0 and
every call from inside at one more; inside a trip every path calls it again, and outside of a trip (the other branch)
nothing does. So a run that does not fail makes exactly the trips 0 .. n - 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nimblevm.compiler.dataflow import Dataflow, is_op
from nimblevm.compiler.home_blocks import HomeBlocks
from nimblevm.compiler.rewrite import is_primitive, type_of
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Leaf,
    Let,
    Match,
    Var,
    children,
    pattern_vars,
)
from nimblevm.relay.types import TensorType


@dataclass(eq=False, slots=True)
class Loop:
    """var, function: `let var = function`. guard: its If. trip: what one trip evaluates. body, block: the blocks of
    the function and of trip. counter: the variable that counts. limit: n of `counter < n`, as it is written.
    entries: calls from outside. again: calls from inside. invariant: parameters that every call from inside passes on.
    """

    var: Var
    function: Function
    guard: If
    trip: Expr
    body: int
    block: int
    counter: Var
    limit: Expr
    entries: list[Call]
    again: list[Call]
    invariant: frozenset[Var]

    def position(self, param: Var) -> int:
        return self.function.params.index(param)


class LoopFinder:
    """All loops of one global function; inner ones before the outer ones."""

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.place = HomeBlocks(flow.root)
        self.owner: dict[int, Expr] = {b: n for n, blocks in self.place.sub.items() for b in blocks}
        self.bound_in: dict[Var, int] = {}
        self._find_binders()
        self.calls: dict[Var, list[Call]] = {}
        self.escaped: set[Var] = set()
        self.candidates: list[Let] = [
            n for n in flow.order if isinstance(n, Let) and isinstance(n.value, Function)
        ]
        names = {let.var for let in self.candidates}
        for node in flow.order if names else ():
            if isinstance(node, Leaf) or is_primitive(node):
                continue
            parts = children(node)
            if isinstance(node, Call) and isinstance(node.op, Var) and node.op in names:
                self.calls.setdefault(node.op, []).append(node)
                parts = node.args
            self.escaped.update(p for p in parts if isinstance(p, Var) and p in names)

    def _find_binders(self) -> None:
        """In which block each variable is bound."""
        place = self.place
        for node in self.flow.order:
            match node:
                case Let(var=var):
                    self.bound_in[var] = place.home[node]
                case Function(params=params) if not is_primitive(node):
                    self.bound_in.update(dict.fromkeys(params, place.sub[node][0]))
                case Match(clauses=clauses):
                    for clause, block in zip(clauses, place.sub[node], strict=True):
                        self.bound_in.update(dict.fromkeys(pattern_vars(clause.lhs), block))

    def loops(self) -> Iterator[Loop]:
        for let in self.candidates:
            loop = self._loop(let)
            if loop is not None:
                yield loop

    def is_inside(self, node: Expr, block: int) -> bool:
        """Whether a node is evaluated, or a variable bound, in a block or one within it."""
        home = self.bound_in.get(node, 0) if isinstance(node, Var) else self.place.home[node]
        return self.place.tree.common(home, block) == block

    def _loop(self, let: Let) -> Loop | None:
        function = let.value
        if not isinstance(function, Function) or let.var in self.escaped or function.type_params:
            return None
        guard = function.body
        while isinstance(guard, Let):
            guard = guard.body
        if function.attrs or not isinstance(guard, If) or guard not in self.place.sub:
            return None
        body = self.place.sub[function][0]
        if self.place.home[guard] != body:
            return None
        calls = self.calls.get(let.var, [])
        again = [c for c in calls if self.is_inside(c, body)]
        entries = [c for c in calls if not self.is_inside(c, body)]
        block = self.place.sub[guard][0]
        counted = self._counted(guard, function, again, entries)
        if counted is None or not all(self.is_inside(c, block) for c in again):
            return None
        if not self._always(block, again):
            return None
        invariant = frozenset(
            p
            for at, p in enumerate(function.params)
            if all(self.flow.resolve(c.args[at]) is p for c in again)
        )
        return Loop(
            let.var, function, guard, guard.true_branch, body, block, *counted, entries, again, invariant
        )  # fmt: skip

    def _counted(
        self, guard: If, function: Function, again: list[Call], entries: list[Call]
    ) -> tuple[Var, Expr] | None:
        """The counter and its limit, if all calls count from 0 by 1."""
        resolve = self.flow.resolve
        cond = resolve(guard.cond)
        if not isinstance(cond, Call) or not is_op(cond, "less", "greater"):
            return None
        low, high = cond.args if is_op(cond, "less") else reversed(cond.args)
        counter = resolve(low)
        if not isinstance(counter, Var) or counter not in function.params:
            return None
        at = function.params.index(counter)
        if not again or not entries or not all(_is_number(resolve(c.args[at]), 0) for c in entries):
            return None
        if not all(self._is_next(resolve(c.args[at]), counter) for c in again):
            return None
        return counter, high

    def _is_next(self, value: Expr, counter: Var) -> bool:
        if not isinstance(value, Call) or not is_op(value, "add"):
            return False
        left, right = map(self.flow.resolve, value.args)
        return (left is counter and _is_number(right, 1)) or (
            right is counter and _is_number(left, 1)
        )

    def _always(self, block: int, calls: list[Call]) -> bool:
        """Whether every path through a block makes one of the calls."""
        covered: set[int] = set()
        branches: dict[Expr, int] = {}
        stack = [self.place.home[c] for c in calls]
        while stack and block not in covered:
            here = stack.pop()
            owner = self.owner.get(here)
            if here in covered or owner is None:
                continue
            covered.add(here)
            branches[owner] = branches.get(owner, 0) + 1
            if isinstance(owner, If | Match) and branches[owner] == len(self.place.sub[owner]):
                stack.append(self.place.home[owner])
        return block in covered

    # --- sizes ----------------------------------------------------------------------------------

    def covers(self, loop: Loop, source: Expr) -> bool:
        """Whether the loop's trips are the positions of a source's first axis; the source is a variable, which the
        loop does not change, or a constant.
        """
        limit = self.flow.resolve(loop.limit)
        pairs: list[tuple[Dim | None, Expr]] = [(self.number(limit), source)]
        if limit in loop.invariant or source in loop.invariant:
            pairs = []
            for call in loop.entries:
                given = dict(zip(loop.function.params, call.args, strict=True))
                there = given.get(source, source) if isinstance(source, Var) else source
                if isinstance(limit, Var) and limit in given:
                    pairs.append((self.number(given[limit]), there))
                else:
                    pairs.append((self.number(limit), source))
        return bool(pairs) and all(_first_is(self.flow.resolve(x), dim) for dim, x in pairs)

    def number(self, value: Expr) -> Dim | None:
        """The dim that a rank-0 integer is the value of, if that is known."""
        value = self.flow.resolve(value)
        while isinstance(value, Call) and is_op(value, "cast"):
            value = self.flow.resolve(value.args[0])
        if isinstance(value, Constant) and not value.data.ndim and value.data.dtype.kind in "iu":
            return int(value.data)
        if isinstance(value, Call) and is_op(value, "vm.dim_value"):
            dim: Dim = value.attrs.dim
            return dim
        if isinstance(value, Call) and is_op(value, "vm.dim_of"):
            type_ = type_of(value.args[0])
            return type_.shape[value.attrs.axis] if isinstance(type_, TensorType) else None
        return None


def _first_is(source: Expr, dim: Dim | None) -> bool:
    type_ = type_of(source)
    if dim is None or not isinstance(type_, TensorType) or not type_.shape:
        return False
    return bool(dims.compare(type_.shape[0], dim))


def _is_number(node: Expr, number: int) -> bool:
    return isinstance(node, Constant) and not node.data.ndim and bool(node.data == number)


__all__ = ["Loop", "LoopFinder"]
