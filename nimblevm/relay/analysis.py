"""Questions about programs, as TVM's relay.analysis answers them: variables, calls, missing match
cases.

All are iterative and visit a node once, however it is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from nimblevm.arguments import explain_arguments
from nimblevm.relay.ir import (
    Call,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Var,
    children,
    free_vars,
    pattern_vars,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import FuncType, Type, TypeVar, parts
from nimblevm.relay.types import free_type_vars as type_vars_of_type
from nimblevm.relay.visitor import post_order

MATCH_STEPS = 200_000
SHOWN_CASES = 8


def _binders(node: Expr) -> tuple[Var, ...]:
    match node:
        case Let(var=var):
            return (var,)
        case Function(params=params):
            return params
        case Match(clauses=clauses):
            return tuple(v for c in clauses for v in pattern_vars(c.lhs))
    return ()


def _variables(expr: Expr) -> Iterator[tuple[Var, bool]]:
    """(variable, whether it is bound here) in the order of TVM: parameters and let variables before what they are of,
    the variables of a pattern before its clause."""
    seen: set[Expr] = set()
    stack: list[Expr | tuple[Var, ...]] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            yield from ((var, True) for var in node)
        elif isinstance(node, Var):
            yield node, False
        elif node not in seen:
            seen.add(node)
            inside: list[Expr | tuple[Var, ...]] = [_binders(node), *children(node)]
            if isinstance(node, Match):
                inside = [node.data]
                for clause in node.clauses:
                    inside += (pattern_vars(clause.lhs), clause.rhs)
            stack.extend(reversed(inside))


def all_vars(expr: Expr) -> tuple[Var, ...]:
    """All variables, bound or used, in the order in which a reader meets them."""
    return tuple(dict.fromkeys(var for var, _ in _variables(expr)))


def bound_vars(expr: Expr) -> tuple[Var, ...]:
    """The variables that `expr` binds, in the order in which a reader meets them."""
    return tuple(dict.fromkeys(var for var, bound in _variables(expr) if bound))


def _types(root: Type) -> Iterator[Type]:
    """A type and what it is made of, each once; the parameters of a function type before the rest of it."""
    seen: set[Type] = set()
    stack = [root]
    while stack:
        found = stack.pop()
        if found not in seen:
            seen.add(found)
            yield found
            own = found.type_params if isinstance(found, FuncType) else ()
            stack.extend(reversed((*own, *parts(found))))


def all_type_vars(expr: Expr | Type) -> tuple[TypeVar, ...]:
    """All type variables that annotations mention or functions bind; of a type those in it."""
    found: dict[TypeVar, None] = {}
    if isinstance(expr, Type):
        return tuple(dict.fromkeys(t for t in _types(expr) if isinstance(t, TypeVar)))
    for node in post_order(expr):
        annotations: list[Type | None] = [v.type_annotation for v in _binders(node)]
        if isinstance(node, Var):
            annotations.append(node.type_annotation)
        elif isinstance(node, Function):
            found.update(dict.fromkeys(node.type_params))
            annotations.append(node.ret_type)
        elif isinstance(node, Call):
            annotations.extend(node.type_args)
        for annotation in annotations:
            if annotation is not None:
                found.update(dict.fromkeys(type_vars_of_type(annotation)))
    return tuple(found)


def bound_type_vars(expr: Expr | Type) -> tuple[TypeVar, ...]:
    """The type variables that functions in `expr` bind; of a type those that function types in it bind."""
    if isinstance(expr, Type):
        binders = (t.type_params for t in _types(expr) if isinstance(t, FuncType))
    else:
        binders = (n.type_params for n in post_order(expr) if isinstance(n, Function))
    return tuple(dict.fromkeys(var for params in binders for var in params))


def free_type_vars(expr: Expr | Type) -> tuple[TypeVar, ...]:
    """The type variables that `expr`, or a type, mentions and nothing in it binds."""
    if isinstance(expr, Type):
        return tuple(type_vars_of_type(expr))
    bound = set(bound_type_vars(expr))
    return tuple(v for v in all_type_vars(expr) if v not in bound)


def global_calls(expr: Expr) -> tuple[GlobalVar, ...]:
    """The globals that `expr` refers to, in order of first use."""
    return tuple(dict.fromkeys(n for n in post_order(expr) if isinstance(n, GlobalVar)))


# --- missing cases of match ---------------------------------------------------------------------

# A row is a linked list of the patterns that are still to be matched: (first, rest) or None.
Row = tuple[Pattern, "Row"] | None
# What was decided on the way, the last decision first: a shape with its number of fields.
Trail = tuple[Constructor | int | None, "Trail"] | None

_WILDCARD = PatternWildcard()


def unmatched_cases(
    match: Match, module: IRModule | None = None, limit: int = SHOWN_CASES
) -> list[Pattern]:
    """Patterns of values that no clause of `match` matches, at most `limit`; [] if it is complete.

    Maranget's usefulness ("Warnings for pattern matching", 2007) over an explicit stack. A match
    that takes more than MATCH_STEPS steps counts as incomplete, with a wildcard as the missing
    case.
    """
    found: list[Pattern] = []
    rows: list[Row] = [(c.lhs, None) for c in match.clauses]
    stack: list[tuple[list[Row], int, Trail]] = [(rows, 1, None)]
    steps = 0
    while stack and len(found) < limit:
        rows, columns, trail = stack.pop()
        steps += 1 + len(rows)
        if steps > MATCH_STEPS:
            return [*found, _WILDCARD]
        if not rows:
            for _ in range(columns):
                trail = (None, trail)
            found.append(_witness(trail))
        elif columns:
            stack.extend(reversed(list(_specialise(rows, columns, trail, module))))
    return found


def _specialise(
    rows: list[Row], columns: int, trail: Trail, module: IRModule | None
) -> Iterator[tuple[list[Row], int, Trail]]:
    """The sub-problems for the shapes that a value in the first column can have."""
    heads = {}
    width: int | None = None
    for row in rows:
        assert row is not None
        if isinstance(row[0], PatternConstructor):
            heads[row[0].constructor.tag] = row[0].constructor
        elif isinstance(row[0], PatternTuple):
            width = len(row[0].patterns)
    if width is not None:
        yield _with_fields(rows, width, None), columns - 1 + width, (width, trail)
    elif not heads:
        yield _with_fields(rows, 0, None), columns - 1, (None, trail)
    else:
        by_tag, others = _by_tag(rows, heads)
        for constructor in _constructors(heads, module):
            arity = len(constructor.inputs)
            if constructor.tag in heads:
                below = _with_fields(by_tag[constructor.tag], arity, constructor.tag)
                yield below, columns - 1 + arity, (constructor, trail)
            else:
                below = _with_fields(others, 0, None)
                trailing: Trail = (constructor, trail)
                for _ in range(arity):
                    trailing = (None, trailing)
                yield below, columns - 1, trailing


def _by_tag(rows: list[Row], heads: Iterable[int]) -> tuple[dict[int, list[Row]], list[Row]]:
    """The rows that a value of each constructor may match, and those that any value may. One walk:
    a match may have a clause for each of a thousand constructors.
    """
    by_tag: dict[int, list[Row]] = {tag: [] for tag in heads}
    others: list[Row] = []
    for row in rows:
        assert row is not None
        if isinstance(row[0], PatternConstructor):
            by_tag[row[0].constructor.tag].append(row)
            continue
        others.append(row)
        for below in by_tag.values():
            below.append(row)
    return by_tag, others


def _constructors(heads: dict[int, Constructor], module: IRModule | None) -> Iterable[Constructor]:
    header = next(iter(heads.values())).belong_to
    definition = module.type_definitions.get(header) if module is not None else None
    return definition.constructors if definition is not None else heads.values()


def _with_fields(rows: list[Row], arity: int, tag: int | None) -> list[Row]:
    """The rows whose first pattern fits a shape, with that pattern replaced by those of its
    fields.
    """
    result: list[Row] = []
    for row in rows:
        assert row is not None
        first, rest = row
        if isinstance(first, PatternWildcard | PatternVar):
            for _ in range(arity):
                rest = (_WILDCARD, rest)
        elif isinstance(first, PatternTuple) or (
            isinstance(first, PatternConstructor) and first.constructor.tag == tag
        ):
            for part in reversed(first.patterns):
                rest = (part, rest)
        else:
            continue
        result.append(rest)
    return result


def _witness(trail: Trail) -> Pattern:
    """The pattern that a trail of decisions (in pre-order, the last first) describes."""
    done: list[Pattern] = []
    while trail is not None:
        shape, trail = trail
        if shape is None:
            done.append(_WILDCARD)
            continue
        count = shape if isinstance(shape, int) else len(shape.inputs)
        fields = tuple(reversed(done[len(done) - count :]))
        del done[len(done) - count :]
        done.append(
            PatternTuple(fields) if isinstance(shape, int) else PatternConstructor(shape, fields)
        )
    return done[0]


def _plain(var: Var) -> str:
    return f"%{var.name_hint}"


def pattern_text(root: Pattern, binder: Callable[[Var], str] = _plain) -> str:
    """A pattern as Relay text; binder: what stands for a variable."""
    out: list[str] = []
    stack: list[Pattern | str] = [root]
    while stack:
        item = stack.pop()
        match item:
            case str():
                out.append(item)
            case PatternWildcard():
                out.append("_")
            case PatternVar(var=var):
                out.append(binder(var))
            case PatternConstructor(constructor=constructor, patterns=parts):
                out.append(constructor.name_hint)
                if parts:
                    stack.extend(_bracketed(parts, ")"))
            case PatternTuple(patterns=parts):
                stack.extend(_bracketed(parts, ",)" if len(parts) == 1 else ")"))
            case _:
                raise TypeError(f"unknown pattern {type(item).__name__}")
    return "".join(out)


def _bracketed(patterns: tuple[Pattern, ...], end: str) -> list[Pattern | str]:
    """`(p, q)` in pieces, the last first."""
    pieces: list[Pattern | str] = [end]
    for position in range(len(patterns) - 1, -1, -1):
        pieces.append(patterns[position])
        if position:
            pieces.append(", ")
    return [*pieces, "("]


__all__ = [
    "all_type_vars", "all_vars", "bound_type_vars", "bound_vars", "free_type_vars", "free_vars",
    "global_calls", "pattern_text", "unmatched_cases",
]  # fmt: skip

explain_arguments(globals(), __all__)
