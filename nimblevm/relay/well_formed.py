"""Scope, arity and ADT checks of a module: what must hold before types can be asked for.

    every variable is bound where it is used, and in one place of the module only
    every GlobalVar is the module's own object of that name; every constructor, type and type
    variable is known constructors have as many arguments, and types as many parameters, as their
    definitions say

One walk over an explicit stack. A node that is shared is looked at again only where the scope of
its first visit is not around it; then its variables must be bound in the other place too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nimblevm.arguments import shown
from nimblevm.errors import InvalidInputType, WellFormedError
from nimblevm.relay.ir import (
    Call,
    Clause,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    Leaf,
    Let,
    Match,
    Node,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    Span,
    TypeData,
    Var,
    children,
    free_vars,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.node import no_expression
from nimblevm.relay.types import (
    HAS_TYPE_VAR,
    GlobalTypeVar,
    Type,
    TypeCall,
    TypeVar,
    free_type_vars,
    parts,
)

# Types that operators of the memory passes make, without a definition.
_BUILT_IN = frozenset({"Storage"})


def check_well_formed(mod: IRModule) -> None:
    """Raise WellFormedError, with the place, for the first fault found."""
    checker = _Checker(mod)
    for definition in mod.type_definitions.values():
        checker.check_definition(definition)
    for function in mod.functions.values():
        checker.check(function)


def well_formed(node: IRModule | Expr, mod: IRModule | None = None) -> bool:
    """As TVM's analysis.well_formed: whether a module, or an expression, passes. An expression may have free
    variables, which count as bound around it.
    """
    try:
        if isinstance(node, IRModule):
            check_well_formed(node)
        else:
            whole = Function(free_vars(node), node)
            _Checker(mod if mod is not None else IRModule()).check(whole)
    except WellFormedError:
        return False
    return True


def _kind_fault(node: Node, part: str, wanted: str, got: object) -> InvalidInputType:
    """What is wrong where a part of a node is of another kind, which Python lets pass until somebody reads it."""
    place = f"{node.span}: " if node.span is not None else ""
    kind = type(node).__name__
    return InvalidInputType(
        f"{place}the {part} of a {kind} must be {wanted}, not {no_expression(got)}"
    )


def _fault(message: str, span: Span | None, other: Span | None = None) -> WellFormedError:
    text = f"{span}: {message}" if span is not None else message
    return WellFormedError(text + (f"\n  {other}: the other place" if other is not None else ""))


class _Checker:
    """The state of the walk. A scope is a number; `_active` holds those around the current node."""

    def __init__(self, mod: IRModule) -> None:
        self._mod = mod
        self._binder: dict[Var, Node] = {}
        self._bound: set[Var] = set()
        self._type_vars: dict[TypeVar, int] = {}
        self._scope_of: dict[Expr, int] = {}
        self._scopes: list[int] = [0]
        self._active: set[int] = {0}
        self._next_scope = 1
        self._known_types: set[Type] = set()
        self._stack: list[Any] = []

    # --- expressions -----------------------------------------------------------------------------

    def check(self, root: Expr) -> None:
        """Check one function or expression."""
        stack = self._stack
        stack.append(root)
        while stack:
            item = stack.pop()
            if item.__class__ is tuple:
                item[0](item[1])
            elif isinstance(item, Leaf):
                self._leaf(item)
            elif not isinstance(item, Expr):
                raise InvalidInputType(f"expected an expression, not {no_expression(item)}")
            elif self._scope_of.get(item) not in self._active:
                self._scope_of[item] = self._scopes[-1]
                self._visit(item)

    def _leaf(self, node: Leaf) -> None:
        match node:
            case Var():
                if node not in self._bound:
                    raise _fault(f"variable %{node.name_hint} is not bound here", node.span)
            case GlobalVar(name_hint=name):
                if node not in self._mod:
                    raise _fault(f"the module has no function @{name}", node.span)
                if self._mod.get_global_var(name) is not node:
                    raise _fault(f"@{name} is another GlobalVar than the module's", node.span)
            case Constructor():
                self._constructor(node, node.span)

    def _visit(self, node: Expr) -> None:
        match node:
            case Let(var=var, value=value, body=body):
                self._stack.append((self._leave, (var,)))
                self._stack.append(body)
                if isinstance(value, Function):
                    self._enter((var,), node)
                else:
                    self._stack.append((self._enter_let, node))
                self._stack.append(value)
            case Function(body=body):
                self._open_function(node)
                self._stack.append((self._close_function, node))
                self._stack.append(body)
            case Match(data=data, clauses=clauses):
                for clause in reversed(clauses):
                    if not isinstance(clause, Clause):
                        raise _kind_fault(node, "clauses", "relay.Clauses", clause)
                    self._stack.append((self._clause, clause))
                self._stack.append(data)
            case _:
                if isinstance(node, Call):
                    self._call(node)
                self._stack.extend(reversed(children(node)))

    def _call(self, node: Call) -> None:
        op = node.op
        if isinstance(op, Constructor) and len(op.inputs) != len(node.args):
            raise _fault(
                f"constructor {op.name_hint} takes {len(op.inputs)} arguments, got "
                f"{len(node.args)}",
                node.span,
            )
        for type_ in node.type_args:
            self._annotation(type_, node.span)

    def _enter_let(self, node: Let) -> None:
        self._enter((node.var,), node)

    def _enter(self, variables: tuple[Var, ...], binder: Node) -> None:
        """Open a scope that binds variables; each may have one binder in the module."""
        for var in variables:
            if not isinstance(var, Var):
                raise _kind_fault(binder, "variables", "relay.Vars", var)
            earlier = self._binder.setdefault(var, binder)
            if earlier is not binder or var in self._bound:
                raise _fault(
                    f"variable %{var.name_hint} is bound twice",
                    var.span or binder.span,
                    earlier.span,
                )
            self._bound.add(var)
            self._annotation(var.type_annotation, var.span)
        self._scopes.append(self._next_scope)
        self._active.add(self._next_scope)
        self._next_scope += 1

    def _leave(self, variables: tuple[Var, ...]) -> None:
        self._bound.difference_update(variables)
        self._active.discard(self._scopes.pop())

    def _open_function(self, node: Function) -> None:
        if not isinstance(node.attrs, Mapping):
            raise _kind_fault(node, "attributes", "a mapping", node.attrs)
        for type_var in node.type_params:
            self._type_vars[type_var] = self._type_vars.get(type_var, 0) + 1
        self._enter(node.params, node)
        self._annotation(node.ret_type, node.span)

    def _close_function(self, node: Function) -> None:
        self._leave(node.params)
        for type_var in node.type_params:
            self._type_vars[type_var] -= 1

    def _clause(self, clause: Clause) -> None:
        variables = self._pattern(clause.lhs)
        self._enter(variables, clause)
        self._stack.append((self._leave, variables))
        self._stack.append(clause.rhs)

    def _pattern(self, root: Pattern) -> tuple[Var, ...]:
        """The variables of a pattern, whose constructors are checked."""
        found: list[Var] = []
        stack: list[Pattern] = [root]
        while stack:
            pattern = stack.pop()
            match pattern:
                case PatternVar(var=var):
                    found.append(var)
                case PatternTuple(patterns=below):
                    stack.extend(reversed(below))
                case PatternConstructor(constructor=constructor, patterns=below):
                    self._constructor(constructor, pattern.span)
                    if len(below) != len(constructor.inputs):
                        raise _fault(
                            f"constructor {constructor.name_hint} has {len(constructor.inputs)} "
                            f"fields, the pattern {len(below)}",
                            pattern.span,
                        )
                    stack.extend(reversed(below))
        return tuple(found)

    def _constructor(self, node: Constructor, span: Span | None) -> None:
        definition = self._mod.type_definitions.get(node.belong_to)
        if definition is None:
            raise _fault(
                f"constructor {node.name_hint} belongs to type {node.belong_to.name_hint}, "
                "which the module does not have",
                span,
            )
        known = definition.constructors
        if not 0 <= node.tag < len(known) or (
            known[node.tag] is not node and known[node.tag].name_hint != node.name_hint
        ):
            raise _fault(
                f"type {node.belong_to.name_hint} has no constructor {node.name_hint}", span
            )

    # --- types ------------------------------------------------------------------------------------

    def _annotation(self, type_: Type | None, span: Span | None) -> None:
        """Names of types and type variables must be known."""
        if not isinstance(type_, Type | None):
            raise InvalidInputType(
                f"expected a type, such as relay.TensorType((2,)), not {shown(type_)}"
            )
        if type_ is None:
            return
        if type_.flags & HAS_TYPE_VAR:
            for var in free_type_vars(type_):
                if not self._type_vars.get(var):
                    raise _fault(f"type variable {var.name_hint} is not bound here", span)
        self._type_names(type_, span)

    def _type_names(self, root: Type, span: Span | None) -> None:
        known = self._known_types
        stack = [root]
        while stack:
            type_ = stack.pop()
            if type_ in known:
                continue
            known.add(type_)
            if isinstance(type_, TypeCall) and type_.func.name_hint not in _BUILT_IN:
                definition = self._definition(type_.func, span)
                if len(definition.type_vars) != len(type_.args):
                    raise _fault(
                        f"type {type_.func.name_hint} takes {len(definition.type_vars)} types, "
                        f"got {len(type_.args)}",
                        span,
                    )
            elif isinstance(type_, GlobalTypeVar):
                raise _fault(
                    f"write {type_.name_hint}[...], a type applied to its parameters", span
                )
            stack.extend(parts(type_))

    def _definition(self, header: GlobalTypeVar, span: Span | None) -> TypeData:
        found = self._mod.type_definitions.get(header)
        if found is None:
            raise _fault(f"the module has no type {header.name_hint}", span)
        return found

    def check_definition(self, definition: TypeData) -> None:
        """Tags are positions, names are unique, fields mention the type's own parameters only."""
        name = definition.header.name_hint
        seen: set[str] = set()
        for position, constructor in enumerate(definition.constructors):
            span = constructor.span or definition.span
            if constructor.name_hint in seen:
                raise _fault(f"type {name} has two constructors {constructor.name_hint}", span)
            seen.add(constructor.name_hint)
            if constructor.tag != position or constructor.belong_to is not definition.header:
                raise _fault(
                    f"constructor {constructor.name_hint} is not number {position} of {name}", span
                )
            for type_ in constructor.inputs:
                self._field(type_, definition, span)

    def _field(self, type_: Type, definition: TypeData, span: Span | None) -> None:
        for var in free_type_vars(type_):
            if var not in definition.type_vars:
                raise _fault(
                    f"type variable {var.name_hint} is no parameter of "
                    f"{definition.header.name_hint}",
                    span,
                )
        self._type_names(type_, span)
