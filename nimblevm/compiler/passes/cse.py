"""Compute equal expressions once.

before:  tanh(%x) * tanh(%x)                  (two nodes)
after:   %0 = tanh(%x); %0 * %0               (one node, which to_anf evaluates once)

Two operator calls, tuples or fields are equal if operator, attributes and operands are, two checks if they check the
same. Only where the earlier one stands in a block around the later one: it has run by then, so nothing is computed on
a path that did not compute it before, and one that may fail has not failed.

Needs: inferred types. Keeps: them. Cost: O(n log n).
"""

from __future__ import annotations

from collections.abc import Callable

from nimblevm.compiler.home_blocks import HomeBlocks
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, with_body
from nimblevm.relay.ir import Call, Constant, Expr, Function, Tuple, TupleGetItem, late_array
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op

Skip = Callable[[Call], bool]
"""Whether a call is to stay as it is, and what reads it to read itself."""


class _Merger(Rewriter):
    def __init__(self, root: Expr, skip: Skip | None) -> None:
        super().__init__()
        self.skip = skip
        self.place = HomeBlocks(root)
        self.found: dict[object, tuple[int, Expr]] = {}

    def visit(self, node: Expr, new: Expr) -> Expr:
        key = _key(new)
        home = self.place.home.get(node)
        if key is None or home is None:
            return new
        if self.skip is not None and isinstance(new, Call) and self.skip(new):
            return new
        known = self.found.get(key)
        if known is not None and known[1].checked_type is new.checked_type:
            outer, earlier = known
            if self.place.tree.common(outer, home) == outer:
                return earlier
        self.found[key] = (home, new)
        return new


def _operand(node: Expr) -> object:
    late = late_array(node)
    if late is not None:
        return late.key
    if isinstance(node, Constant) and node.data.size == 1:
        return (node.data.dtype.name, node.data.shape, node.data.tobytes())
    return node


def _key(node: Expr) -> object:
    match node:
        case Call(op=Op() as op):
            operands = tuple([_operand(a) for a in node.args])
            if op.name == "vm.match_type":
                return (op, node.attrs.type, operands)  # whatever place the message names
            if op.name == "vm.check_broadcast":
                return (op, node.attrs.shape, operands)
            if op.name.startswith(("vm.", "memory.")) and op.name != "vm.dim_of":
                return None
            return (op, node.attrs, operands)
        case Tuple():
            return ("tuple", tuple([_operand(f) for f in node.fields]))
        case TupleGetItem():
            return ("get", node.tuple_value, node.index)
    return None


def cse_pass(skip: Skip | None = None) -> Pass:
    """The pass for all but the calls that `skip` names."""

    def merge(function: Function) -> Function:
        return with_body(function, _Merger(function.body, skip).rewrite(function.body))

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        return map_functions(mod, merge)

    return Pass("cse", run)


CSE = cse_pass()
"""See the module's docstring."""
