"""Put a function literal around constructors and global functions that are used as values. A pass that users call.

before:  @map(Some, %xs)                                      @map(@f, %xs)
after:   @map(fn (%a0: float32) { Some(%a0) }, %xs)           @map(fn (%a0: float32) { @f(%a0) }, %xs)

Calls stay as they are, and constructors without fields, which are values already. The parameters' types are
inferred, so that a generic function becomes what its place asks for.

Needs: inferred types. Keeps: them (inferred anew where something changed). Cost: O(nodes). Source: TVM's
EtaExpand.
"""

from __future__ import annotations

import dataclasses

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import map_functions
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Call, Constructor, Expr, Function, GlobalVar, Leaf, Var, children
from nimblevm.relay.module import IRModule
from nimblevm.relay.visitor import post_order, with_children


class _Expander:
    def __init__(self, mod: IRModule, constructors: bool, global_vars: bool) -> None:
        self.mod = mod
        self.constructors = constructors
        self.global_vars = global_vars

    def _value(self, node: Expr) -> Expr:
        """What a leaf that is used as a value becomes."""
        count = 0
        if self.constructors and isinstance(node, Constructor):
            count = len(node.inputs)
            if not count:
                return node
        elif not self.global_vars or not isinstance(node, GlobalVar) or node not in self.mod:
            return node
        else:
            count = len(self.mod.function(node).params)
        params = tuple([Var(f"a{i}") for i in range(count)])
        return Function(params, Call(node, params))

    def expand(self, function: Function) -> Function:
        done: dict[Expr, Expr] = {}
        for node in post_order(function.body):
            parts = children(node)
            new = [self._value(p) if isinstance(p, Leaf) else done[p] for p in parts]
            if isinstance(node, Call) and isinstance(node.op, Leaf):
                new[0] = node.op
            done[node] = with_children(node, tuple(new))
        body = done[function.body]
        body = self._value(body) if isinstance(body, Leaf) else body
        if body is function.body:
            return function
        return dataclasses.replace(function, body=body, checked_type=None)


def eta_expand_pass(constructors: bool = False, global_vars: bool = False) -> Pass:
    """The pass for constructors, for global functions, or for both."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        result = map_functions(mod, _Expander(mod, constructors, global_vars).expand)
        return mod if result is mod else infer_type(result)

    return Pass("eta_expand", run)


ETA_EXPAND = eta_expand_pass(constructors=True, global_vars=True)
"""The pass for both."""
