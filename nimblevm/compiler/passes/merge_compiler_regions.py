"""Join the marked regions of a backend where they are connected: TVM's MergeCompilerRegions. A pass that users call.

before:  %0 = annotation.compiler_end(tanh(annotation.compiler_begin(%x, compiler="acc")), compiler="acc");
         annotation.compiler_end(exp(annotation.compiler_begin(%0, compiler="acc")), compiler="acc")
after:   annotation.compiler_end(exp(tanh(annotation.compiler_begin(%x, compiler="acc"))), compiler="acc")

Two regions are joined if one reads the other, both are of one backend and evaluated in the same block, and no path
leads from the joined region out and back into it: partition's rule (compiler/block_dag.py). Backends take turns, in the
order in which their first regions are evaluated. Regions with a let between them stay apart: ToGraphNormalForm before
this pass takes the let away.

Needs: inferred types. Keeps: both. Cost: O(n log n), times the backends.
"""

from __future__ import annotations

from nimblevm.compiler.annotated import AnnotatedFunction, is_composite, is_mark
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, is_primitive, map_functions, with_body
from nimblevm.relay.ir import Call, Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.compiler_region import END


def merge_regions(function: Function) -> Function:
    """One function with its regions joined."""
    if is_primitive(function):
        return function
    graph = AnnotatedFunction(function)
    units = graph.units()
    for compiler in dict.fromkeys(r.compiler for r in graph.regions):
        own = [r for r in graph.regions if r.compiler == compiler]
        for group in units.connected({units.of[graph.item[r.nodes[0]]]: r.home for r in own}):
            units.join(group)
    inner: dict[Expr, Expr] = {}
    for region in graph.regions:
        for begin in region.begins:
            value = begin.args[0]
            if is_mark(value, END) and units.of[graph.item[value]] == units.of[graph.item[begin]]:
                inner[begin] = value
    return with_body(function, _Joiner(inner).rewrite(function.body)) if inner else function


class _Joiner(Rewriter):
    """Puts what stands behind an end in the place of the begins that read it."""

    def __init__(self, inner: dict[Expr, Expr]) -> None:
        super().__init__()
        self.inner = inner

    def enter(self, node: Expr) -> bool:
        return not is_composite(node)

    def visit(self, node: Expr, new: Expr) -> Expr:
        if node not in self.inner:
            return new
        end = self.memo[self.inner[node]]
        if not isinstance(end, Call):
            raise TypeError("a compiler_end is a call")
        return end.args[0]


def merge_compiler_regions(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, merge_regions)


MERGE_COMPILER_REGIONS = Pass("merge_compiler_regions", merge_compiler_regions)
