"""The nodes of Relay: expressions, patterns, type definitions. module.py holds them together.

Every node is immutable and compared by identity, as in TVM; structural equality is relay/structural.py.
`span` says where the node came from, the last positional argument where TVM's constructor takes one; `checked_type`
is filled by inference, which builds new nodes and never changes old ones. Operators (`Op`, op/registry.py) are leaves
of expressions too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from nimblevm.errors import InvalidInputType
from nimblevm.relay.late import LateArray
from nimblevm.relay.node import Many, Node, SourceName, Span, as_tuples, meant, no_expression
from nimblevm.relay.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    scalar_type,
)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Expr(Node):
    """Base of expressions. `checked_type` is None before inference."""

    checked_type: Type | None = field(default=None, kw_only=True)

    def __call__(self, *args: Expr) -> Call:
        """Call this expression, as TVM allows: `f(x, y)`."""
        return Call(self, tuple(args))

    if TYPE_CHECKING:  # relay/builder.py gives every expression these

        def __add__(self, other: Any) -> Call: ...
        def __neg__(self) -> Call: ...
        def astype(self, dtype: str) -> Call: ...

        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __add__
        __lt__ = __le__ = __gt__ = __ge__ = __add__


def _as_expressions(node: Node, *names: str) -> None:
    """Let what TVM's constructors take for an expression, a TupleWrapper, stand for it in these fields."""
    for name in names:
        value = getattr(node, name)
        if not isinstance(value, Expr):
            found = meant(value)
            if not isinstance(found, Expr):
                place = f"{name} of a {type(node).__name__}"
                raise InvalidInputType(
                    f"{place}: expected an expression, not {no_expression(value)}"
                )
            object.__setattr__(node, name, found)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Leaf(Expr):
    """An expression without parts. `Op` of op/registry.py derives from it."""


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Var(Leaf):
    """A local variable; identity is the object. An annotation without holes is its checked_type from the start."""

    name_hint: str
    type_annotation: Type | None = None
    span: Span | None = None

    def __post_init__(self) -> None:
        if self.checked_type is None and is_complete(self.type_annotation):
            object.__setattr__(self, "checked_type", self.type_annotation)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class GlobalVar(Leaf):
    """The name of a function of the module. Inside one module there is one GlobalVar object a name."""

    name_hint: str
    span: Span | None = field(default=None, kw_only=True)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Constant(Leaf):
    """A tensor known at compile time: a C-contiguous read-only numpy array in the machine's byte order. checked_type is
    set at construction.

    `data` may be a LateArray: a weight that is bound when the program is loaded, of which shape and dtype alone are
    known. `is_known` tells.
    """

    data: np.ndarray[Any, Any]
    span: Span | None = None

    def __post_init__(self) -> None:
        if isinstance(self.data, LateArray):
            type_ = TensorType(self.data.shape, self.data.dtype.name)
            object.__setattr__(self, "checked_type", type_)
            return
        # np.ascontiguousarray would turn rank 0 into rank 1.
        array = np.asarray(self.data, order="C")
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if array.flags.writeable:
            array = array.copy(order="C")
            array.flags.writeable = False
        object.__setattr__(self, "data", array)
        object.__setattr__(self, "checked_type", TensorType(array.shape, array.dtype.name))


def is_known(node: object) -> TypeGuard[Constant]:
    """Whether it is a constant whose elements are known at compile time."""
    return isinstance(node, Constant) and not isinstance(node.data, LateArray)


def late_array(node: object) -> LateArray | None:
    """The description of a constant that is bound late; None for all else."""
    data: object = node.data if isinstance(node, Constant) else None
    return data if isinstance(data, LateArray) else None


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Tuple(Expr):
    """A tuple of expressions; no fields is the unit value."""

    fields: tuple[Expr, ...]
    span: Span | None = None

    if TYPE_CHECKING:  # what as_tuples takes

        def __init__(
            self, fields: Many[Expr], span: Span | None = None, *, checked_type: Type | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        as_tuples(self, "fields")

    def __getitem__(self, index: int) -> Expr:
        """A field itself; TupleGetItem is the expression that reads it."""
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def __bool__(self) -> bool:
        """An expression is there, also one of no fields."""
        return True


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Call(Expr):
    """A call of an operator (`attrs` is an instance of its attrs class or None), constructor, global or closure."""

    op: Expr
    args: tuple[Expr, ...]
    attrs: Any = None
    type_args: tuple[Type, ...] = ()
    span: Span | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            op: Expr,
            args: Many[Expr],
            attrs: Any = None,
            type_args: Many[Type] = (),
            span: Span | None = None,
            *,
            checked_type: Type | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.op, Expr):
            _as_expressions(self, "op")
        as_tuples(self, "args", "type_args")


_NO_ATTRS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Function(Expr):
    """A function literal. `ret_type` None means "infer it". `attrs` as in TVM: "Primitive", "Compiler", ..."""

    params: tuple[Var, ...]
    body: Expr
    ret_type: Type | None = None
    type_params: tuple[TypeVar, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=lambda: _NO_ATTRS)
    span: Span | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            params: Many[Var],
            body: Expr,
            ret_type: Type | None = None,
            type_params: Many[TypeVar] = (),
            attrs: Mapping[str, Any] | None = None,
            span: Span | None = None,
            *,
            checked_type: Type | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.body, Expr):
            _as_expressions(self, "body")
        as_tuples(self, "params", "type_params")
        if self.attrs is None:
            object.__setattr__(self, "attrs", _NO_ATTRS)

    def with_attr(self, name: str | Mapping[str, Any], value: Any = None) -> Function:
        """The function with one attribute more, or with those of a mapping."""
        more = name if isinstance(name, Mapping) else {name: value}
        return replace(self, attrs={**self.attrs, **more})

    def without_attr(self, name: str) -> Function:
        """The function without an attribute."""
        return replace(self, attrs={k: v for k, v in self.attrs.items() if k != name})


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Let(Expr):
    """let var = value; body. A function value may mention its own var (recursion)."""

    var: Var
    value: Expr
    body: Expr
    span: Span | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.value, Expr) and isinstance(self.body, Expr)):
            _as_expressions(self, "value", "body")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class If(Expr):
    """Branch on a rank-0 bool."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr
    span: Span | None = None

    def __post_init__(self) -> None:
        if not (
            isinstance(self.cond, Expr)
            and isinstance(self.true_branch, Expr)
            and isinstance(self.false_branch, Expr)
        ):
            _as_expressions(self, "cond", "true_branch", "false_branch")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class TupleGetItem(Expr):
    """Field `index` (0-based) of a tuple."""

    tuple_value: Expr
    index: int
    span: Span | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tuple_value, Expr):
            _as_expressions(self, "tuple_value")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class RefCreate(Expr):
    """A new mutable cell."""

    value: Expr
    span: Span | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.value, Expr):
            _as_expressions(self, "value")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class RefRead(Expr):
    """The content of a cell."""

    ref: Expr
    span: Span | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.ref, Expr):
            _as_expressions(self, "ref")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class RefWrite(Expr):
    """Store into a cell; the value of the expression is unit."""

    ref: Expr
    value: Expr
    span: Span | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.ref, Expr) and isinstance(self.value, Expr)):
            _as_expressions(self, "ref", "value")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Constructor(Leaf):
    """A constructor of an ADT: types of fields (may mention the type's parameters); tag = position (0-based), which
    TypeData sets where none was given."""

    name_hint: str
    inputs: tuple[Type, ...]
    belong_to: GlobalTypeVar
    tag: int = -1
    span: Span | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        as_tuples(self, "inputs")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Pattern(Node):
    """Base of the patterns of match."""


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class PatternWildcard(Pattern):
    """_ : matches everything, binds nothing."""

    span: Span | None = field(default=None, kw_only=True)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class PatternVar(Pattern):
    """Matches everything and binds it."""

    var: Var
    span: Span | None = field(default=None, kw_only=True)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class PatternConstructor(Pattern):
    """Matches values built by the constructor whose fields match."""

    constructor: Constructor
    patterns: tuple[Pattern, ...] = ()
    span: Span | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:

        def __init__(
            self,
            constructor: Constructor,
            patterns: Many[Pattern] = (),
            *,
            span: Span | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        as_tuples(self, "patterns")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class PatternTuple(Pattern):
    """Matches a tuple whose fields match."""

    patterns: tuple[Pattern, ...] = ()
    span: Span | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:

        def __init__(self, patterns: Many[Pattern] = (), *, span: Span | None = None) -> None: ...

    def __post_init__(self) -> None:
        as_tuples(self, "patterns")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Clause(Node):
    """One arm of a match."""

    lhs: Pattern
    rhs: Expr
    span: Span | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.rhs, Expr):
            _as_expressions(self, "rhs")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Match(Expr):
    """Branch on the constructor of `data`. `complete` False is `match?`: no clause applies -> MatchFailure."""

    data: Expr
    clauses: tuple[Clause, ...]
    complete: bool = True
    span: Span | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:

        def __init__(
            self,
            data: Expr,
            clauses: Many[Clause],
            complete: bool = True,
            *,
            span: Span | None = None,
            checked_type: Type | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.data, Expr):
            _as_expressions(self, "data")
        as_tuples(self, "clauses")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class TypeData(Node):
    """The definition of an ADT."""

    header: GlobalTypeVar
    type_vars: tuple[TypeVar, ...]
    constructors: tuple[Constructor, ...]
    span: Span | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        as_tuples(self, "type_vars", "constructors")
        for tag, constructor in enumerate(self.constructors):
            if isinstance(constructor, Constructor) and constructor.tag < 0:
                object.__setattr__(constructor, "tag", tag)


def is_complete(type_: Type | None) -> bool:
    """Whether a type is given and has no hole."""
    stack: list[Type | None] = [type_]
    while stack:
        match stack.pop():
            case None | IncompleteType():
                return False
            case TupleType(fields=fields):
                stack.extend(fields)
            case FuncType(arg_types=args, ret_type=ret):
                stack.extend((*args, ret))
            case TypeCall(args=args):
                stack.extend(args)
            case Type() as other:
                value = getattr(other, "value", None)  # RefType
                if value is not None:
                    stack.append(value)
    return True


def children(node: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions in evaluation order; patterns and binders are not among them."""
    match node:
        case Leaf():
            return ()
        case Call(op=op, args=args):
            return (op, *args)
        case Let(value=value, body=body):
            return (value, body)
        case Function(body=body):
            return (body,)
        case Tuple(fields=fields):
            return fields
        case TupleGetItem(tuple_value=value):
            return (value,)
        case If(cond=cond, true_branch=true, false_branch=false):
            return (cond, true, false)
        case Match(data=data, clauses=clauses):
            return (data, *(c.rhs for c in clauses))
        case RefCreate(value=value):
            return (value,)
        case RefRead(ref=ref):
            return (ref,)
        case RefWrite(ref=ref, value=value):
            return (ref, value)
    raise InvalidInputType(f"expected an expression, not {no_expression(node)}")


def pattern_vars(pattern: Pattern) -> tuple[Var, ...]:
    """The variables that a pattern binds, from left to right."""
    found: list[Var] = []
    stack = [pattern]
    while stack:
        match stack.pop():
            case PatternVar(var=var):
                found.append(var)
            case PatternConstructor(patterns=parts) | PatternTuple(patterns=parts):
                stack.extend(reversed(parts))
            case PatternWildcard():
                pass
            case other:
                raise TypeError(f"unknown pattern {type(other).__name__}")
    return tuple(found)


def free_vars(expr: Expr) -> tuple[Var, ...]:
    """The variables that `expr` uses and does not bind, in order of first use. Each node is visited once."""
    bound: set[Var] = set()
    used: dict[Var, None] = {}
    seen: set[Expr] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Var):
            used.setdefault(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        match node:
            case Let(var=var):
                bound.add(var)
            case Function(params=params):
                bound.update(params)
            case Match(clauses=clauses):
                for clause in clauses:
                    bound.update(pattern_vars(clause.lhs))
        stack.extend(reversed(children(node)))
    return tuple(v for v in used if v not in bound)


__all__ = [
    "Call", "Clause", "Constant", "Constructor", "Expr", "Function", "GlobalTypeVar", "GlobalVar",
    "If", "Leaf", "Let", "Match", "Node", "Pattern", "PatternConstructor", "PatternTuple", "PatternVar",
    "PatternWildcard", "RefCreate", "RefRead", "RefWrite", "SourceName", "Span", "Tuple", "TupleGetItem",
    "TypeData", "Var", "children", "free_vars", "is_complete", "is_known", "late_array", "pattern_vars", "scalar_type",
]  # fmt: skip
