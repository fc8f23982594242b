"""Write the operators of fused groups in the place of the groups' calls. A pass that users call.

before:  fn (%p0, %p1, Primitive=1) { tanh(%p0 + %p1) }(%x, %y)
after:   tanh(%x + %y)

The inverse of FuseOps but for A-normal form, which stays. Regions of external backends (with the attribute Compiler)
stay groups.

Needs: inferred types. Keeps: them. Cost: O(nodes). Source: TVM's DefuseOps.
"""

from __future__ import annotations

from nimblevm.compiler.copying import FunctionCopy
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, is_primitive, map_functions, postorder, with_body
from nimblevm.relay.ir import Call, Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import free_dims


class _Opener(Rewriter):
    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(new.op, Function):
            return new
        group = new.op
        if not is_primitive(group) or "Compiler" in group.attrs:
            return new
        types = [n.checked_type for n in postorder(group.body) if n.checked_type is not None]
        copy = FunctionCopy(group, {}, frozenset(dim for t in types for dim in free_dims(t)))
        copy.memo.update(zip(group.params, new.args, strict=True))
        return copy.rewrite(group.body)


def defuse_ops(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def change(function: Function) -> Function:
        if is_primitive(function):
            return function
        return with_body(function, _Opener().rewrite(function.body))

    return map_functions(mod, change)


DEFUSE_OPS = Pass("defuse_ops", defuse_ops)
