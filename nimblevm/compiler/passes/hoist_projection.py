"""Compute what a loop does to each row of a tensor on its own, products above all, once before the loop.

before:  let %loop = fn (%i: int32, %h: Tensor[(1, 8), float32]) {
           if (less(%i, %n)) {                                            (%n is the size of %x's first axis)
             %loop(%i + 1, tanh(nn.dense(reshape(take(%x, %i, axis=0), newshape=[1, 4]), %w) + nn.dense(%h, %u))) }
           else { %h } };
         %loop(0, %start)
after:   let %loop = fn (%i: int32, %h: Tensor[(1, 8), float32], %rows: Tensor[(?n, 8), float32]) {
           if (less(%i, %n)) {
             %loop(%i + 1, tanh(reshape(take(%rows, %i, axis=0), newshape=[1, 8]) + nn.dense(%h, %u)), %rows) }
           else { %h } };
         %loop(0, %start, nn.dense(%x, %w))

One product of n rows reads the weight once, n products of one row read it n times. What is hoisted is the largest part
of a trip that depends on row i and invariants alone (compiler/row_lift.py: biases, pieces, elementwise operators,
embeddings of a row of numbers), if it holds a product. A sum is regrouped so that its row terms and invariant terms
come first. Invariants are parameters that every trip passes on, variables from outside, constants.

Conditions: the loop makes exactly the trips 0 .. n - 1 (compiler/loops.py), n is the source's size, the node is
evaluated in every trip, and everything that is hoisted is total. So no row is computed in vain, unless a trip fails,
and nothing can fail that did not. An early exit, an index that skips, a start other than 0 or a limit of another origin
leave the loop as it is: what hoisting wastes there has no bound. Operands are values, never contents of references, so
a write between trips cannot matter.

The batch is computed where the loop is entered: at each entry, or once for all of them if it depends on nothing that
they pass. Not done: loops that are global functions, products with one value in all trips.

Needs: inferred types, named effects. Keeps: both. Cost: O(nodes).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from nimblevm.compiler.dataflow import FLOATS, Dataflow, is_op
from nimblevm.compiler.loops import Loop, LoopFinder
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    fresh_var,
    is_primitive,
    map_functions,
    op_call,
    type_of,
    with_body,
)
from nimblevm.compiler.row_lift import RowLifter, at_entry, row_of
from nimblevm.relay.ir import Call, Expr, Function, Let, Var
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import FuncType, TensorType

# --- sums ---------------------------------------------------------------------------------------


class _Sums:
    """The sums of a loop's trip in which row terms and invariant terms should come first."""

    def __init__(self, flow: Dataflow, finder: LoopFinder, lifter: RowLifter) -> None:
        self.flow = flow
        self.finder = finder
        self.lifter = lifter
        self.found: dict[Expr, list[Expr]] = {}  # sum -> its terms in the new order
        for node in Dataflow(lifter.region.trip).order:
            if self._is_sum(node) and not self._is_part(node):
                order = self._order(node)
                if order is not None:
                    self.found[node] = order

    def _is_sum(self, node: Expr) -> bool:
        type_ = node.checked_type
        return (
            is_op(node, "add")
            and isinstance(type_, TensorType)
            and type_.dtype in FLOATS
            and self.finder.place.home.get(node) == self.lifter.region.block
        )

    def _is_part(self, node: Expr) -> bool:
        """Whether only another sum reads a sum, which the row terms do not make alone."""
        readers = self.flow.readers(node)
        return len(readers) == 1 and self._is_sum(readers[0]) and self.lifter.of(node) is None

    def _terms(self, root: Expr) -> list[Expr]:
        terms: list[Expr] = []
        stack = [root]
        while stack:
            item = stack.pop()
            node = self.flow.resolve(item)
            near = item is node or self.flow.is_total(node)
            opened = node is root or (near and self._is_sum(node) and self._is_part(node))
            if opened and isinstance(node, Call):
                stack += reversed(node.args)
            else:
                terms.append(item)
        return terms

    def _order(self, root: Expr) -> list[Expr] | None:
        """The terms, those of a batch first; None if they are so already or there is no product among them."""
        terms, lifter = self._terms(root), self.lifter
        first = next((t for t in terms if self._is_projection(t, root)), None)
        lead = lifter.of(first) if first is not None else None
        if first is None or lead is None:
            return None
        ahead = [first]
        for term in terms:
            row = lifter.of(term)
            same = row is not None and row.backward == lead.backward
            if term is not first and (same or lifter.fixed(term) is not None):
                ahead.append(term)
        first_ones = set(ahead)
        rest = [t for t in terms if t not in first_ones]
        return [*ahead, *rest] if rest and len(ahead) > 1 else None

    def _is_projection(self, term: Expr, root: Expr) -> bool:
        row = self.lifter.of(term)
        return row is not None and row.product and term.checked_type is root.checked_type


class _Regrouper(Rewriter):
    def __init__(self, sums: dict[Expr, list[Expr]]) -> None:
        super().__init__()
        self.sums = sums

    def visit(self, node: Expr, new: Expr) -> Expr:
        terms = self.sums.get(node)
        if terms is None:
            return new
        total = self.memo[terms[0]]
        for term in terms[1:]:
            total = op_call("add", (total, self.memo[term]), type_of(node))
        return total


# --- hoisting -----------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Plan:
    """What changes in a loop. rows: parameter that holds a batch -> the batch, in the loop's own terms."""

    loop: Loop
    var: Var
    rows: dict[Var, Expr]


class _Hoister(Rewriter):
    def __init__(self, plans: list[_Plan], rows: dict[Expr, Expr]) -> None:
        super().__init__(rows)
        self.functions: dict[Expr, _Plan] = {p.loop.function: p for p in plans}
        self.vars: dict[Var, _Plan] = {p.loop.var: p for p in plans}
        self.entries: dict[Expr, _Plan] = {c: p for p in plans for c in p.loop.entries}
        self.again: dict[Expr, _Plan] = {c: p for p in plans for c in p.loop.again}
        self.memo.update({p.loop.var: p.var for p in plans})

    def visit(self, node: Expr, new: Expr) -> Expr:
        match new:
            case Call() if node in self.again:
                args = (*new.args, *self.again[node].rows)
                return dataclasses.replace(new, args=args)
            case Call() if node in self.entries:
                return self._enter_loop(new, self.entries[node])
            case Function() if node in self.functions:
                plan = self.functions[node]
                return dataclasses.replace(
                    new, params=(*new.params, *plan.rows), checked_type=type_of(plan.var)
                )
            case Let() if new.var in self.vars:
                return dataclasses.replace(new, var=self.vars[new.var].var)
        return new

    def _enter_loop(self, call: Call, plan: _Plan) -> Call:
        given = dict(zip(plan.loop.function.params, call.args, strict=False))
        fixed = {p: given[p] for p in plan.loop.invariant}
        batches = at_entry(plan.rows.values(), fixed)
        return dataclasses.replace(call, args=(*call.args, *batches))


def _plan(flow: Dataflow, finder: LoopFinder, loop: Loop, rows: dict[Expr, Expr]) -> _Plan | None:
    """Enter the new form of what is hoisted into `rows`; None if nothing is."""
    lifter = RowLifter(flow, finder, loop)
    params: dict[Var, Expr] = {}
    for node, lifted in lifter.lifted.items():
        type_ = type_of(node)
        if not lifted.product or not isinstance(type_, TensorType) or node in rows:
            continue
        if all(_stays_lifted(r, lifter) for r in flow.readers(node)):
            continue
        param = fresh_var("rows", type_of(lifted.batch))
        params[param] = lifted.batch
        rows[node] = row_of(param, lifted.index, type_)
    if not params:
        return None
    old = type_of(loop.function)
    if not isinstance(old, FuncType):
        raise TypeError(f"a function of type {old!r}")
    new = FuncType([*old.arg_types, *map(type_of, params)], old.ret_type)
    return _Plan(loop, Var(loop.var.name_hint, checked_type=new), params)


def _stays_lifted(reader: Expr, lifter: RowLifter) -> bool:
    found = lifter.lifted.get(reader)
    return found is not None and found.product


def _hoist(function: Function) -> Function:
    if is_primitive(function):
        return function
    flow = Dataflow(function.body)
    finder = LoopFinder(flow)
    loops = list(finder.loops())
    if not loops:
        return function
    sums: dict[Expr, list[Expr]] = {}
    for loop in loops:
        sums.update(_Sums(flow, finder, RowLifter(flow, finder, loop)).found)
    if sums:
        flow = Dataflow(_Regrouper(sums).rewrite(function.body))
        finder = LoopFinder(flow)
        loops = list(finder.loops())
    rows: dict[Expr, Expr] = {}
    plans = [p for p in (_plan(flow, finder, loop, rows) for loop in loops) if p is not None]
    if not plans:
        return function
    return with_body(function, _Hoister(plans, rows).rewrite(flow.root))


def hoist_projection(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, _hoist)


HOIST_PROJECTION = Pass("hoist_projection", hoist_projection)
