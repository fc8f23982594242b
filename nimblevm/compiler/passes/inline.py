"""Put the bodies of small leaf functions in the place of their calls.

before:  def @scale(%x: Tensor[(?n), float32]) -> Tensor[(?n), float32] { %x * 2f }
         def @main(%y: Tensor[(?m), float32]) { @scale(%y) }
after:   def @main(%y: Tensor[(?m), float32]) { let %x: Tensor[(?m), float32] = %y; %x * 2f }

A function is inlined if it has at most MAX_NODES operators and tuples and nothing else: no calls of
functions, no branches, references or local functions, so that neither recursion nor the order of
effects is a question, and no type parameters. Its dims become those of the arguments; a parameter
whose type the argument is not proved to have gets a vm.match_type, as its entry would have compared
it. The function itself stays, for it may be invoked by name.

Needs: inferred types, insert_checks. Keeps: both. Cost: O(nodes of the result).
"""

from __future__ import annotations

import dataclasses

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.passes.insert_checks import match_type
from nimblevm.compiler.rewrite import (
    Rewriter,
    fresh_var,
    map_functions,
    postorder,
    type_of,
    with_body,
)
from nimblevm.relay.dims import Dim, DimVar, compare
from nimblevm.relay.ir import (
    Call,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Let,
    Tuple,
    TupleGetItem,
    Var,
)
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import Type, free_dims, substitute, value_tensors

MAX_NODES = 8


def inlinable(function: Function) -> bool:
    """Whether calls of a function are replaced by its body."""
    if function.type_params or function.attrs:
        return False
    count = 0
    for node in postorder(function.body):
        match node:
            case Var() | Constant() | Op() | Let():
                continue
            case Call(op=Op() as op):
                # Attributes may hold dims; only checks do here, and those would have to be
                # instantiated.
                if op.name.startswith(("vm.", "memory.")):
                    return False
                count += 1
            case Tuple() | TupleGetItem():
                count += 1
            case _:
                return False
        if count > MAX_NODES:
            return False
    return True


class _Copy(Rewriter):
    """A body with fresh variables, its dims instantiated."""

    def __init__(self, mapping: dict[DimVar, Dim]) -> None:
        super().__init__()
        self.mapping = mapping

    def type(self, type_: Type) -> Type:
        return substitute(type_, dim_vars=self.mapping)

    def rename(self, var: Var) -> Var:
        new = fresh_var(var.name_hint, self.type(type_of(var)))
        self.memo[var] = new
        return new

    def bind(self, let: Let, value: Expr) -> None:
        self.rename(let.var)

    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(new, Let):
            var = self.memo[new.var]
            if not isinstance(var, Var):
                raise TypeError("a let binds a variable")
            return Let(var, new.value, new.body, span=new.span, checked_type=new.body.checked_type)
        return dataclasses.replace(new, checked_type=self.type(type_of(new)))


class _Inliner(Rewriter):
    def __init__(self, mod: IRModule, small: dict[GlobalVar, Function]) -> None:
        super().__init__()
        self.mod = mod
        self.small = small

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(new.op, GlobalVar):
            return new
        callee = self.small.get(new.op)
        if callee is None:
            return new
        if any(isinstance(a, GlobalVar | Constructor | Op) for a in new.args):
            return new
        return self._expand(new, callee)

    def _expand(self, call: Call, callee: Function) -> Expr:
        mapping = _instantiate(callee, call)
        copy = _Copy(mapping)
        lets: list[tuple[Var, Expr]] = []
        for param, arg in zip(callee.params, call.args, strict=True):
            var = copy.rename(param)
            wanted = type_of(var)
            if _proved(type_of(arg), wanted):
                lets.append((var, arg))
            else:
                where = f"parameter %{param.name_hint} of {call.op!r}"
                lets.append((var, match_type(arg, wanted, where, call.span)))
        body = copy.rewrite(callee.body)
        if body.checked_type is not call.checked_type:
            return call  # a result type wider than its body's: dims that the caller knows by other names
        for var, value in reversed(lets):
            body = Let(var, value, body, span=call.span, checked_type=body.checked_type)
        return body


def _instantiate(callee: Function, call: Call) -> dict[DimVar, Dim]:
    """The dims of the parameters, as the first argument that has each of them says; others are
    fresh.
    """
    mapping: dict[DimVar, Dim] = {}
    for param, arg in zip(callee.params, call.args, strict=True):
        pairs = zip(value_tensors(type_of(param)), value_tensors(type_of(arg)), strict=True)
        for want, have in pairs:
            for q, p in zip(want.shape, have.shape, strict=True):
                if isinstance(q, DimVar):
                    mapping.setdefault(q, p)
    for node in postorder(callee.body):
        if node.checked_type is not None:
            for dim in free_dims(node.checked_type):
                mapping.setdefault(dim, DimVar(dim.name))
    return mapping


def _proved(actual: Type, wanted: Type) -> bool:
    return actual is wanted or all(
        compare(p, q)
        for have, want in zip(value_tensors(actual), value_tensors(wanted), strict=True)
        for p, q in zip(have.shape, want.shape, strict=True)
    )


def inline(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    small = {var: f for var, f in mod.functions.items() if inlinable(f)}
    if not small:
        return mod

    def expand(function: Function) -> Function:
        return with_body(function, _Inliner(mod, small).rewrite(function.body))

    return map_functions(mod, expand)


INLINE = Pass("inline", inline)
