"""Drop let bindings whose value has no effect and whose variable is never read.

before:  def @main(%x: Tensor[(?, 4), float32]) { let %a = exp(%x); let %b = %x + %x; %b }
after:   def @main(%x: Tensor[(?, 4), float32]) { let %b = %x + %x; %b }

Operators, also those that may fail, tuples, constructors, function literals, new references and
reads of references are dropped, and ifs and matches of such. Calls of functions and closures stay
(they may write, or never return).

Needs: nothing. Keeps: everything. Cost: O(nodes), reference counts on a DAG.
Not done: dead fields, dead parameters, functions that nothing calls.
"""

from __future__ import annotations

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, postorder, with_body
from nimblevm.relay.ir import Call, Constructor, Expr, Function, Leaf, Let, RefWrite, children
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op

_EFFECTS = frozenset({"vm.call_kernel", "memory.kill", "vm.bind_dim"})


class _Dropper(Rewriter):
    """Inner lets are decided before outer ones, so one walk finds chains of dead bindings."""

    def __init__(self, root: Expr) -> None:
        super().__init__()
        self.reads: dict[Expr, int] = {root: 1}
        self.pure: dict[Expr, bool] = {}
        self.dropped: set[Expr] = set()
        for node in postorder(root):
            parts = () if isinstance(node, Leaf) else children(node)
            for child in parts:
                self.reads[child] = self.reads.get(child, 0) + 1
            self.pure[node] = _is_pure(node) and (
                isinstance(node, Function) or all(self.pure.get(c, True) for c in parts)
            )

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(node, Let) or not isinstance(new, Let):
            return new
        if self.reads.get(node.var, 0) or not self.pure[node.value]:
            return new
        self._release(node.value)
        self.dropped.add(node)
        return new.body

    def _release(self, root: Expr) -> None:
        """A parent of `root` is gone."""
        stack = [root]
        while stack:
            node = stack.pop()
            self.reads[node] -= 1
            if self.reads[node] == 0 and not isinstance(node, Leaf):
                # The value of a let that was dropped has been released then.
                parts = (
                    (node.body,)
                    if isinstance(node, Let) and node in self.dropped
                    else children(node)
                )
                stack.extend(parts)


def _is_pure(node: Expr) -> bool:
    if isinstance(node, RefWrite):
        return False
    if isinstance(node, Call):
        if isinstance(node.op, Op):
            return node.op.name not in _EFFECTS
        return isinstance(node.op, Constructor)
    return True


def _drop(function: Function) -> Function:
    return with_body(function, _Dropper(function.body).rewrite(function.body))


def dead_code(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, _drop)


DEAD_CODE = Pass("dead_code", dead_code)
