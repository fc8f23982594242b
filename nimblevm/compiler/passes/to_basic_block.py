"""Give a name to what several blocks read: basic block normal form. A pass that users call.

before:  %0 = exp(%x); if (%c) { %0 + 1f } else { %0 * 2f }
after:   let %v0 = exp(%x); if (%c) { %v0 + 1f } else { %v0 * 2f }

A node of the graph that a branch, a clause or a local function reads is evaluated in the innermost block that
dominates all of its uses; the let says which one that is. Nodes that one block alone reads stay as they are. In a
function where anything gets a name, calls and references get names, too, so that they stay in order.

Needs: inferred types. Keeps: them. Cost: as to_anf. Source: TVM's ToBasicBlockNormalForm.
"""

from __future__ import annotations

from collections.abc import Iterator

from nimblevm.compiler.home_blocks import HomeBlocks, is_leaf, sub_roots
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.passes.name_effects import Namer, effects_of
from nimblevm.compiler.rewrite import is_primitive, map_functions, with_body
from nimblevm.errors import WellFormedError
from nimblevm.relay.ir import Expr, Function, children
from nimblevm.relay.module import IRModule


def _read_elsewhere(root: Expr) -> Iterator[Expr]:
    """The nodes that a block reads in which they are not evaluated."""
    place = HomeBlocks(root)
    for node, here in place.home.items():
        roots = sub_roots(node)
        parts = children(node)
        inside = parts[len(parts) - len(roots) :]
        uses = [(part, here) for part in parts[: len(parts) - len(roots)]]
        uses += zip(inside, place.sub.get(node, ()), strict=True)
        yield from (p for p, block in uses if not is_leaf(p) and place.home[p] != block)


def to_basic_block(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def change(function: Function) -> Function:
        if is_primitive(function):
            return function
        shared = frozenset(_read_elsewhere(function.body))
        if not shared:
            return function
        named = shared | effects_of(function.body)
        return with_body(function, Namer(function.body, mod, named).run())

    return map_functions(mod, change)


def check_basic_block_normal_form(expr: Expr) -> None:
    """WellFormedError unless every node is evaluated in the block that reads it (to_basic_block makes it so)."""
    found = next(_read_elsewhere(expr), None)
    if found is not None:
        raise WellFormedError(
            f"no basic block normal form: several blocks read {found!r}, and no let says where it is evaluated; "
            "transform.ToBasicBlockNormalForm() writes one"
        )


TO_BASIC_BLOCK = Pass("to_basic_block", to_basic_block)
