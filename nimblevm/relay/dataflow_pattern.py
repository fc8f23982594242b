"""Patterns over expression graphs: match, rewrite, partition. Names and meaning as in TVM's relay.dataflow_pattern.

    x, w = wildcard(), wildcard()
    pattern = is_op("nn.relu")(is_op("nn.dense")(x, w) + wildcard())
    pattern.match(expr);  rewrite(callback, expr);  pattern.partition(expr)

A pattern object that occurs twice must match the same node twice. Calls of add and multiply match in both orders. The
matcher recurses on the depth of patterns, which people write; walks over expressions are iterative.
Source: "Relay pattern language", TVM RFC of 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nimblevm.arguments import explain_arguments, explained_constructor, shown
from nimblevm.errors import CompileError, InvalidInputType
from nimblevm.relay.infer_type import infer_expr
from nimblevm.relay.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    children,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op, get
from nimblevm.relay.structural import structural_equal
from nimblevm.relay.types import TensorType, Type
from nimblevm.relay.visitor import post_order, with_children

COMMUTATIVE = frozenset(("add", "multiply"))
MAX_ROUNDS = 100


class Matcher:
    """The bindings of one attempt; `bindings` maps patterns to the nodes that they matched."""

    def __init__(self) -> None:
        self.bindings: dict[DFPattern, Expr] = {}
        self.types: dict[Expr, Type] = {}

    def match(self, pattern: DFPattern, expr: Expr) -> bool:
        """Match and bind; on failure the bindings are as before."""
        if not isinstance(pattern, DFPattern):
            raise InvalidInputType(f"a part of a pattern must be a pattern, not {shown(pattern)}")
        bound = self.bindings.get(pattern)
        if bound is not None:
            return bound is expr
        before = dict(self.bindings)
        if pattern.matches(expr, self):
            self.bindings[pattern] = expr
            return True
        self.bindings = before
        return False

    def all(self, pairs: Iterable[tuple[DFPattern, Expr]]) -> bool:
        before = dict(self.bindings)
        if all(self.match(p, e) for p, e in pairs):
            return True
        self.bindings = before
        return False

    def type_of(self, expr: Expr) -> Type | None:
        if expr.checked_type is not None:
            return expr.checked_type
        if expr not in self.types:
            self.types[expr] = infer_expr(expr).checked_type or TensorType(())
        return self.types[expr]


class DFPattern:
    """Base of patterns. Operators build patterns: p(x, y), p + q, p | q."""

    inner = (
        False  # whether what it matches is computed by the matched subgraph (not an input of it)
    )

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        raise NotImplementedError

    def __call__(self, *args: Any) -> CallPattern:
        """Matches calls of what this matches: p(x, y) with arguments that these match, p(None) with any."""
        return CallPattern(self, None if args == (None,) else args)

    def __or__(self, other: DFPattern) -> AltPattern:
        return AltPattern(self, other)

    def __add__(self, other: DFPattern) -> CallPattern:
        return is_op("add")(self, other)

    def __sub__(self, other: DFPattern) -> CallPattern:
        return is_op("subtract")(self, other)

    def __mul__(self, other: DFPattern) -> CallPattern:
        return is_op("multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> CallPattern:
        return is_op("divide")(self, other)

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        return AttrPattern(self, attrs)

    def has_type(self, type_: Type) -> TypePattern:
        return TypePattern(self, lambda t: structural_equal(t, type_))

    def has_dtype(self, dtype: str) -> TypePattern:
        return TypePattern(self, lambda t: isinstance(t, TensorType) and t.dtype == dtype)

    def has_shape(self, shape: Sequence[Any]) -> TypePattern:
        wanted = tuple(shape)
        return TypePattern(self, lambda t: isinstance(t, TensorType) and t.shape == wanted)

    def optional(self, option: Callable[[DFPattern], DFPattern]) -> AltPattern:
        """This pattern, or `option` of it."""
        return AltPattern(option(self), self)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """This pattern as the end of a region that begins at `parent` and consists of `path` nodes."""
        return DominatorPattern(parent, path or wildcard(), self)

    def match(self, expr: Expr) -> bool:
        """Whether the pattern matches at `expr`."""
        return Matcher().match(self, expr)

    def partition(
        self,
        expr: Expr,
        attrs: Mapping[str, Any] | None = None,
        check: Callable[[Expr], bool] = lambda _: True,
    ) -> Expr:
        """`expr` with every separate match wrapped in a function with the attribute PartitionedFromPattern."""
        return partition(self, expr, attrs, check)


@explained_constructor
class WildcardPattern(DFPattern):
    """Matches everything."""

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        return True


@explained_constructor
class ExprPattern(DFPattern):
    """Matches one given expression (operators by identity, others structurally)."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        return expr is self.expr or (not isinstance(expr, Op) and structural_equal(expr, self.expr))


@explained_constructor
class VarPattern(DFPattern):
    """Matches a variable, of a name if one is given."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        return isinstance(expr, Var) and self.name in ("", expr.name_hint)


@explained_constructor
class ConstantPattern(DFPattern):
    """Matches a constant."""

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        return isinstance(expr, Constant)


@explained_constructor
class CallPattern(DFPattern):
    """Matches a call whose operator and arguments match; `args` None: any arguments."""

    inner = True

    def __init__(self, op: DFPattern, args: Sequence[DFPattern] | None) -> None:
        self.op = op
        self.args = None if args is None else tuple(args)

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        if not isinstance(expr, Call) or not matcher.match(self.op, expr.op):
            return False
        if self.args is None:
            return True
        if len(self.args) != len(expr.args):
            return False
        if matcher.all(zip(self.args, expr.args, strict=True)):
            return True
        swap = isinstance(expr.op, Op) and expr.op.name in COMMUTATIVE
        return swap and matcher.all(zip(self.args, reversed(expr.args), strict=True))


@explained_constructor
class TuplePattern(DFPattern):
    """Matches a tuple whose fields match; `fields` None: any."""

    inner = True

    def __init__(self, fields: Sequence[DFPattern] | None) -> None:
        self.fields = fields

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        if not isinstance(expr, Tuple):
            return False
        if self.fields is None:
            return True
        same = len(self.fields) == len(expr.fields)
        return same and matcher.all(zip(self.fields, expr.fields, strict=True))


@explained_constructor
class TupleGetItemPattern(DFPattern):
    """Matches field `index` of a tuple that matches; None: any field."""

    inner = True

    def __init__(self, tuple_: DFPattern, index: int | None = None) -> None:
        self.tuple = tuple_
        self.index = index

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        if not isinstance(expr, TupleGetItem) or self.index not in (None, expr.index):
            return False
        return matcher.match(self.tuple, expr.tuple_value)


@explained_constructor
class IfPattern(DFPattern):
    """Matches a conditional whose parts match."""

    inner = True

    def __init__(self, cond: DFPattern, true: DFPattern, false: DFPattern) -> None:
        self.parts = (cond, true, false)

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        return isinstance(expr, If) and matcher.all(zip(self.parts, children(expr), strict=True))


@explained_constructor
class FunctionPattern(DFPattern):
    """Matches a function whose parameters and body match; `params` None: any parameters."""

    inner = True

    def __init__(self, params: Sequence[DFPattern] | None, body: DFPattern) -> None:
        self.params, self.body = params, body

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        if not isinstance(expr, Function):
            return False
        parts = [(self.body, expr.body)]
        if self.params is not None:
            if len(self.params) != len(expr.params):
                return False
            parts = [*zip(self.params, expr.params, strict=True), *parts]
        return matcher.all(parts)


@explained_constructor
class LetPattern(DFPattern):
    """Matches a let whose variable, value and body match."""

    inner = True

    def __init__(self, var: DFPattern, value: DFPattern, body: DFPattern) -> None:
        self.parts = (var, value, body)

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        if not isinstance(expr, Let):
            return False
        return matcher.all(zip(self.parts, (expr.var, expr.value, expr.body), strict=True))


@explained_constructor
class AltPattern(DFPattern):
    """Matches what one of two patterns matches; the left one is tried first."""

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left, self.right = left, right

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        return matcher.match(self.left, expr) or matcher.match(self.right, expr)


@explained_constructor
class AttrPattern(DFPattern):
    """Matches what a pattern matches if attributes have given values: of a call, a function or an operator record."""

    def __init__(self, pattern: DFPattern, attrs: Mapping[str, Any]) -> None:
        self.pattern, self.attrs = pattern, dict(attrs)

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        if not matcher.match(self.pattern, expr):
            return False
        return all(_same(_attribute(expr, name), value) for name, value in self.attrs.items())


@explained_constructor
class TypePattern(DFPattern):
    """Matches what a pattern matches if its type passes a test."""

    def __init__(self, pattern: DFPattern, test: Callable[[Type], bool]) -> None:
        self.pattern, self.test = pattern, test

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        if isinstance(expr, Op) or not matcher.match(self.pattern, expr):
            return False
        type_ = matcher.type_of(expr)
        return type_ is not None and self.test(type_)


@explained_constructor
class DominatorPattern(DFPattern):
    """Matches `child` if all that it is computed from leads through `path` nodes to one node that `parent` matches.

    Variables and constants on the way are inputs of the region.
    """

    def __init__(self, parent: DFPattern, path: DFPattern, child: DFPattern) -> None:
        self.parent, self.path, self.child = parent, path, child

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        if not matcher.match(self.child, expr):
            return False
        found: Expr | None = None
        seen: set[Expr] = set()
        passed: list[Expr] = []
        stack = [c for c in children(expr) if not isinstance(c, Op)]
        while stack:
            node = stack.pop()
            if node in seen or isinstance(node, Var | Constant | GlobalVar):
                continue
            seen.add(node)
            if matcher.match(self.parent, node):
                found = node
                continue
            if not Matcher().match(self.path, node):
                return False
            passed.append(node)
            stack.extend(c for c in children(node) if not isinstance(c, Op))
        if found is not None:
            matcher.bindings.update((_Passed(), node) for node in passed)
        return found is not None


class _Passed(DFPattern):
    """Stands for a node on the way of a DominatorPattern, which is inside of the match."""

    inner = True


_MISSING = object()


def _attribute(expr: Expr, name: str) -> Any:
    if isinstance(expr, Call):
        return getattr(expr.attrs, name, _MISSING)
    if isinstance(expr, Function):
        return expr.attrs.get(name, _MISSING)
    if isinstance(expr, Op):
        return int(expr.pattern) if name == "TOpPattern" else getattr(expr, name, _MISSING)
    return _MISSING


def _same(have: Any, want: Any) -> bool:
    if isinstance(want, list | tuple) and isinstance(have, list | tuple):
        return len(have) == len(want) and all(_same(h, w) for h, w in zip(have, want, strict=True))
    return have is not _MISSING and bool(np.all(have == want))


# --- the names that users call ------------------------------------------------------------------------


def wildcard() -> WildcardPattern:
    """Matches everything."""
    return WildcardPattern()


def is_op(name: str) -> ExprPattern:
    """Matches an operator; call it with patterns of the arguments. UnknownOperator if there is none of that name."""
    return ExprPattern(get(name))


def is_expr(expr: Expr) -> ExprPattern:
    """Matches a given expression."""
    return ExprPattern(expr)


def is_var(name: str = "") -> VarPattern:
    """Matches a variable."""
    return VarPattern(name)


def is_constant() -> ConstantPattern:
    """Matches a constant."""
    return ConstantPattern()


def is_tuple(fields: Sequence[DFPattern] | None = None) -> TuplePattern:
    """Matches a tuple."""
    return TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """Matches a field of a tuple."""
    return TupleGetItemPattern(tuple_value, index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> IfPattern:
    """Matches a conditional."""
    return IfPattern(cond, true_branch, false_branch)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> LetPattern:
    """Matches a let."""
    return LetPattern(var, value, body)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """Matches attributes of anything, or of what `pattern` matches."""
    return AttrPattern(pattern or wildcard(), attrs)


def has_type(type_: Type, pattern: DFPattern | None = None) -> TypePattern:
    """Matches by type."""
    return (pattern or wildcard()).has_type(type_)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> TypePattern:
    """Matches tensors by dtype."""
    return (pattern or wildcard()).has_dtype(dtype)


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> TypePattern:
    """Matches tensors by shape."""
    return (pattern or wildcard()).has_shape(shape)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DominatorPattern:
    """See DominatorPattern."""
    return DominatorPattern(parent, path, child)


def match(pattern: DFPattern, expr: Expr) -> bool:
    """Whether a pattern matches at `expr`."""
    return pattern.match(expr)


class DFPatternCallback:
    """A rewriting rule: set `self.pattern`, override `callback`.

    require_type   infer types before each match, so that `callback` sees checked_type
    rewrite_once   apply the rule in one pass instead of until nothing changes
    """

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.pattern: DFPattern = wildcard()
        self.require_type = require_type
        self.rewrite_once = rewrite_once

    def rewrite(self, expr: Expr) -> Expr:
        """Apply this rule to `expr`."""
        return rewrite(self, expr)

    def callback(self, pre: Expr, post: Expr, node_map: Mapping[DFPattern, list[Expr]]) -> Expr:
        """The replacement of a match.

        pre: the node as it was; post: with its parts already rewritten; node_map[p][0]: what pattern p matched.
        """
        raise NotImplementedError(f"{type(self).__name__} must override callback")


def rewrite(
    callbacks: DFPatternCallback | Sequence[DFPatternCallback],
    expr: Expr,
    mod: IRModule | None = None,
) -> Expr:
    """Apply rules from the leaves up until nothing changes (rules with rewrite_once: one pass).

    Raises CompileError if that takes more than 100 rounds: the rules undo each other or grow the expression for ever.
    """
    rules = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    for rule in rules:
        for _ in range(MAX_ROUNDS):
            new = _round(rule, infer_expr(expr, mod) if rule.require_type else expr)
            done = rule.rewrite_once or new is expr or structural_equal(new, expr)
            expr = new
            if done:
                break
        else:
            raise CompileError(
                f"{type(rule).__name__} still changes the expression after {MAX_ROUNDS} rounds"
            )
    return expr


def _round(rule: DFPatternCallback, expr: Expr) -> Expr:
    done: dict[Expr, Expr] = {}
    for node in post_order(expr):
        post = with_children(node, tuple(done[child] for child in children(node)))
        matcher = Matcher()
        if not isinstance(node, Op) and matcher.match(rule.pattern, post):
            post = rule.callback(node, post, {p: [e] for p, e in matcher.bindings.items()})
        done[node] = post
    return done[expr]


def partition(
    pattern: DFPattern,
    expr: Expr,
    attrs: Mapping[str, Any] | None = None,
    check: Callable[[Expr], bool] = lambda _: True,
) -> Expr:
    """`expr` with every match wrapped: (fn (inputs, PartitionedFromPattern="...") { match })(inputs).

    Matches don't overlap (those nearer to the result are taken first), pass `check`, and nothing inside of one but its
    result is used outside of it.
    """
    order = post_order(expr)
    users: dict[Expr, set[Expr]] = {}
    for node in order:
        for child in children(node):
            users.setdefault(child, set()).add(node)
    groups: dict[Expr, set[Expr]] = {}
    taken: set[Expr] = set()
    for node in reversed(order):
        if node in taken or isinstance(node, Op):
            continue
        matcher = Matcher()
        if not matcher.match(pattern, node) or not check(node):
            continue
        inside = {e for p, e in matcher.bindings.items() if p.inner} | {node}
        closed = all(users[e] <= inside for e in inside if e is not node)
        if closed and not inside & taken:
            groups[node] = inside
            taken |= inside
    return _wrap(order, groups, dict(attrs or {}))


def _wrap(order: Sequence[Expr], groups: Mapping[Expr, set[Expr]], attrs: dict[str, Any]) -> Expr:
    done: dict[Expr, Expr] = {}
    for node in order:
        inside = groups.get(node)
        if inside is None:
            done[node] = with_children(node, tuple(done[c] for c in children(node)))
            continue
        params: dict[Expr, Var] = {}
        local: dict[Expr, Expr] = {}
        names: list[str] = []
        for part in post_order(node):
            if part not in inside:
                continue
            new: list[Expr] = []
            for child in children(part):
                if child in inside:
                    new.append(local[child])
                elif isinstance(child, Op | Constant | GlobalVar):
                    new.append(child)
                else:
                    if child not in params:
                        params[child] = Var(f"FunctionVar_{len(params)}", child.checked_type)
                    new.append(params[child])
            local[part] = with_children(part, tuple(new))
            if isinstance(part, Call) and isinstance(part.op, Op):
                names.append(part.op.name)
        mark = {"PartitionedFromPattern": "".join(f"{name}_" for name in names), **attrs}
        function = Function(tuple(params.values()), local[node], attrs=mark)
        done[node] = Call(function, tuple(done[e] for e in params), span=node.span)
    return done[order[-1]]


__all__ = [
    "AltPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFPattern", "DFPatternCallback",
    "DominatorPattern", "ExprPattern", "FunctionPattern", "IfPattern", "LetPattern", "TupleGetItemPattern",
    "TuplePattern", "TypePattern", "VarPattern", "WildcardPattern", "dominates", "has_attr", "has_dtype", "has_shape",
    "has_type", "is_constant", "is_expr", "is_if", "is_let", "is_op", "is_tuple", "is_tuple_get_item", "is_var",
    "match", "partition", "rewrite", "wildcard",
]  # fmt: skip

explain_arguments(globals(), __all__)
