"""What a file can't hold, said with the place in the program."""

from __future__ import annotations

from nimblevm.abi import MAX_RANK
from nimblevm.compiler.rewrite import postorder
from nimblevm.errors import CompileError
from nimblevm.relay.ir import Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType, Type, parts


def check_ranks(mod: IRModule) -> None:
    """CompileError for a tensor with more axes than the runtime has. Needs inferred types. Cost: O(nodes)."""
    seen: set[Type] = set()
    for definition in mod.type_definitions.values():
        for constructor in definition.constructors:
            for field in constructor.inputs:
                _check(field, seen, f"constructor {constructor.name_hint}")
    for var, function in mod.functions.items():
        for node in postorder(function.body):
            _check_node(node, seen, var.name_hint)
        for param in function.params:
            _check_node(param, seen, var.name_hint)


def _check_node(node: Expr, seen: set[Type], name: str) -> None:
    for expr in (node, *node.params) if isinstance(node, Function) else (node,):
        type_ = expr.checked_type
        if type_ is not None and type_ not in seen:
            where = f"{expr.span}: " if expr.span is not None else ""
            _check(type_, seen, f"{where}@{name}")


def _check(root: Type, seen: set[Type], where: str) -> None:
    stack = [root]
    while stack:
        type_ = stack.pop()
        if type_ in seen:
            continue
        seen.add(type_)
        if isinstance(type_, TensorType) and len(type_.shape) > MAX_RANK:
            raise CompileError(
                f"{where}: {type_!r} has rank {len(type_.shape)}; the runtime holds tensors of at most {MAX_RANK} "
                "axes: merge some with reshape"
            )
        stack.extend(parts(type_))


__all__ = ["check_ranks"]
