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

from nimblevm.arguments import explain_arguments, explained_constructor, shown
from nimblevm.errors import CompileError, InvalidInputType
from nimblevm.relay.infer_type import infer_expr
from nimblevm.relay.ir import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Leaf,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    children,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op, get
from nimblevm.relay.pattern_attrs import has_attribute
from nimblevm.relay.pattern_groups import find_groups, wrap_groups
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
        return TypePattern(self, type_)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        return ShapePattern(self, shape)

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
    """Matches everything, or what it is redirected to, which may have this pattern in it."""

    redirected: DFPattern | None = None

    def redirect_to(self, pattern: DFPattern) -> None:
        """Match what `pattern` matches from now on."""
        self.redirected = pattern

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        return self.redirected is None or matcher.match(self.redirected, expr)


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

    def __init__(self, cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> None:
        self.cond, self.true_branch, self.false_branch = cond, true_branch, false_branch

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        parts = (self.cond, self.true_branch, self.false_branch)
        return isinstance(expr, If) and matcher.all(zip(parts, children(expr), strict=True))


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
        self.var, self.value, self.body = var, value, body

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        if not isinstance(expr, Let):
            return False
        parts = (self.var, self.value, self.body)
        return matcher.all(zip(parts, (expr.var, expr.value, expr.body), strict=True))


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
        return all(has_attribute(expr, name, value) for name, value in self.attrs.items())


class _Typed(DFPattern):
    """Matches what a pattern matches if its type passes a test."""

    pattern: DFPattern

    def passes(self, type_: Type) -> bool:
        raise NotImplementedError

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        if isinstance(expr, Op) or not matcher.match(self.pattern, expr):
            return False
        type_ = matcher.type_of(expr)
        return type_ is not None and self.passes(type_)


@explained_constructor
class TypePattern(_Typed):
    """Matches what a pattern matches if it has a given type."""

    def __init__(self, pattern: DFPattern, ttype: Type) -> None:
        self.pattern, self.type = pattern, ttype

    def passes(self, type_: Type) -> bool:
        return structural_equal(type_, self.type)


@explained_constructor
class DataTypePattern(_Typed):
    """Matches what a pattern matches if it is a tensor of a given dtype."""

    def __init__(self, pattern: DFPattern, dtype: str) -> None:
        self.pattern, self.dtype = pattern, dtype

    def passes(self, type_: Type) -> bool:
        return isinstance(type_, TensorType) and type_.dtype == self.dtype


@explained_constructor
class ShapePattern(_Typed):
    """Matches what a pattern matches if it is a tensor of a given shape."""

    def __init__(self, pattern: DFPattern, shape: Sequence[Any]) -> None:
        self.pattern, self.shape = pattern, tuple(shape)

    def passes(self, type_: Type) -> bool:
        return isinstance(type_, TensorType) and type_.shape == self.shape


@explained_constructor
class DominatorPattern(DFPattern):
    """Matches `child` if all that it is computed from leads through `path` nodes to one node that `parent` matches.

    Variables and constants on the way are inputs of the region, but nothing on the way is computed of these alone.
    """

    def __init__(self, parent: DFPattern, path: DFPattern, child: DFPattern) -> None:
        self.parent, self.path, self.child = parent, path, child

    def matches(self, expr: Expr, matcher: Matcher) -> bool:
        if not matcher.match(self.child, expr):
            return False
        found: Expr | None = None
        seen: set[Expr] = set()
        passed: list[Expr] = []
        stack = _computed(expr)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if matcher.match(self.parent, node):
                found = node
                continue
            behind = _computed(node)
            if not behind or not Matcher().match(self.path, node):
                return False
            passed.append(node)
            stack += behind
        if found is not None:
            matcher.bindings.update((_Passed(), node) for node in passed)
        return found is not None


def _computed(node: Expr) -> list[Expr]:
    """The parts of a node that are no leaves."""
    return [c for c in children(node) if not isinstance(c, Leaf)]


class _Passed(DFPattern):
    """Stands for a node on the way of a DominatorPattern, which is inside of the match."""

    inner = True


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


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """Matches tensors by dtype."""
    return (pattern or wildcard()).has_dtype(dtype)


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> ShapePattern:
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
    rewrite_once   once the rule changed something, don't apply it again
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
    """Apply rules in turns until none changes anything (rules with rewrite_once: until they changed something).

    A rule sees the whole graph and its matches don't overlap: those nearer to the result are taken first. Raises
    CompileError if that takes more than 100 rounds: the rules undo each other or grow the expression for ever.
    """
    rules = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    finished: set[DFPatternCallback] = set()
    busy = ""
    for _ in range(MAX_ROUNDS):
        before = expr
        for rule in rules:
            if rule in finished:
                continue
            new = _round(rule, infer_expr(expr, mod) if rule.require_type else expr)
            if new is not expr and not structural_equal(new, expr):
                busy = type(rule).__name__
                if rule.rewrite_once:
                    finished.add(rule)
            expr = new
        if expr is before or structural_equal(expr, before):
            return expr
    raise CompileError(f"{busy} still changes the expression after {MAX_ROUNDS} rounds")


def _round(rule: DFPatternCallback, expr: Expr) -> Expr:
    order = post_order(expr)
    groups = find_groups(order, lambda node: _matched(rule.pattern, node), dominated=True)
    if not groups:
        return expr
    done: dict[Expr, Expr] = {}
    for node in order:
        post = done[node] = with_children(node, tuple(done[child] for child in children(node)))
        if node in groups:
            matched = groups[node].matched
            done[node] = rule.callback(
                node, post, {p: [done.get(e, e)] for p, e in matched.items()}
            )
    return done[expr]


def _matched(pattern: DFPattern, node: Expr) -> dict[DFPattern, Expr] | None:
    matcher = Matcher()
    return matcher.bindings if matcher.match(pattern, node) else None


def partition(
    pattern: DFPattern,
    expr: Expr,
    attrs: Mapping[str, Any] | None = None,
    check: Callable[[Expr], bool] = lambda _: True,
) -> Expr:
    """`expr` with every match wrapped: (fn (inputs, PartitionedFromPattern="...") { match })(inputs).

    Matches don't overlap (those nearer to the result are taken first), pass `check`, and nothing inside of one but its
    result is used outside of it. Inputs are in the order in which the pattern names them; constants are no inputs.
    """
    order = post_order(expr)

    def attempt(node: Expr) -> dict[DFPattern, Expr] | None:
        matched = _matched(pattern, node)
        return matched if matched is not None and check(node) else None

    return wrap_groups(order, find_groups(order, attempt, dominated=False), attrs or {})


__all__ = [
    "AltPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFPattern", "DFPatternCallback",
    "DataTypePattern", "DominatorPattern", "ExprPattern", "FunctionPattern", "IfPattern", "LetPattern",
    "ShapePattern", "TupleGetItemPattern", "TuplePattern", "TypePattern", "VarPattern", "WildcardPattern",
    "dominates", "has_attr", "has_dtype", "has_shape", "has_type", "is_constant", "is_expr", "is_if", "is_let",
    "is_op", "is_tuple", "is_tuple_get_item", "is_var", "match", "partition", "rewrite", "wildcard",
]  # fmt: skip

explain_arguments(globals(), __all__)
