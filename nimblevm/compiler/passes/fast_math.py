"""Name the fast forms of operators. A pass that users call.

before:  nn.softmax(%x, axis=1)
after:   nn.fast_softmax(%x, axis=1)

exp, tanh and erf stay: there is one kernel of each, within 4 ulp in float32 and as fast as one that is less exact
(docs/performance.md), and nn.fast_softmax is as exact as nn.softmax. So that this pass changes no bit; it is what
scripts for TVM expect to find.

Needs: inferred types. Keeps: them. Cost: one walk, O(nodes). Source: TVM's FastMath.
"""

from __future__ import annotations

import dataclasses

from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, with_body
from nimblevm.relay.ir import Call, Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import registry


class _Namer(Rewriter):
    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(new, Call) and is_op(new, "nn.softmax"):
            return dataclasses.replace(new, op=registry.get("nn.fast_softmax"))
        return new


def fast_math(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def change(function: Function) -> Function:
        return with_body(function, _Namer().rewrite(function.body))

    return map_functions(mod, change)


FAST_MATH = Pass("fast_math", fast_math)
