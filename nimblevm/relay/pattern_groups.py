"""Which nodes of a graph are one match of a pattern, and functions around them: what rewriting and partitioning share.

Matches nearer to the result are taken first, and none overlaps another. What is inside of a function that partitioning
made (with the attribute PartitionedFromPattern) is matched by nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nimblevm.relay.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    Tuple,
    TupleGetItem,
    Var,
    children,
)
from nimblevm.relay.op.registry import Op
from nimblevm.relay.visitor import post_order, with_children

MARK = "PartitionedFromPattern"
Matched = Mapping[Any, Expr]
"""Pattern -> the node that it matched, in the pattern's order; `inner` of a pattern: the match computes that node."""


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """One match: what its patterns matched, and the nodes that it computes."""

    matched: Matched
    inside: frozenset[Expr]


def find_groups(
    order: Sequence[Expr], attempt: Callable[[Expr], Matched | None], dominated: bool
) -> dict[Expr, Group]:
    """The matches of a graph (its nodes in post order) by the node at which they match.

    Nothing but the result of a match is used outside of it; `dominated`: or only by what the result depends on.
    """
    users: dict[Expr, list[Expr]] = {}
    wrapped: set[Expr] = set()
    for node in order:
        for child in children(node):
            users.setdefault(child, []).append(node)
        if isinstance(node, Function) and MARK in node.attrs:
            wrapped.update((node, *post_order(node.body)))
    groups: dict[Expr, Group] = {}
    taken: set[Expr] = set()
    for node in reversed(order):
        if node in taken or node in wrapped or isinstance(node, Op):
            continue
        matched = attempt(node)
        if matched is None:
            continue
        inside = frozenset([*(e for p, e in matched.items() if p.inner), node])
        leaks = _readers_outside(inside, node, users)
        if not inside & taken and all(dominated and _ends_in(u, node, users) for u in leaks):
            groups[node] = Group(matched, inside)
            taken |= inside
    return groups


def _readers_outside(
    inside: frozenset[Expr], root: Expr, users: Mapping[Expr, list[Expr]]
) -> Iterator[Expr]:
    return (u for e in inside if e is not root for u in users[e] if u not in inside)


def _ends_in(node: Expr, root: Expr, users: Mapping[Expr, list[Expr]]) -> bool:
    """Whether all that reads a node, and what reads that, leads to `root`."""
    seen = {root, node}
    stack = [node]
    while stack:
        readers = users.get(stack.pop())
        if not readers:
            return False
        new = [r for r in readers if r not in seen]
        seen.update(new)
        stack += new
    return True


def wrap_groups(
    order: Sequence[Expr], groups: Mapping[Expr, Group], attrs: Mapping[str, Any]
) -> Expr:
    """The graph with a function around each group. Parameters in the order in which the pattern names the inputs."""
    done: dict[Expr, Expr] = {}
    for node in order:
        group = groups.get(node)
        if group is None:
            done[node] = with_children(node, tuple(done[c] for c in children(node)))
            continue
        parts = _parts(node, group)
        inputs = _inputs(parts, group)
        params = [Var(f"FunctionVar_{n}", e.checked_type) for n, e in enumerate(inputs)]
        local: dict[Expr, Expr] = dict(zip(inputs, params, strict=True))
        for part in parts:
            local[part] = part
            if not isinstance(part, Function):
                local[part] = with_children(part, tuple(local.get(c, c) for c in children(part)))
        names = [_name(e) for p in parts for e in (post_order(p) if _is_literal(p) else (p,))]
        mark = {MARK: "".join(names), **attrs}
        function = Function(tuple(params), local[node], attrs=mark)
        done[node] = Call(function, tuple(done[e] for e in inputs), span=node.span)
    return done[order[-1]]


def _is_literal(node: Expr) -> bool:
    return isinstance(node, Function)


def _parts(root: Expr, group: Group) -> list[Expr]:
    """The nodes of a group, operands first. A function literal is one, whatever of its body the pattern matched."""
    hidden = {
        e for f in group.inside if isinstance(f, Function) for e in (*f.params, *post_order(f.body))
    }
    return [e for e in post_order(root) if e in group.inside and e not in hidden]


def _inputs(parts: Sequence[Expr], group: Group) -> list[Expr]:
    """What a group reads, as its pattern matched it; what no pattern names (any arguments) behind."""
    own = set(parts)
    read = {
        child: None
        for part in parts
        if not _is_literal(part)
        for child in children(part)
        if child not in own and not isinstance(child, Op | Constant | GlobalVar)
    }
    named = [e for e in group.matched.values() if e in read]
    return list(dict.fromkeys((*named, *read)))


def _name(part: Expr) -> str:
    """What stands for a node in the attribute that says what was matched."""
    match part:
        case Call():
            return f"{part.op.name}_" if isinstance(part.op, Op) else "Call_"
        case TupleGetItem():
            return f"TupleGetItem{part.index}_"
        case Function():
            return "Function"
        case Tuple() | Let() | If() | Match():
            return f"{type(part).__name__}_"
    return ""
