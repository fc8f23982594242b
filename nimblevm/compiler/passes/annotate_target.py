"""Mark what external backends take: TVM's AnnotateTarget. A pass that users call.

before:  nn.relu(nn.dense(%x, %w))                        (targets: "acc", which takes both operators)
after:   %0 = annotation.compiler_begin(%x, compiler="acc");
         %1 = annotation.compiler_begin(%w, compiler="acc");
         %2 = annotation.compiler_end(nn.dense(%0, %1), compiler="acc");
         annotation.compiler_end(nn.relu(annotation.compiler_begin(%2, compiler="acc")), compiler="acc")

A backend takes the composites that carry its name in front, "acc.dense_relu" (MergeComposite makes them), and the
operators for which tvm.ir.register_op_attr(operator, "target.acc") says so. Of several targets the first one that takes
a node gets it. With include_non_call_ops tuples go along that only nodes of one target read, and fields of a target's
tuples that only it reads. What is marked already stays as it is. What no target takes carries no mark, where TVM
writes those of "default".

Needs: inferred types. Keeps: both. Cost: O(nodes), times the targets.
"""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm.compiler.annotated import AnnotatedFunction, is_composite
from nimblevm.compiler.external import is_wanted, op_check
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    is_primitive,
    map_functions,
    op_call,
    type_of,
    with_body,
    with_children,
)
from nimblevm.relay.ir import Call, Expr, Function, Tuple, TupleGetItem
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.compiler_region import BEGIN, END, MARKS
from nimblevm.relay.op.registry import Op


def annotate_target_pass(targets: str | Sequence[str], include_non_call_ops: bool = True) -> Pass:
    """As a pass for given targets, in order of preference. TypeError for what is no name."""
    names = (targets,) if isinstance(targets, str) else tuple(targets)
    if not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"targets must be names of external backends, not {targets!r}")

    def annotate(function: Function) -> Function:
        if is_primitive(function):
            return function
        graph = AnnotatedFunction(function)
        marked = {n for region in graph.regions for n in region.nodes}
        taken = _taken(graph, marked, names)
        if taken and include_non_call_ops:
            _take_tuples(graph, marked, taken)
        return with_body(function, _Annotator(taken).rewrite(function.body))

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        return map_functions(mod, annotate)

    return Pass("annotate_target", run)


def _taken(graph: AnnotatedFunction, marked: set[Expr], names: Sequence[str]) -> dict[Expr, str]:
    """Operators and composites -> their target."""
    taken: dict[Expr, str] = {}
    for node in graph.nodes:
        if node in marked or not isinstance(node, Call):
            continue
        if isinstance(node.op, Op) and node.op.name in MARKS:
            continue
        for name in names:
            if _takes(name, node):
                taken[node] = name
                break
    return taken


def _takes(target: str, call: Call) -> bool:
    if is_composite(call.op) and isinstance(call.op, Function):
        return str(call.op.attrs["Composite"]).startswith(f"{target}.")
    check = op_check(call.op.name, target) if isinstance(call.op, Op) else None
    return check is not None and is_wanted(check, call, f"target.{target} of {call.op!r}")


def _take_tuples(graph: AnnotatedFunction, marked: set[Expr], taken: dict[Expr, str]) -> None:
    for node in reversed(graph.nodes):  # readers first
        if node in marked or not isinstance(node, Tuple | TupleGetItem):
            continue
        targets = {taken.get(reader, "") for reader in graph.readers.get(node, ())}
        if len(targets) != 1 or "" in targets:
            continue
        target = targets.pop()
        if isinstance(node, Tuple) or taken.get(node.tuple_value) == target:
            taken[node] = target


class _Annotator(Rewriter):
    def __init__(self, taken: dict[Expr, str]) -> None:
        super().__init__()
        self.taken = taken

    def enter(self, node: Expr) -> bool:
        return not is_composite(node)

    def visit(self, node: Expr, new: Expr) -> Expr:
        target = self.taken.get(node)
        if target is None:
            return new
        parts = [
            p if isinstance(p, Op) or is_composite(p) else _mark(BEGIN, p, target)
            for p in _parts(new)
        ]
        return _mark(END, with_children(new, tuple(parts)), target)


def _parts(node: Expr) -> tuple[Expr, ...]:
    match node:
        case Call(op=op, args=args):
            return (op, *args)
        case Tuple(fields=fields):
            return fields
        case TupleGetItem(tuple_value=value):
            return (value,)
    raise TypeError(f"a target takes calls, tuples and fields, not {type(node).__name__}")


def _mark(name: str, value: Expr, target: str) -> Call:
    return op_call(name, (value,), type_of(value), value.span, compiler=target)


__all__ = ["annotate_target_pass"]
