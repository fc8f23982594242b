"""while_loop: a loop as a recursive local function, as TVM users know it.

i, acc = relay.var("i", shape=(), dtype="int32"), relay.var("acc", shape=(relay.Any(), 4))
loop = while_loop(lambda i, acc: relay.less(i, n), [i, acc], lambda i, acc: [i + one, f(acc)])
result = relay.Call(loop, (zero, start))          # a tuple of the last values
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nimblevm.relay import ir
from nimblevm.relay.call import as_expr
from nimblevm.relay.scope_builder import ScopeBuilder


def while_loop(
    cond: Callable[..., ir.Expr],
    loop_vars: Sequence[ir.Expr],
    loop_bodies: Callable[..., Sequence[Any]],
) -> ir.Let:
    """A function of the loop variables that applies `loop_bodies` while `cond` holds; its value is their tuple.

    `cond` and `loop_bodies` are given fresh variables with the names and types of `loop_vars`.
    """
    builder = ScopeBuilder()
    fresh: list[ir.Var] = []
    for position, loop_var in enumerate(loop_vars):
        name = loop_var.name_hint if isinstance(loop_var, ir.Var) else f"arg{position}"
        fresh.append(ir.Var(name, builder.type_of(loop_var)))
    loop = ir.Var("while_loop")
    with builder.if_scope(cond(*fresh)):
        builder.ret(ir.Call(loop, tuple(as_expr(value) for value in loop_bodies(*fresh))))
    with builder.else_scope():
        builder.ret(ir.Tuple(tuple(fresh)))
    return ir.Let(loop, ir.Function(tuple(fresh), builder.get()), loop)


__all__ = ["while_loop"]
