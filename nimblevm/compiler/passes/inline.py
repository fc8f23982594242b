"""Put the bodies of small leaf functions in the place of their calls.

before:  def @scale(%x: Tensor[(?n), float32]) -> Tensor[(?n), float32] { %x * 2f }
         def @main(%y: Tensor[(?m), float32]) { @scale(%y) }
after:   def @main(%y: Tensor[(?m), float32]) { let %x: Tensor[(?m), float32] = %y; %x * 2f }

A function is inlined if it has at most MAX_NODES operators and tuples and nothing else: no calls of
functions, no branches, references or local functions, so that neither recursion nor the order of
effects is a question, and no type parameters. A call that passes a constant tensor, as those of a
recurrent cell pass their weights, may be of up to MAX_WITH_WEIGHTS: what depends on the weights'
values (packing, hoisting, folding) needs them at hand. All such calls together add at most
MAX_GROWTH nodes. Its dims become those of the arguments; a parameter whose type the argument is not
proved to have gets a vm.match_type, as its entry would have compared it. The function itself stays,
for it may be invoked by name.

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
    Let,
    Tuple,
    TupleGetItem,
    Var,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import Type, free_dims, substitute, value_tensors

MAX_NODES = 8
MAX_WITH_WEIGHTS = 64
MAX_GROWTH = 8192


def inline_size(function: Function) -> int | None:
    """The operators and tuples of a function whose calls may be replaced by its body; None: they may not."""
    if function.type_params or set(function.attrs) - {"Internal"}:
        return None
    count = 0
    for node in postorder(function.body):
        match node:
            case Var() | Constant() | Op() | Let():
                continue
            case Call(op=Op() as op):
                # Attributes may hold dims; only checks do here, and those would have to be
                # instantiated.
                if op.name.startswith(("vm.", "memory.")):
                    return None
                count += 1
            case Tuple() | TupleGetItem():
                count += 1
            case _:
                return None
        if count > MAX_WITH_WEIGHTS:
            return None
    return count


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
    def __init__(self, mod: IRModule, sizes: dict[GlobalVar, int], budget: list[int]) -> None:
        super().__init__()
        self.mod = mod
        self.sizes = sizes
        self.budget = budget

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(new.op, GlobalVar):
            return new
        size = self.sizes.get(new.op)
        if size is None:
            return new
        if any(isinstance(a, GlobalVar | Constructor | Op) for a in new.args):
            return new
        if size > MAX_NODES:
            if size > self.budget[0] or not any(map(_is_weight, new.args)):
                return new
            self.budget[0] -= size
        return self._expand(new, self.mod.function(new.op))

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


def _is_weight(arg: Expr) -> bool:
    return isinstance(arg, Constant) and arg.data.size > 1


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
    found = {var: inline_size(f) for var, f in mod.functions.items()}
    sizes = {var: size for var, size in found.items() if size is not None}
    if not sizes:
        return mod
    budget = [MAX_GROWTH]

    def expand(function: Function) -> Function:
        return with_body(function, _Inliner(mod, sizes, budget).rewrite(function.body))

    return map_functions(mod, expand)


INLINE = Pass("inline", inline)
