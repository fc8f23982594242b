"""Group operators into kernels."""

from __future__ import annotations

from nimblevm.compiler.op_class import OpClass, class_of
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    fresh_var,
    let_chain,
    make_lets,
    map_functions,
    sub_blocks,
    type_of,
    typed,
    with_body,
    with_children,
)
from nimblevm.relay.ir import Call, Constant, Expr, Function, IRModule, Leaf, Tuple, Var, children
from nimblevm.relay.types import FuncType


def _wrap(call: Call, defs: dict[Var, Expr]) -> Call:
    params: dict[Var, Var] = {}
    args: list[Expr] = []
    memo: dict[Expr, Expr] = {}

    def param(atom: Expr) -> Expr:
        if isinstance(atom, Constant) and atom.data.size == 1:
            return atom
        found = memo.get(atom)
        if found is None:
            new = fresh_var(f"p{len(args)}", type_of(atom))
            params[new] = new
            args.append(atom)
            memo[atom] = found = new
        return found

    new_args: list[Expr] = []
    for a in call.args:
        d = defs.get(a) if isinstance(a, Var) else None
        if isinstance(d, Tuple):
            new_args.append(typed(Tuple(tuple([param(f) for f in d.fields])), type_of(d)))
        else:
            new_args.append(param(a))
    body = typed(Call(call.op, tuple(new_args), call.attrs, span=call.span), type_of(call))
    fn = typed(
        Function(tuple(params), body, type_of(call), (), {"Primitive": 1}, span=call.span),
        FuncType([type_of(p) for p in params], type_of(call)),
    )
    return typed(Call(fn, tuple(args), span=call.span), type_of(call))


def _fuse(function: Function, unbox: bool) -> Function:
    defs: dict[Var, Expr] = {}
    order = []
    stack = [function.body]
    while stack:
        b = stack.pop()
        order.append(b)
        lets, tail = let_chain(b)
        for let in lets:
            defs[let.var] = let.value
        for v in (*(x.value for x in lets), tail):
            stack.extend(sub_blocks(v))
    done: dict[int, Expr] = {}

    def simple(v: Expr) -> Expr:
        if class_of(v, unbox) is OpClass.KERNEL:
            return _wrap(v, defs)
        if not sub_blocks(v):
            return v
        return with_children(v, tuple(done.get(id(c), c) for c in children(v)))

    for b in reversed(order):
        if isinstance(b, Leaf):
            continue
        lets, tail = let_chain(b)
        bindings = [(x.var, simple(x.value)) for x in lets]
        done[id(b)] = make_lets(bindings, simple(tail))
    return with_body(function, done.get(id(function.body), function.body))


def fuse_ops(mod: IRModule, ctx: PassContext) -> IRModule:
    return map_functions(mod, lambda f: _fuse(f, ctx.unbox))


FUSE_OPS = Pass("fuse_ops", fuse_ops, required=True)
