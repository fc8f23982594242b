"""Recursions that the structure of a value decides, as programs write them.

    let %walk = fn (%t: Tree, %w) { match (%t) { Leaf(%x) => ..., Node(%l, %r) => ... %walk(%l, %w) ... } }

A `Walk` is proved: the function is only called, never a value; it matches one of its parameters, the others are passed
on as they are; every call from inside is made whenever its clause is taken, for a part of the value; nothing else is in
it but total operators, constructors, and checks of the value's parts. So the structure alone decides which parts are
visited, in which order, and the order in which they are computed can't be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nimblevm.compiler.dataflow import Dataflow, is_op, is_total_call
from nimblevm.compiler.loops import LoopFinder
from nimblevm.compiler.rewrite import let_chain, postorder, type_of
from nimblevm.relay.ir import (
    Call,
    Constructor,
    Expr,
    Function,
    Leaf,
    Let,
    Match,
    Tuple,
    TupleGetItem,
    Var,
    pattern_vars,
)
from nimblevm.relay.types import Type


@dataclass(eq=False, slots=True)
class Walk:
    """let: `let walk = function`. data: the parameter that `match` takes apart. entries: calls from outside. again:
    calls from inside. invariant: the other parameters. body: the function's block. chains: the lets and the end of
    each clause.
    """

    let: Let
    function: Function
    match: Match
    data: Var
    entries: list[Call]
    again: set[Expr]
    invariant: frozenset[Var]
    body: int
    chains: list[tuple[list[Let], Expr]]

    @property
    def result(self) -> Type:
        return type_of(self.match)

    @property
    def position(self) -> int:
        """Of `data` among the parameters."""
        return self.function.params.index(self.data)


@dataclass(eq=False, slots=True)
class ClauseRegion:
    """One clause of a walk as a region for RowLifter."""

    trip: Expr
    block: int
    body: int
    invariant: frozenset[Var]


def walks(flow: Dataflow, finder: LoopFinder) -> Iterator[Walk]:
    """The walks of a function; inner ones first."""
    for let in finder.candidates:
        walk = _walk(flow, finder, let)
        if walk is not None:
            yield walk


def region_of(walk: Walk, finder: LoopFinder, at: int) -> ClauseRegion:
    """Clause `at`."""
    block = finder.place.sub[walk.match][at]
    return ClauseRegion(walk.match.clauses[at].rhs, block, walk.body, walk.invariant)


def is_part_check(node: Expr, parts: set[Var]) -> bool:
    """Whether a node checks one of a clause's parts."""
    return isinstance(node, Call) and is_op(node, "vm.match_type") and node.args[0] in parts


def _walk(flow: Dataflow, finder: LoopFinder, let: Let) -> Walk | None:
    function = let.value
    if not isinstance(function, Function) or let.var in finder.escaped or function.type_params:
        return None
    match = function.body
    data = match.data if isinstance(match, Match) else None
    if function.attrs or not isinstance(match, Match) or not isinstance(data, Var):
        return None
    if data not in function.params:
        return None
    body = finder.place.sub[function][0]
    calls = finder.calls.get(let.var, [])
    again = [c for c in calls if finder.is_inside(c, body)]
    entries = [c for c in calls if not finder.is_inside(c, body)]
    invariant = frozenset(
        p
        for at, p in enumerate(function.params)
        if all(flow.resolve(c.args[at]) is p for c in again)
    )
    if not again or not entries or {*function.params} - invariant != {data}:
        return None
    walk = Walk(
        let, function, match, data, entries, set(again), invariant, body,
        [let_chain(c.rhs) for c in match.clauses],
    )  # fmt: skip
    return walk if _is_plain(walk) else None


def _is_plain(walk: Walk) -> bool:
    """Whether the structure alone decides which calls are made, and nothing but checks of its parts may fail."""
    at = walk.position
    found = 0
    for clause, (lets, end) in zip(walk.match.clauses, walk.chains, strict=True):
        parts = set(pattern_vars(clause.lhs))
        calls = [n for n in (*(let.value for let in lets), end) if n in walk.again]
        found += len(calls)
        if not all(isinstance(c, Call) and c.args[at] in parts for c in calls):
            return False
        checks = {let.value for let in lets if is_part_check(let.value, parts)}
        for node in postorder(clause.rhs):
            fine = isinstance(node, Leaf | Let | Tuple | TupleGetItem) or node in walk.again
            if not fine and not (node in checks or _is_pure_call(node)):
                return False
    return found == len(walk.again)


def _is_pure_call(node: Expr) -> bool:
    return isinstance(node, Call) and (isinstance(node.op, Constructor) or is_total_call(node))


__all__ = ["ClauseRegion", "Walk", "is_part_check", "region_of", "walks"]
