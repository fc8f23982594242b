"""Copies of typed functions with fresh variables, their dims instantiated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from nimblevm.compiler.rewrite import Rewriter, attr_dims, fresh_var, postorder, type_of
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.ir import (
    Call,
    Clause,
    Expr,
    Function,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    Var,
    pattern_vars,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import Type, free_dims, substitute


def renamed_pattern(root: Pattern, names: Mapping[Var, Var]) -> Pattern:
    """A pattern with other variables."""
    done: list[Pattern] = []
    stack: list[tuple[Pattern, bool]] = [(root, False)]
    while stack:
        item, ready = stack.pop()
        match item:
            case PatternVar(var=var):
                done.append(PatternVar(names[var], span=item.span))
            case PatternConstructor(patterns=parts) | PatternTuple(patterns=parts) if ready:
                new = tuple(done[len(done) - len(parts) :])
                del done[len(done) - len(parts) :]
                done.append(dataclasses.replace(item, patterns=new))
            case PatternConstructor(patterns=parts) | PatternTuple(patterns=parts):
                stack.append((item, True))
                stack.extend((part, False) for part in reversed(parts))
            case _:
                done.append(item)
    return done[0]


def can_copy(function: Function) -> bool:
    """Whether all dims in attributes are those of vm.match_type, which a copy instantiates."""
    return all(
        not attr_dims(n) or _is_check(n) for n in postorder(function.body) if isinstance(n, Call)
    )


def _is_check(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Op) and node.op.name == "vm.match_type"


class FunctionCopy(Rewriter):
    """Rewrites a function's body. What `memo` knows of its variables before becomes that, all others that it binds
    become fresh ones; dims become what `dims` says, or fresh ones (`fresh`) unless they are in `outer`.
    """

    def __init__(
        self, function: Function, dims: Mapping[DimVar, Dim], outer: frozenset[DimVar]
    ) -> None:
        super().__init__()
        self.dims: dict[DimVar, Dim] = dict(dims)
        self.fresh: set[DimVar] = set()
        for node in postorder(function):
            if node.checked_type is not None:
                self._learn(node.checked_type, outer)

    def _learn(self, type_: Type, outer: frozenset[DimVar]) -> None:
        for dim in free_dims(type_):
            if dim not in outer and dim not in self.dims:
                own = DimVar(dim.name)
                self.dims[dim] = own
                self.fresh.add(own)

    def type(self, type_: Type) -> Type:
        return substitute(type_, dim_vars=self.dims)

    def name(self, var: Var) -> Var:
        """The fresh variable for one that is bound in the function."""
        found = self.memo.get(var)
        if not isinstance(found, Var):
            found = fresh_var(var.name_hint, self.type(type_of(var)))
            self.memo[var] = found
        return found

    def enter(self, node: Expr) -> bool:
        match node:
            case Let(var=var):
                self.name(var)
            case Function(params=params):
                for param in params:
                    self.name(param)
            case Match(clauses=clauses):
                for clause in clauses:
                    for var in pattern_vars(clause.lhs):
                        self.name(var)
        return True

    def visit(self, node: Expr, new: Expr) -> Expr:
        type_ = self.type(type_of(node))
        match new:
            case Let(var=var):
                return dataclasses.replace(new, var=self.name(var), checked_type=type_)
            case Function(params=params, ret_type=result):
                return dataclasses.replace(
                    new, params=tuple([self.name(p) for p in params]),
                    ret_type=None if result is None else self.type(result), checked_type=type_,
                )  # fmt: skip
            case Match(clauses=clauses):
                names = {v: self.name(v) for c in clauses for v in pattern_vars(c.lhs)}
                arms = tuple(
                    [Clause(renamed_pattern(c.lhs, names), c.rhs, span=c.span) for c in clauses]
                )
                return dataclasses.replace(new, clauses=arms, checked_type=type_)
            case Call() if _is_check(new):
                attrs = dataclasses.replace(new.attrs, type=self.type(new.attrs.type))
                return dataclasses.replace(new, attrs=attrs, checked_type=type_)
        return dataclasses.replace(new, checked_type=type_)


def unshared(mod: IRModule) -> IRModule:
    """A module in which every name has a function of its own: what is a function of two names in a user's module would
    bind its variables twice once a pass has written it anew. Needs inferred types. Cost: O(functions), and the copies.
    """
    result, seen = mod, set[Function]()
    for var, function in mod.functions.items():
        if function in seen:
            result = mod.shallow_copy() if result is mod else result
            types = [n.checked_type for n in postorder(function) if n.checked_type is not None]
            outer = frozenset(dim for type_ in types for dim in free_dims(type_))
            copy = FunctionCopy(function, {}, outer).rewrite(function)
            if not isinstance(copy, Function):
                raise TypeError("the copy of a function is a function")
            result[var] = copy
        seen.add(function)
    return result
