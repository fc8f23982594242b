"""Walks over expressions that never use Python's stack for depth, and visit every shared node once.

`post_order`, `post_order_visit` and `rewrite` serve most passes. ExprVisitor and ExprMutator have TVM's method names:
a subclass overrides `visit_call` and its kin and may call `self.visit(child)` in them as in TVM. The difference: all
children of a node are visited before its own method is called, so that such a call finds the child's result in
`memo_map`. A subclass that must not descend somewhere, or only later, overrides `operands`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nimblevm.relay.ir import (
    Call,
    Clause,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    Pattern,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    children,
)
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import Type


def post_order(root: Expr, closed: Callable[[Expr], bool] | None = None) -> list[Expr]:
    """Every node reachable from `root` once, children before parents, in evaluation order; leaves too. Nodes that
    `closed` holds for are not entered.
    """
    order: list[Expr] = []
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, finished = stack.pop()
        if finished:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            if closed is not None and closed(node):
                order.append(node)
                continue
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(children(node)) if child not in seen)
    return order


def post_order_visit(expr: Expr, fvisit: Callable[[Expr], None]) -> None:
    """Call `fvisit` on every node once, children first (TVM's relay.analysis.post_order_visit)."""
    for node in post_order(expr):
        fvisit(node)


def with_children(node: Expr, new: tuple[Expr, ...], *, keep_type: bool = False) -> Expr:
    """`node` with other children, in the order of `ir.children`; `node` itself if all are the same objects.

    Keeps the span. Drops checked_type, which the new children may have changed, unless the caller knows better.
    """
    if all(a is b for a, b in zip(children(node), new, strict=True)):
        return node
    span, type_ = node.span, node.checked_type if keep_type else None
    match node:
        case Call(attrs=attrs, type_args=type_args):
            return Call(new[0], new[1:], attrs, type_args, span=span, checked_type=type_)
        case Let(var=var):
            return Let(var, new[0], new[1], span=span, checked_type=type_)
        case Function(params=params, ret_type=ret, type_params=generic, attrs=attrs):
            return Function(params, new[0], ret, generic, attrs, span=span, checked_type=type_)
        case Tuple():
            return Tuple(new, span=span, checked_type=type_)
        case TupleGetItem(index=index):
            return TupleGetItem(new[0], index, span=span, checked_type=type_)
        case If():
            return If(new[0], new[1], new[2], span=span, checked_type=type_)
        case Match(clauses=clauses, complete=complete):
            arms = tuple(
                c if c.rhs is rhs else Clause(c.lhs, rhs, span=c.span)
                for c, rhs in zip(clauses, new[1:], strict=True)
            )
            return Match(new[0], arms, complete, span=span, checked_type=type_)
        case RefCreate():
            return RefCreate(new[0], span=span, checked_type=type_)
        case RefRead():
            return RefRead(new[0], span=span, checked_type=type_)
        case RefWrite():
            return RefWrite(new[0], new[1], span=span, checked_type=type_)
    raise TypeError(f"unknown expression {type(node).__name__}")


def rewrite(expr: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """Rebuild `expr` from the leaves up: each node, with its children already rewritten, becomes fn(node).

    Binders (parameters, let and pattern variables) are not passed to `fn`.
    """
    done: dict[Expr, Expr] = {}
    for node in post_order(expr):
        done[node] = fn(with_children(node, tuple(done[child] for child in children(node))))
    return done[expr]


class ExprFunctor:
    """Dispatch of `visit(expr)` to visit_call, visit_let, ...; results are memoised by identity in `memo_map`."""

    def __init__(self) -> None:
        self.memo_map: dict[Expr, Any] = {}

    def operands(self, expr: Expr) -> Iterable[Expr]:
        """What is visited before `expr`'s own method: all children. Override to hold some back."""
        return children(expr)

    def visit(self, expr: Expr) -> Any:
        """The result for `expr`. Iterative over `operands`; a method that visits other nodes nests."""
        memo = self.memo_map
        if expr in memo:
            return memo[expr]
        stack: list[tuple[Expr, bool]] = [(expr, False)]
        while stack:
            node, finished = stack.pop()
            if node in memo:
                continue
            if finished:
                memo[node] = self.dispatch(node)
            else:
                stack.append((node, True))
                stack.extend(
                    (c, False) for c in reversed(tuple(self.operands(node))) if c not in memo
                )
        return memo[expr]

    def dispatch(self, expr: Expr) -> Any:
        """Call the method for the kind of `expr`, without looking into the memo."""
        method = _METHODS.get(type(expr))
        if method is None:
            raise TypeError(f"unknown expression {type(expr).__name__}")
        return getattr(self, method)(expr)

    def _unhandled(self, expr: Expr) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no {_METHODS[type(expr)]}")

    def visit_function(self, func: Function) -> Any:
        return self._unhandled(func)

    def visit_let(self, let: Let) -> Any:
        return self._unhandled(let)

    def visit_call(self, call: Call) -> Any:
        return self._unhandled(call)

    def visit_var(self, var: Var) -> Any:
        return self._unhandled(var)

    def visit_global_var(self, var: GlobalVar) -> Any:
        return self._unhandled(var)

    def visit_if(self, node: If) -> Any:
        return self._unhandled(node)

    def visit_tuple(self, tup: Tuple) -> Any:
        return self._unhandled(tup)

    def visit_tuple_getitem(self, node: TupleGetItem) -> Any:
        return self._unhandled(node)

    def visit_op(self, op: Op) -> Any:
        return self._unhandled(op)

    def visit_constant(self, const: Constant) -> Any:
        return self._unhandled(const)

    def visit_constructor(self, constructor: Constructor) -> Any:
        return self._unhandled(constructor)

    def visit_match(self, match: Match) -> Any:
        return self._unhandled(match)

    def visit_ref_create(self, node: RefCreate) -> Any:
        return self._unhandled(node)

    def visit_ref_read(self, node: RefRead) -> Any:
        return self._unhandled(node)

    def visit_ref_write(self, node: RefWrite) -> Any:
        return self._unhandled(node)


_METHODS: dict[type, str] = {
    Function: "visit_function", Let: "visit_let", Call: "visit_call", Var: "visit_var",
    GlobalVar: "visit_global_var", If: "visit_if", Tuple: "visit_tuple",
    TupleGetItem: "visit_tuple_getitem", Op: "visit_op", Constant: "visit_constant",
    Constructor: "visit_constructor", Match: "visit_match", RefCreate: "visit_ref_create",
    RefRead: "visit_ref_read", RefWrite: "visit_ref_write",
}  # fmt: skip


class ExprVisitor(ExprFunctor):
    """Visits every node once. A method may but need not visit the children: they have been visited."""

    def visit_function(self, func: Function) -> Any:
        for param in func.params:
            self.visit(param)
        self.visit(func.body)

    def visit_let(self, let: Let) -> Any:
        self.visit(let.var)
        self.visit(let.value)
        self.visit(let.body)

    def visit_match(self, match: Match) -> Any:
        self.visit(match.data)
        for clause in match.clauses:
            self.visit_pattern(clause.lhs)
            self.visit(clause.rhs)

    def _visit_children(self, expr: Expr) -> Any:
        for child in children(expr):
            self.visit(child)

    def visit_call(self, call: Call) -> Any:
        return self._visit_children(call)

    def visit_if(self, node: If) -> Any:
        return self._visit_children(node)

    def visit_tuple(self, tup: Tuple) -> Any:
        return self._visit_children(tup)

    def visit_tuple_getitem(self, node: TupleGetItem) -> Any:
        return self._visit_children(node)

    def visit_ref_create(self, node: RefCreate) -> Any:
        return self._visit_children(node)

    def visit_ref_read(self, node: RefRead) -> Any:
        return self._visit_children(node)

    def visit_ref_write(self, node: RefWrite) -> Any:
        return self._visit_children(node)

    def visit_var(self, var: Var) -> Any:
        return None

    def visit_global_var(self, var: GlobalVar) -> Any:
        return None

    def visit_op(self, op: Op) -> Any:
        return None

    def visit_constant(self, const: Constant) -> Any:
        return None

    def visit_constructor(self, constructor: Constructor) -> Any:
        return None

    def visit_pattern(self, pattern: Pattern) -> Any:
        """The pattern of a clause; override to see its variables."""

    def visit_type(self, type_: Type) -> Any:
        """Never called by ExprVisitor itself; a place for subclasses, as in TVM."""


class ExprMutator(ExprFunctor):
    """Rebuilds what changed and keeps the rest. Every visit_X returns the new expression.

    Variables that are bound keep their identity unless `visit_var` returns another Var. New nodes keep the span.
    """

    def visit_function(self, func: Function) -> Expr:
        params = tuple(self._binder(param) for param in func.params)
        body = self.visit(func.body)
        if body is func.body and all(a is b for a, b in zip(params, func.params, strict=True)):
            return func
        return Function(params, body, func.ret_type, func.type_params, func.attrs, span=func.span)

    def visit_let(self, let: Let) -> Expr:
        var, value, body = self._binder(let.var), self.visit(let.value), self.visit(let.body)
        if var is let.var and value is let.value and body is let.body:
            return let
        return Let(var, value, body, span=let.span)

    def visit_match(self, match: Match) -> Expr:
        data = self.visit(match.data)
        clauses = tuple(self.visit_clause(clause) for clause in match.clauses)
        if data is match.data and all(a is b for a, b in zip(clauses, match.clauses, strict=True)):
            return match
        return Match(data, clauses, match.complete, span=match.span)

    def visit_clause(self, clause: Clause) -> Clause:
        lhs, rhs = self.visit_pattern(clause.lhs), self.visit(clause.rhs)
        return (
            clause
            if lhs is clause.lhs and rhs is clause.rhs
            else Clause(lhs, rhs, span=clause.span)
        )

    def visit_pattern(self, pattern: Pattern) -> Pattern:
        return pattern

    def _rebuild(self, expr: Expr) -> Expr:
        return with_children(expr, tuple(self.visit(child) for child in children(expr)))

    def visit_call(self, call: Call) -> Expr:
        return self._rebuild(call)

    def visit_if(self, node: If) -> Expr:
        return self._rebuild(node)

    def visit_tuple(self, tup: Tuple) -> Expr:
        return self._rebuild(tup)

    def visit_tuple_getitem(self, node: TupleGetItem) -> Expr:
        return self._rebuild(node)

    def visit_ref_create(self, node: RefCreate) -> Expr:
        return self._rebuild(node)

    def visit_ref_read(self, node: RefRead) -> Expr:
        return self._rebuild(node)

    def visit_ref_write(self, node: RefWrite) -> Expr:
        return self._rebuild(node)

    def visit_var(self, var: Var) -> Expr:
        return var

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return var

    def visit_op(self, op: Op) -> Expr:
        return op

    def visit_constant(self, const: Constant) -> Expr:
        return const

    def visit_constructor(self, constructor: Constructor) -> Expr:
        return constructor

    def _binder(self, var: Var) -> Var:
        """A binder's new variable; a substitution of the variable by something else leaves the binder alone."""
        new = self.visit(var)
        return new if isinstance(new, Var) else var


__all__ = [
    "ExprFunctor", "ExprMutator", "ExprVisitor", "post_order", "post_order_visit", "rewrite", "with_children",
]  # fmt: skip
