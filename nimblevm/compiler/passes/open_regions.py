"""Give the regions that a program came with to their backends' codegen (PartitionGraph makes such regions).

before:  def @tvmgen_default_acc_main_0(%i0: Tensor[(?n, 4), float32], Primitive=1, Compiler="acc", ...) { tanh(%i0) }
after:   def @tvmgen_default_acc_main_0(%i0: Tensor[(?n, 4), float32]) {
           fn (%i0: Tensor[(?n, 4), float32], Primitive=1, Compiler="acc", global_symbol="acc_tanh") { tanh(%i0) }(%i0)
         }

The function is an ordinary one from here on, whose body calls the region's kernel: what its parameters' types say is
checked as everywhere. A region becomes ordinary code where the backend's codegen declines it, and where it can't be one
kernel: sizes in it have to be compared or found at run time, or its result is neither a tensor nor a tuple of tensors.
Constants of more than one element become operands of the kernel, unless the backend owns constants. Marks that
PartitionGraph has not seen (annotation.compiler_begin, compiler_end) are taken out.

Needs: inferred types. Keeps: both. Cost: O(nodes), and the codegens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from nimblevm.compiler.annotated import is_mark
from nimblevm.compiler.external import External, find
from nimblevm.compiler.kernel_key import composites, is_region, plain_function
from nimblevm.compiler.op_class import is_direct
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.region import compile_region
from nimblevm.compiler.rewrite import (
    Rewriter,
    fresh_var,
    is_primitive,
    postorder,
    type_of,
    typed,
    with_body,
)
from nimblevm.relay.ir import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, is_known
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.compiler_region import BEGIN, END
from nimblevm.relay.op.registry import Op
from nimblevm.relay.type_context import demands
from nimblevm.relay.types import FuncType, TensorType, TupleType, Type


def compilers_of(mod: IRModule) -> tuple[str, ...]:
    """The external backends that a program's regions name, in order."""
    found = [str(f.attrs["Compiler"]) for f in mod.functions.values() if is_region(f)]
    return tuple(dict.fromkeys(found))


class _Unmarked(Rewriter):
    def visit(self, node: Expr, new: Expr) -> Expr:
        marked = is_mark(new, BEGIN) or is_mark(new, END)
        return new.args[0] if marked and isinstance(new, Call) else new


def _opened(function: Function, is_entry: bool, ctx: PassContext) -> Function:
    if not is_region(function):
        if is_primitive(function):
            return function
        return with_body(function, _Unmarked().rewrite(function.body))
    name = str(function.attrs["Compiler"])
    known = {e.name: e for e in (*ctx.regions, *ctx.externals)}
    external = known.get(name) or find(name)
    plain = plain_function(function)
    body = _kernel(function, plain, external, ctx) or plain.body
    return dataclasses.replace(function, body=body, attrs={} if is_entry else {"Internal": 1})


def _kernel(
    function: Function, plain: Function, external: External, ctx: PassContext
) -> Call | None:
    """The call of the region's kernel; None if it is to be ordinary code."""
    if not _is_result(type_of(plain.body)) or not all(map(_may_be_inside, postorder(plain.body))):
        return None
    region, args = _with_operands(function, external)
    made = compile_region(ctx.kernels, region, external)
    return (
        None if made is None else typed(Call(made, args, span=function.span), type_of(plain.body))
    )


def _is_result(type_: Type) -> bool:
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    return bool(fields) and all(isinstance(f, TensorType) for f in fields)


def _may_be_inside(node: Expr) -> bool:
    """Whether a node of a region can be part of a kernel whose operands' types say all sizes."""
    if not isinstance(node, Call):
        return isinstance(node, Var | Constant | Tuple | TupleGetItem | Op)
    op = node.op
    if not isinstance(op, Op) or is_direct(op) or op.bound is not None or op.shape_values:
        return False
    return not demands(node, tuple([type_of(a) for a in node.args]))[0]


class _Operands(Rewriter):
    """Puts variables in the place of constants that are to be operands."""

    def __init__(self, memo: Mapping[Expr, Expr], names: str) -> None:
        super().__init__(memo)
        self.names = names
        self.found: dict[Constant, Var] = {}

    def leaf(self, node: Expr) -> Expr:
        if not isinstance(node, Constant) or (is_known(node) and node.data.size == 1):
            return node
        var = fresh_var(f"{self.names}{len(self.found)}", type_of(node))
        return self.found.setdefault(node, var)


class _Owned(_Operands):
    """The same where the backend owns constants: those that are bound late are operands all the same."""

    def leaf(self, node: Expr) -> Expr:
        return node if is_known(node) else super().leaf(node)


def _with_operands(function: Function, external: External) -> tuple[Function, tuple[Expr, ...]]:
    """The region as a function of its own variables, and what it is called with."""
    kind = _Owned if external.constants == "owned" else _Operands
    params: dict[Expr, Var] = {p: fresh_var(p.name_hint, type_of(p)) for p in function.params}
    outer = kind(params, "c")
    for call in composites(function):
        inner = call.op
        if not isinstance(inner, Function):
            continue
        own = kind({}, "k")
        body = own.rewrite(inner.body)
        args = [outer.rewrite(a) for a in (*call.args, *own.found)]
        made = _function((*inner.params, *own.found.values()), body, inner)
        outer.memo[call] = typed(Call(made, tuple(args), span=call.span), type_of(call))
    body = outer.rewrite(function.body)
    attrs = {"Primitive": 1, "Compiler": external.name}
    own_params = (*params.values(), *outer.found.values())
    region = dataclasses.replace(_function(own_params, body, function), attrs=attrs)
    return region, (*function.params, *outer.found)


def _function(params: tuple[Var, ...], body: Expr, source: Function) -> Function:
    types = FuncType([type_of(p) for p in params], type_of(body))
    made = Function(params, body, type_of(body), (), source.attrs, span=source.span)
    return typed(made, types)


def open_regions(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    result = mod
    for var, function in mod.functions.items():
        new = _opened(function, var.name_hint in ctx.devices.entries, ctx)
        if new is not function:
            result = mod.shallow_copy() if result is mod else result
            result[var] = new
    return result


OPEN_REGIONS = Pass("open_regions", open_regions, required=True)
