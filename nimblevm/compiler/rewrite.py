"""Rebuilding expressions without recursion: what the passes share.

`Rewriter` walks an expression in evaluation order, operands first, visits each node of the DAG
once, and rebuilds only what changed. A rebuilt node keeps span and checked_type: passes preserve
types, so that inference runs once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar as PyTypeVar

from nimblevm.relay import dims, visitor
from nimblevm.relay.dims import Dim, DimExpr, DimVar
from nimblevm.relay.ir import (
    Call,
    Expr,
    Function,
    If,
    Leaf,
    Let,
    Match,
    Span,
    Tuple,
    Var,
    children,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import registry
from nimblevm.relay.types import Type, free_dims, scalar_type

E = PyTypeVar("E", bound=Expr)


def typed(node: E, type_: Type | None) -> E:
    """`node`, just built and not yet shared, with its type filled in."""
    object.__setattr__(node, "checked_type", type_)
    return node


def located(node: E, span: Span | None) -> E:
    """`node`, just built and not yet shared, with its place in the source filled in."""
    object.__setattr__(node, "span", span)
    return node


def type_of(node: Expr) -> Type:
    """The inferred type; an internal error if inference has not run."""
    if node.checked_type is None:
        raise ValueError(f"{type(node).__name__} without a type: {node!r}")
    return node.checked_type


def fresh_var(name: str, type_: Type) -> Var:
    return Var(name, type_, checked_type=type_)


def op_call(
    name: str, args: tuple[Expr, ...], type_: Type, span: Span | None = None, **attrs: object
) -> Call:
    """A call of a registered operator, typed."""
    op = registry.get(name)
    made = op.attrs(**attrs) if op.attrs is not None else None
    return Call(op, args, made, span=span, checked_type=type_)


def dim_value(dim: Dim) -> Call:
    """The value of a dim as a rank-0 int64."""
    return op_call("vm.dim_value", (), scalar_type("int64"), dim=dim)


def attr_dims(value: Expr) -> tuple[DimVar, ...]:
    """The dim variables in the attributes of an operator call."""
    attrs = value.attrs if isinstance(value, Call) else None
    if attrs is None or not dataclasses.is_dataclass(attrs):
        return ()
    found: dict[DimVar, None] = {}
    for entry in dataclasses.fields(attrs):
        item = getattr(attrs, entry.name)
        if isinstance(item, Type):
            found.update(dict.fromkeys(free_dims(item)))
        stack = [item]
        while stack:
            part = stack.pop()
            if isinstance(part, tuple):
                stack.extend(reversed(part))
            elif isinstance(part, DimExpr):
                found.update(dict.fromkeys(dims.free_vars(part)))
    return tuple(found)


def is_primitive(node: Expr) -> bool:
    """A fused group: a leaf for every pass after fuse_ops."""
    return isinstance(node, Function) and "Primitive" in node.attrs


def with_children(node: Expr, new: tuple[Expr, ...]) -> Expr:
    """`node` with other subexpressions of the same types, in the order of `ir.children`; the same object if none
    changed.
    """
    return visitor.with_children(node, new, keep_type=True)


class Rewriter:
    """Operands-first rebuilding of a DAG. Subclasses override `visit`, `leaf`, `bind`, `enter`."""

    def __init__(self, memo: Mapping[Expr, Expr] | None = None) -> None:
        self.memo: dict[Expr, Expr] = dict(memo or {})

    def leaf(self, node: Expr) -> Expr:
        """The replacement of a variable, constant, operator, global, constructor or fused group."""
        return node

    def enter(self, node: Expr) -> bool:
        """Called before a node's operands; False keeps the node as it is, unvisited inside."""
        return True

    def bind(self, let: Let, value: Expr) -> None:
        """Called between a let's (rebuilt) value and its body; may put let.var into `memo`."""

    def visit(self, node: Expr, new: Expr) -> Expr:
        """The replacement of `node`, whose rebuilt form is `new`."""
        return new

    def rewrite(self, root: Expr) -> Expr:
        memo = self.memo
        stack: list[tuple[Expr, int]] = [(root, 0)]
        while stack:
            node, state = stack.pop()
            if state == 0:
                if node in memo:
                    continue
                if isinstance(node, Leaf) or is_primitive(node):
                    memo[node] = self.leaf(node)
                elif not self.enter(node):
                    memo[node] = node
                elif isinstance(node, Let):
                    stack += ((node, 1), (node.value, 0))
                else:
                    stack.append((node, 2))
                    stack.extend((child, 0) for child in reversed(children(node)))
            elif state == 1 and isinstance(node, Let):
                self.bind(node, memo[node.value])
                stack += ((node, 2), (node.body, 0))
            else:
                new = with_children(node, tuple([memo[child] for child in children(node)]))
                memo[node] = self.visit(node, new)
        return memo[root]


class TupleRewriter(Rewriter):
    """A rewriter that sees through the names of tuples."""

    def __init__(self) -> None:
        super().__init__()
        self._tuples: dict[Expr, Tuple] = {}

    def bind(self, let: Let, value: Expr) -> None:
        if isinstance(value, Tuple):
            self._tuples[let.var] = value

    def tuple_of(self, expr: Expr) -> Tuple | None:
        """The tuple that a rebuilt expression is, or names by a let that has been passed."""
        return expr if isinstance(expr, Tuple) else self._tuples.get(expr)


def postorder(root: Expr) -> list[Expr]:
    """Every node of the DAG once, operands first, in evaluation order; fused groups are leaves."""
    return visitor.post_order(root, is_primitive)


def recursive_vars(root: Expr) -> set[Var]:
    """Variables of lets whose own value mentions them. A use before the let's body is one inside the value."""
    found: set[Var] = set()
    open_: set[Var] = set()
    seen: set[Expr] = set()
    stack: list[tuple[Expr, Var | None]] = [(root, None)]
    while stack:
        node, closed = stack.pop()
        if closed is not None:
            open_.discard(closed)
        if isinstance(node, Var):
            if node in open_:
                found.add(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Let):
            open_.add(node.var)
            stack += ((node.body, node.var), (node.value, None))
        elif not isinstance(node, Leaf):
            stack.extend((child, None) for child in reversed(children(node)))
    return found


def let_chain(expr: Expr) -> tuple[list[Let], Expr]:
    """The lets at the head of a block and the expression that ends it."""
    lets: list[Let] = []
    while isinstance(expr, Let):
        lets.append(expr)
        expr = expr.body
    return lets, expr


def blocks(function: Function) -> Iterator[Expr]:
    """The body of an ANF function and every block nested in it (branches, clauses, local
    functions).
    """
    stack: list[Expr] = [function.body]
    while stack:
        block = stack.pop()
        yield block
        lets, tail = let_chain(block)
        for value in (*(let.value for let in lets), tail):
            stack.extend(sub_blocks(value))


def sub_blocks(value: Expr) -> tuple[Expr, ...]:
    """The blocks that hang on a simple expression."""
    match value:
        case If():
            return (value.true_branch, value.false_branch)
        case Match():
            return tuple(c.rhs for c in value.clauses)
        case Function() if not is_primitive(value):
            return (value.body,)
    return ()


def make_lets(bindings: list[tuple[Var, Expr]], tail: Expr) -> Expr:
    """let bindings[0]; ...; tail."""
    for var, value in reversed(bindings):
        tail = Let(var, value, tail, span=value.span, checked_type=tail.checked_type)
    return tail


def map_functions(mod: IRModule, change: Callable[[Function], Function]) -> IRModule:
    """A module with every global function replaced; the same module if nothing changed."""
    result: IRModule | None = None
    for var, function in mod.functions.items():
        new = change(function)
        if new is not function:
            result = result or mod.shallow_copy()
            result[var] = new
    return result or mod


def with_body(function: Function, body: Expr) -> Function:
    """`function` with another body of the same type."""
    return function if body is function.body else dataclasses.replace(function, body=body)
