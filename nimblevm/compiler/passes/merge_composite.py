"""Wrap what a pattern table matches in functions with the attribute Composite, as TVM's MergeComposite does.

before:  nn.relu(nn.dense(%x, %w))              (table: [("acc.dense_relu", ...)])
after:   fn (%FunctionVar_0, %FunctionVar_1, PartitionedFromPattern="nn.dense_nn.relu_", Composite="acc.dense_relu") {
           nn.relu(nn.dense(%FunctionVar_0, %FunctionVar_1))
         }(%x, %w)

For users who look at or rewrite such functions themselves; partition, which gives operators to external backends,
matches by itself and also through lets. Rows match in the table's order, and nothing inside of an earlier row's
function.

Needs: inferred types, graph normal form (patterns see no lets). Keeps: both. Cost: O(nodes), times the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nimblevm.compiler.external import Check, PatternRow, pattern_row
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import map_functions, postorder, with_body
from nimblevm.relay.dataflow_pattern import DFPattern, partition
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Expr, Function
from nimblevm.relay.module import IRModule


def merge_composite_pass(pattern_table: Sequence[PatternRow]) -> Pass:
    """As a pass for a given table."""
    rows = [pattern_row(row) for row in pattern_table]

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        for name, pattern, check in rows:
            merge = partial(_merged, name=name, pattern=pattern, check=check)
            merged = map_functions(mod, merge)
            mod = mod if merged is mod else infer_type(merged)
        return mod

    return Pass("merge_composite", run)


def _merged(function: Function, name: str, pattern: DFPattern, check: Check) -> Function:
    inside: set[Expr] = set()
    for node in postorder(function.body):
        if isinstance(node, Function) and "Composite" in node.attrs:
            inside.update(postorder(node.body))
    body = partition(
        pattern, function.body, {"Composite": name}, lambda e: e not in inside and check(e)
    )
    found = any(
        isinstance(n, Function) and n.attrs.get("Composite") == name for n in postorder(body)
    )
    return with_body(function, body) if found else function


__all__ = ["merge_composite_pass"]
