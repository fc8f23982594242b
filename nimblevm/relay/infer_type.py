"""Type inference: IRModule -> IRModule with every type filled in.

    before:  def @main(%x: Tensor[(?n, 300), float32]) { let %y = nn.dense(%x, %w); tanh(%y) }
    after:   the same with checked_type on every node, and -> Tensor[(?n, 512), float32] as its
    result

One walk types the nodes (explicit stack, each node once, however it is shared), with holes
(unify.py) for what is not annotated; relations of operators whose arguments are not known yet
wait for the holes they need. A second walk in the same order builds new nodes where a type is
new. A node whose type is right already is kept, so inferring twice changes nothing, and unknowns
that inference made earlier are recognised again.

Leaves that are shared by the whole module keep no type: `GlobalVar` (its function's FuncType),
`Op`, `Constructor` (`constructor_type`). Everything else has a checked_type without holes
afterwards.

What inference can't decide about dims is allowed here; insert_checks makes it a check
(type_context.py). Algorithm: Hindley-Milner with explicit generics, as Relay; dims as
docs/dims.md has them. Cost: O(nodes) steps.
"""

from __future__ import annotations

from collections.abc import Callable

from nimblevm.errors import RelayTypeError
from nimblevm.relay.analysis import global_calls
from nimblevm.relay.gc_pause import gc_paused
from nimblevm.relay.infer_engine import Inference, constructor_type
from nimblevm.relay.infer_rebuild import Rebuilder
from nimblevm.relay.infer_refs import RefClaims
from nimblevm.relay.ir import Expr, Function, GlobalVar, is_complete
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import FuncType, Type


def infer_type(mod: IRModule) -> IRModule:
    """A module with all types; functions that were typed already are kept.

    Raises RelayTypeError, whose message shows every place involved, what was expected and what
    came.
    """
    if not isinstance(mod, IRModule):
        raise TypeError(
            f"infer_type takes an IRModule, not {type(mod).__name__}; IRModule.from_expr(expr) makes one"
        )
    with gc_paused():
        rebuilder = _rebuilt(_inferred(mod, _infer_functions))
    result = mod.shallow_copy()
    for var, function in mod.functions.items():
        new = rebuilder.of(function)
        if new is not function and isinstance(new, Function):
            result[var] = new
    return result


def infer_expr(expr: Expr, mod: IRModule | None = None) -> Expr:
    """`expr` with all types. Free variables need complete annotations (or a checked_type).

    The functions of `mod` must have written (or inferred) signatures where `expr` calls them.
    """

    def work(engine: Inference) -> None:
        for var, function in engine.module.functions.items():
            engine.declare(var, function)
        engine.run(expr)

    engine = _inferred(mod if mod is not None else IRModule(), work)
    return _rebuilt(engine).of(expr)


def infer_type_of(expr: Expr, mod: IRModule | None = None) -> Type:
    """The type of an expression."""
    found = infer_expr(expr, mod)
    if isinstance(found, GlobalVar):
        return signature(found, mod if mod is not None else IRModule())
    if found.checked_type is None:
        raise TypeError(f"{type(expr).__name__} has no type of its own")
    return found.checked_type


def signature(var: GlobalVar, mod: IRModule) -> FuncType:
    """The type of a global function from its annotations; ValueError if they are not complete
    (infer first).
    """
    function = mod.function(var)
    params = [p.checked_type for p in function.params]
    if not is_complete(function.ret_type) or None in params:
        raise ValueError(f"@{var.name_hint} has no complete signature; run infer_type first")
    assert function.ret_type is not None
    return FuncType([p for p in params if p], function.ret_type, function.type_params)


def _infer_functions(engine: Inference) -> None:
    mod = engine.module
    for var, function in mod.functions.items():
        engine.declare(var, function)
    for var in _by_dependency(mod):
        engine.define(var, mod.function(var))
    for var, function in mod.functions.items():
        if _signed(function):
            engine.define(var, function)


def _inferred(mod: IRModule, work: Callable[[Inference], None]) -> Inference:
    """An engine that has done its work; again with fewer claims of refs as long as one was untrue."""
    refs = RefClaims()
    while True:
        engine = Inference(mod, refs)
        try:
            work(engine)
        except RelayTypeError:
            # The error may be the consequence of such a claim.
            if not refs.conflicts:
                raise
        if not refs.conflicts:
            return engine
        refs = refs.weakened()


def _rebuilt(engine: Inference) -> Rebuilder:
    engine.conclude()
    rebuilder = Rebuilder(engine.types, engine.type_args, engine.solver.resolve)
    for node in engine.order:
        if isinstance(node, Function):
            rebuilder.declare(node.params)
    rebuilder.run(engine.order)
    return rebuilder


def _signed(function: Function) -> bool:
    """Whether a signature is written completely."""
    return is_complete(function.ret_type) and all(
        is_complete(p.type_annotation) for p in function.params
    )


def _by_dependency(mod: IRModule) -> list[GlobalVar]:
    """The functions without a complete signature, callees first (cycles are cut where they are
    met).
    """
    order: list[GlobalVar] = []
    entered: set[GlobalVar] = set()
    open_ = [v for v, f in mod.functions.items() if not _signed(f)]
    if len(open_) <= 1:
        return open_
    stack: list[tuple[GlobalVar, bool]] = [(v, False) for v in reversed(open_)]
    while stack:
        var, ready = stack.pop()
        if ready:
            order.append(var)
        elif var not in entered:
            entered.add(var)
            stack.append((var, True))
            for callee in reversed(global_calls(mod.function(var).body)):
                if callee in mod and not _signed(mod.function(callee)):
                    stack.append((mod.get_global_var(callee.name_hint), False))
    return order


__all__ = [
    "constructor_type", "infer_expr", "infer_type", "infer_type_of", "signature",
]  # fmt: skip
