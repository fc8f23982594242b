"""Drop global functions that no entry point reaches.

before:  def @twice(%x: float32) { %x + %x }   def @main(%x: float32) { tanh(%x) }
after:   def @main(%x: float32) { tanh(%x) }

A program that loads the prelude uses three of its functions and would carry all of them. Types
stay: their values may come from outside.

Needs: nothing. Keeps: everything. Cost: O(nodes). Source: TVM's RemoveUnusedFunctions.
"""

from __future__ import annotations

from collections.abc import Iterable

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import postorder
from nimblevm.errors import CompileError
from nimblevm.relay.ir import GlobalVar
from nimblevm.relay.module import IRModule


def remove_unused(mod: IRModule, entry_points: Iterable[str]) -> IRModule:
    """A module with the functions that `entry_points` reach. CompileError for a name that the
    module does not have.
    """
    names = list(entry_points)
    known = {var.name_hint for var in mod.functions}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CompileError(
            f"entry_points names {', '.join(unknown)}, but the module has {', '.join(sorted(known))}"
        )
    pending = [mod.get_global_var(name) for name in names]
    reached = set(pending)
    while pending:
        for node in postorder(mod.function(pending.pop()).body):
            if isinstance(node, GlobalVar) and node in mod.functions and node not in reached:
                reached.add(node)
                pending.append(node)
    if len(reached) == len(mod.functions):
        return mod
    result = mod.shallow_copy()
    for var in mod.functions:
        if var not in reached:
            del result[var]
    return result


def remove_unused_pass(entry_points: Iterable[str]) -> Pass:
    """As a pass for given entry points."""
    names = list(entry_points)

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        return remove_unused(mod, names)

    return Pass("remove_unused", run)


__all__ = ["remove_unused", "remove_unused_pass"]
