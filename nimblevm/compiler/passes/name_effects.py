"""Name every value whose evaluation has an effect, so that no later pass moves or drops one by
accident.

before:  def @main(%r: ref(int32)) { let %t = (ref_read(%r), 1); let %u = ref_write(%r, 7); %t.0 }
after:   def @main(%r: ref(int32)) { let %v0 = ref_read(%r); let %t = (%v0, 1);
                                     let %u = ref_write(%r, 7); %t.0 }

Effects are: to create, read and write references, and to call functions and closures (they may do
all of that, or never return); ifs and matches around such. Where a node of the graph is evaluated
follows from its uses (see to_anf), so a pass that drops one of two uses, or that takes a field out
of a tuple, would change what the program means. After this pass every node with an effect is the
value of a let or the end of its block; operators, tuples and function literals, which may be
evaluated anywhere between, stay as they are.

Needs: inferred types. Keeps: them, and tail calls. Cost: as to_anf.
"""

from __future__ import annotations

from nimblevm.compiler.home_blocks import sub_roots
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.passes.to_anf import Normalizer
from nimblevm.compiler.rewrite import is_primitive, map_functions, postorder, with_body
from nimblevm.relay.ir import (
    Call,
    Constructor,
    Expr,
    Function,
    Leaf,
    RefCreate,
    RefRead,
    RefWrite,
    Var,
    children,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op


class Namer(Normalizer):
    """Names `named` nodes alone and leaves the others where they are, and all lets."""

    def __init__(self, root: Expr, mod: IRModule, named: frozenset[Expr]) -> None:
        super().__init__(root, mod)
        self.to_name = named

    def finish(self, node: Expr) -> None:
        if node in self.to_name:
            super().finish(node)
        else:
            self.hint.pop(node, None)
            self.atom[node] = self.simple(node)

    def rename(self, var: Var, atom: Expr, block: int) -> None:
        if atom is not var:
            self.bindings[block].append((var, atom))

    def open(self, node: Expr, index: int) -> None:
        """Variables of patterns keep their names."""

    def finish_match(self, node: Expr) -> Expr:
        return node

    def operand(self, node: Expr, block: int) -> Expr:
        return self.atom_of(node)

    def may_end(self, var: Var, value: Expr) -> bool:
        return var.checked_type is value.checked_type

    def named(self, atom: Expr, block: int) -> Expr:
        return atom


def effects_of(root: Expr) -> frozenset[Expr]:
    """The nodes whose evaluation has an effect of its own or in a branch. Operands do not count:
    they have names of their own.
    """
    around: set[Expr] = set()  # the node, its operands or its branches
    for node in postorder(root):
        if _has_effect(node) or (
            not isinstance(node, Leaf | Function) and any(c in around for c in children(node))
        ):
            around.add(node)
    branching = (n for n in around if sub_roots(n) and any(c in around for c in sub_roots(n)))
    return frozenset([*(n for n in around if _has_effect(n)), *branching])


def _has_effect(node: Expr) -> bool:
    match node:
        case RefCreate() | RefRead() | RefWrite():
            return True
        case Call(op=op):
            return not isinstance(op, Op | Constructor)
    return False


def name_effects(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def name(function: Function) -> Function:
        effects = frozenset[Expr]() if is_primitive(function) else effects_of(function.body)
        if not effects:
            return function
        return with_body(function, Namer(function.body, mod, effects).run())

    return map_functions(mod, name)


NAME_EFFECTS = Pass("name_effects", name_effects, required=True)
