"""Run at compile time what is known there. A pass that users call.

before:  let %f = fn (%c: bool, %y: float32) { if (%c) { exp(%y) } else { %y } }; %f(True, %x)
after:   exp(%x)

Rounds, until nothing changes, of putting in the bodies of known functions (`unfold`), deciding matches on known
constructors and ifs on constants, folding constants, and dropping what is dead. A recursive function is unfolded
where that decides its first branch, MAX_CALLS times in all; so a loop with a constant count becomes straight
code, and a list that is known is walked.

Needs: inferred types. Makes A-normal form. Cost: O(nodes of the result) a round, at most MAX_ROUNDS. Not done: known
contents of references. Source: TVM's PartialEvaluate, but online and in rounds, without its store.
"""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.passes.dead_code import DEAD_CODE
from nimblevm.compiler.passes.fold_constant import FOLD_CONSTANT
from nimblevm.compiler.passes.name_effects import NAME_EFFECTS
from nimblevm.compiler.passes.simplify import SIMPLIFY
from nimblevm.compiler.passes.to_anf import TO_ANF
from nimblevm.compiler.unfold import Unfolder
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import GlobalVar
from nimblevm.relay.module import IRModule

MAX_ROUNDS = 64
MAX_CALLS = 256


def partial_eval(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    inner = PassContext(evaluate=ctx.evaluate, unbox=ctx.unbox)
    unfolder = Unfolder(MAX_CALLS)
    mod = NAME_EFFECTS(mod, inner)
    active = list(mod.functions)
    for _ in range(MAX_ROUNDS):
        mod = infer_type(_on(mod, active, (TO_ANF, SIMPLIFY, FOLD_CONSTANT, DEAD_CODE), inner))
        new = unfolder.run(mod, active)
        changed = [var for var in mod.functions if new.function(var) is not mod.function(var)]
        if not changed and len(active) == len(mod):
            break
        # A function that had nothing to unfold is looked at again when all others have come to rest.
        active = changed or list(mod.functions)
        mod = infer_type(new)
    # What the last round of simplify decided has left lets of variables.
    return DEAD_CODE(TO_ANF(mod, inner), inner)


def _on(
    mod: IRModule, names: Sequence[GlobalVar], steps: Sequence[Pass], ctx: PassContext
) -> IRModule:
    """The module after steps on some of its functions."""
    part = IRModule({var: mod.function(var) for var in names}, mod.type_definitions)
    for step in steps:
        part = step(part, ctx)
    result = mod.shallow_copy()
    for var, function in part.functions.items():
        result[var] = function
    return result


PARTIAL_EVAL = Pass("partial_eval", partial_eval)
