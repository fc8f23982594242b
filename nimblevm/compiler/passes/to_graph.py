"""Put the values of lets in the place of their variables: graph normal form. A pass that users call.

before:  def @main(%x: float32) { let %a = exp(%x); let %b = %a + %a; tanh(%b) }
after:   def @main(%x: float32) { %0 = exp(%x); tanh(%0 + %0) }       (%0: one node with two parents)

A let stays whose value has an effect or may see one: calls of functions, references, lowered operators
(vm.*, memory.*); and one whose function calls itself. Bindings never read are dropped with the others. A node with
several parents is evaluated once where all of them see it, so nothing is computed twice in a block; a
value used only inside a local function is computed there, at each call, as in TVM.

Needs: inferred types. Keeps: types. Undoes: to_anf. Cost: O(nodes). Source: TVM's ToGraphNormalForm.
"""

from __future__ import annotations

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    is_primitive,
    map_functions,
    postorder,
    recursive_vars,
    with_body,
)
from nimblevm.relay.ir import (
    Call,
    Constructor,
    Expr,
    Function,
    Leaf,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Var,
    children,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op


class _Inliner(Rewriter):
    def __init__(self, root: Expr) -> None:
        super().__init__()
        self.moves: dict[Expr, bool] = {}
        self.replaced: set[Var] = set()
        recursive = recursive_vars(root)
        for node in postorder(root):
            inner = () if isinstance(node, Leaf | Function) else children(node)
            self.moves[node] = _is_pure(node) and all(self.moves[child] for child in inner)
            if isinstance(node, Let) and self.moves[node.value] and node.var not in recursive:
                self.replaced.add(node.var)

    def bind(self, let: Let, value: Expr) -> None:
        if let.var in self.replaced and value.checked_type is let.var.checked_type:
            self.memo[let.var] = value

    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(new, Let) and self.memo.get(new.var, new.var) is not new.var:
            return new.body
        return new


def _is_pure(node: Expr) -> bool:
    if isinstance(node, RefCreate | RefRead | RefWrite):
        return False
    if isinstance(node, Call):
        if isinstance(node.op, Op):
            return not node.op.name.startswith(("vm.", "memory."))
        return isinstance(node.op, Constructor)
    return True


def to_graph(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def change(function: Function) -> Function:
        if is_primitive(function):
            return function
        return with_body(function, _Inliner(function.body).rewrite(function.body))

    return map_functions(mod, change)


TO_GRAPH = Pass("to_graph", to_graph)
