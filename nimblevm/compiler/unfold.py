"""Calls of known functions as their bodies, matches and ifs on known values decided: one round of partial_eval.

Works on A-normal form: what a variable is known to be (a function literal, a constructor's call, a tuple) has atoms as
its parts. Copies have no types; inference runs afterwards. A call whose arguments are not proved to have the types of
the parameters stays, for it checks them; so does one whose body has dims of its own in annotations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from nimblevm.compiler.rewrite import (
    Rewriter,
    attr_dims,
    let_chain,
    postorder,
    recursive_vars,
)
from nimblevm.relay.dims import Dim, DimVar, compare
from nimblevm.relay.ir import (
    Call,
    Clause,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Leaf,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    Tuple,
    Var,
    pattern_vars,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import HAS_DIM, Type, TypeVar, free_dims, substitute, value_tensors


class _Refused(Exception):
    """The function can't be copied."""


class _Copy(Rewriter):
    """A body with fresh variables and without types; `dims` and `type_vars` are instantiated in annotations."""

    def __init__(self, dims: Mapping[DimVar, Dim], type_vars: Mapping[TypeVar, Type]) -> None:
        super().__init__()
        self.dims = dims
        self.type_vars = type_vars

    def type(self, type_: Type | None) -> Type | None:
        if type_ is None:
            return None
        if any(dim not in self.dims for dim in free_dims(type_)):
            raise _Refused
        return substitute(type_, self.type_vars, self.dims)

    def rename(self, var: Var, annotation: Type | None) -> None:
        self.memo[var] = Var(var.name_hint, self.type(annotation), span=var.span)

    def enter(self, node: Expr) -> bool:
        match node:
            case Let(var=var, value=value):
                exact = var.type_annotation is value.checked_type
                self.rename(var, None if exact else var.type_annotation)
            case Function(params=params):
                for param in params:
                    self.rename(param, param.type_annotation)
            case Match(clauses=clauses):
                for clause in clauses:
                    for var in pattern_vars(clause.lhs):
                        self.rename(var, None)
        return True

    def binder(self, var: Var) -> Var:
        found = self.memo[var]
        return found if isinstance(found, Var) else var

    def visit(self, node: Expr, new: Expr) -> Expr:
        match new:
            case Let(var=var):
                return Let(self.binder(var), new.value, new.body, span=new.span)
            case Function():
                exact = isinstance(node, Function) and node.ret_type is node.body.checked_type
                params = tuple([self.binder(p) for p in new.params])
                ret = None if exact else self.type(new.ret_type)
                return Function(params, new.body, ret, new.type_params, new.attrs, span=new.span)
            case Match():
                clauses = tuple(
                    [Clause(self.pattern(c.lhs), c.rhs, span=c.span) for c in new.clauses]
                )
                return Match(new.data, clauses, new.complete, span=new.span)
            case Call() if attr_dims(new):
                raise _Refused
            case Call():
                return Call(new.op, new.args, new.attrs, span=new.span)
        return dataclasses.replace(new, checked_type=None)

    def pattern(self, root: Pattern) -> Pattern:
        done: list[Pattern] = []
        stack: list[tuple[Pattern, bool]] = [(root, False)]
        while stack:
            item, ready = stack.pop()
            match item:
                case PatternVar(var=var):
                    done.append(PatternVar(self.binder(var), span=item.span))
                case PatternConstructor(patterns=parts) | PatternTuple(patterns=parts):
                    if not ready:
                        stack.append((item, True))
                        stack.extend((part, False) for part in reversed(parts))
                        continue
                    new = tuple(done[len(done) - len(parts) :])
                    del done[len(done) - len(parts) :]
                    done.append(dataclasses.replace(item, patterns=new))
                case _:
                    done.append(item)
        return done[0]


def _agree(actual: Type | None, wanted: Type | None, dims: Mapping[DimVar, Dim]) -> bool:
    """Whether a value of a type needs no check to be of another, whose dims are instantiated."""
    if actual is None or wanted is None:
        return False
    if actual is wanted or (not wanted.flags & HAS_DIM and not actual.flags & HAS_DIM):
        return True
    pairs = zip(value_tensors(actual), value_tensors(substitute(wanted, None, dims)), strict=True)
    return all(
        bool(compare(p, q))
        for have, want in pairs
        for p, q in zip(have.shape, want.shape, strict=True)
    )


def _instantiated(
    function: Function, args: Sequence[Expr], types: Mapping[TypeVar, Type]
) -> dict[DimVar, Dim]:
    dims: dict[DimVar, Dim] = {}
    for param, arg in zip(function.params, args, strict=True):
        if param.checked_type is None or arg.checked_type is None:
            raise _Refused
        wanted = substitute(param.checked_type, types)
        pairs = zip(value_tensors(wanted), value_tensors(arg.checked_type), strict=True)
        for want, have in pairs:
            for q, p in zip(want.shape, have.shape, strict=True):
                if isinstance(q, DimVar):
                    dims.setdefault(q, p)
    return dims


class _Round(Rewriter):
    """One round in one function."""

    def __init__(
        self, owner: Unfolder, mod: IRModule, recursive: frozenset[GlobalVar], root: Expr
    ) -> None:
        super().__init__()
        self.owner = owner
        self.mod = mod
        self.recursive = recursive
        self.known: dict[Expr, Expr] = {}
        self.loops: set[Expr] = set(recursive_vars(root))
        self.changed = False

    def bind(self, let: Let, value: Expr) -> None:
        if isinstance(value, Function | Tuple) or _is_built(value):
            self.known[let.var] = value

    def visit(self, node: Expr, new: Expr) -> Expr:
        found: Expr | None = None
        match new:
            case If(cond=Constant(data=data)):
                found = new.true_branch if bool(data) else new.false_branch
            case Match():
                found = self._decide(new)
            case Call(op=Var() | GlobalVar() | Function()):
                found = self._unfold(new)
        if found is None:
            return new
        self.changed = True
        return found

    def _decide(self, match: Match) -> Expr | None:
        """The clause that a known value takes, with lets for its variables."""
        for clause in match.clauses:
            lets: list[tuple[Var, Expr]] = []
            verdict = self._matches(clause.lhs, match.data, lets)
            if verdict is None:
                return None
            if verdict:
                body = clause.rhs
                for var, value in reversed(lets):
                    body = Let(var, value, body, span=clause.span)
                return body
        return None

    def _matches(self, root: Pattern, data: Expr, lets: list[tuple[Var, Expr]]) -> bool | None:
        """Whether a value matches a pattern; None: not known."""
        stack: list[tuple[Pattern, Expr]] = [(root, data)]
        while stack:
            pattern, value = stack.pop()
            built = self.known.get(value, value)
            match pattern:
                case PatternVar(var=var):
                    lets.append((var, value))
                case PatternConstructor(constructor=constructor, patterns=parts):
                    if not _is_built(built):
                        return None
                    if _constructor(built) is not constructor:
                        return False
                    fields = built.args if isinstance(built, Call) else ()
                    stack.extend(zip(parts, fields, strict=True))
                case PatternTuple(patterns=parts):
                    if not isinstance(built, Tuple):
                        return None
                    stack.extend(zip(parts, built.fields, strict=True))
        return True

    def _unfold(self, call: Call) -> Expr | None:
        callee: Expr | None = call.op
        if isinstance(callee, GlobalVar):
            callee = self.mod.function(callee) if callee in self.mod else None
        elif isinstance(callee, Var):
            callee = self.known.get(callee)
        if not isinstance(callee, Function) or callee.attrs or self.owner.calls <= 0:
            return None
        looping = call.op in self.loops or call.op in self.recursive
        if looping and not self._decides(callee, call.args):
            return None
        if len(call.type_args) != len(callee.type_params):
            return None
        types = dict(zip(callee.type_params, call.type_args, strict=True))
        try:
            dims: dict[DimVar, Dim] = {}
            if isinstance(call.op, GlobalVar):
                dims = _instantiated(callee, call.args, types)
            wanted = [p.checked_type and substitute(p.checked_type, types) for p in callee.params]
            pairs = zip(wanted, call.args, strict=True)
            if not all(_agree(arg.checked_type, type_, dims) for type_, arg in pairs):
                return None
            if not _agree(callee.body.checked_type, callee.ret_type, {}) and callee.ret_type:
                return None
            copy = _Copy(dims, types)
            for param in callee.params:
                copy.rename(param, None)
            body = copy.rewrite(callee.body)
        except _Refused:
            return None
        self.owner.calls -= 1
        for param, arg in reversed(list(zip(callee.params, call.args, strict=True))):
            body = Let(copy.binder(param), arg, body, span=call.span)
        return body

    def _decides(self, function: Function, args: Sequence[Expr]) -> bool:
        """Whether the first branch of a body is decided by arguments that are known."""
        given = dict(zip(function.params, args, strict=True))
        lets, tail = let_chain(function.body)
        values = {let.var: let.value for let in lets}
        if isinstance(tail, Match):
            data = values.get(tail.data, tail.data) if isinstance(tail.data, Var) else tail.data
            parts = data.fields if isinstance(data, Tuple) else (data,)
            atoms = [given.get(p, p) if isinstance(p, Var) else p for p in parts]
            return any(_is_built(self.known.get(a, a)) for a in atoms)
        if not isinstance(tail, If):
            return False
        seen: set[Expr] = set()
        stack: list[Expr] = [tail.cond]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            for part in postorder(values.get(node, node) if isinstance(node, Var) else node):
                if isinstance(part, Var) and part in given:
                    if not isinstance(given[part], Constant):
                        return False
                elif isinstance(part, Var) and part in values:
                    stack.append(part)
                elif not isinstance(part, Constant | Op | Call) or (
                    isinstance(part, Call) and not isinstance(part.op, Op)
                ):
                    return False
        return True


def _is_built(node: Expr) -> bool:
    """A constructor's call, or a constructor without fields."""
    return isinstance(node, Constructor) or (
        isinstance(node, Call) and isinstance(node.op, Constructor)
    )


def _constructor(node: Expr) -> Expr:
    return node.op if isinstance(node, Call) else node


def _recursive(mod: IRModule) -> frozenset[GlobalVar]:
    """The functions that may reach themselves: those that are left when functions that call only done ones go."""
    callers: dict[GlobalVar, list[GlobalVar]] = {var: [] for var in mod.functions}
    missing: dict[GlobalVar, int] = {}
    for var, function in mod.functions.items():
        called = {
            n for n in postorder(function.body) if isinstance(n, GlobalVar) and n in mod.functions
        }
        missing[var] = len(called)
        for name in called:
            callers[name].append(var)
    ready = [var for var, count in missing.items() if not count]
    done: set[GlobalVar] = set(ready)
    while ready:
        for var in callers[ready.pop()]:
            missing[var] -= 1
            if not missing[var]:
                done.add(var)
                ready.append(var)
    return frozenset(set(mod.functions) - done)


class Unfolder:
    """Rounds over modules, with a number of calls that may be unfolded in all."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def run(self, mod: IRModule, names: Sequence[GlobalVar]) -> IRModule:
        """A module after one round in the functions `names`; changed ones are untyped."""
        recursive = _recursive(mod)
        result = mod.shallow_copy()
        for name in names:
            function = mod.function(name)
            if isinstance(function.body, Leaf) or "Primitive" in function.attrs:
                continue
            work = _Round(self, mod, recursive, function.body)
            body = work.rewrite(function.body)
            if work.changed:
                result[name] = dataclasses.replace(function, body=body, checked_type=None)
        return result


__all__ = ["Unfolder"]
