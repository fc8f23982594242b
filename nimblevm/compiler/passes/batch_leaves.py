"""Compute what a recursion over a data structure does to each tensor in it on its own for all of them at once.

before:  let %walk = fn (%t: Tree) { match (%t) {
           Leaf(%x) => { tanh(nn.dense(%x, %w)) },
           Node(%l, %r) => { let %a = %walk(%l); let %b = %walk(%r); cell(%a, %b) } } };
         %walk(%t)
after:   let %gather = fn (%t: Tree, %rows: Tensor[(?, 300), float32]) { match (%t) {
           Leaf(%x) => { concatenate((%rows, %x), axis=0) },
           Node(%l, %r) => { let %more = %gather(%l, %rows); %gather(%r, %more) } } };
         let %walk = fn (%t: Tree, %k: int32, %batch: Tensor[(?, 150), float32]) { match (%t) {
           Leaf(%x) => { (take(%batch, %k, axis=0), %k + 1) },
           Node(%l, %r) => { let %a = %walk(%l, %k, %batch); let %b = %walk(%r, %a.1, %batch);
                             (cell(%a.0, %b.0), %b.1) } } };
         let %rows = %gather(%t, zeros(shape=[0, 300], dtype="float32"));
         %walk(%t, 0, tanh(nn.dense(%rows, %w))).0

The products of all leaves with a weight are one product, their cells one kernel (compiler/row_lift.py says what is
lifted: as much as depends on the leaf's tensor and invariants alone). The first walk gathers the tensors, the second
one visits the nodes in the same order and counts.

Conditions: compiler/tree_walk.py, by which the structure alone decides which leaves are visited, in which order, and
nothing fails that would not. Done for one clause and one tensor of it, whose width is static, and only where a
product is lifted.

Needs: inferred types, named effects. Keeps: both. Cost: O(nodes); at run time a second walk and the rows' copies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nimblevm.compiler.copying import renamed_pattern
from nimblevm.compiler.dataflow import Dataflow, row_width
from nimblevm.compiler.loops import LoopFinder
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    fresh_var,
    is_primitive,
    let_chain,
    make_lets,
    map_functions,
    op_call,
    type_of,
    typed,
    with_body,
)
from nimblevm.compiler.row_lift import (
    Lifted,
    RowLifter,
    at_entry,
    empty_table,
    row_view,
    with_row,
)
from nimblevm.compiler.tree_walk import Walk, is_part_check, region_of, walks
from nimblevm.relay.dims import DimVar
from nimblevm.relay.ir import (
    Call,
    Clause,
    Constant,
    Expr,
    Function,
    Let,
    Match,
    Tuple,
    TupleGetItem,
    Var,
    pattern_vars,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import FuncType, TensorType, TupleType, Type, scalar_type

_INDEX = scalar_type("int32")


@dataclass(eq=False, slots=True)
class _Plan:
    """row: the let that checks a tensor of clause `at`. table: the rows of all of them. index: the row of a visit.
    batches: parameter that holds a batch -> the batch, of `table`. rows: node -> what it becomes.
    """

    walk: Walk
    at: int
    row: Let
    table: Var
    index: Var
    batches: dict[Var, Expr]
    rows: dict[Expr, Expr]


# --- recognition --------------------------------------------------------------------------------


def _plan(flow: Dataflow, finder: LoopFinder, walk: Walk) -> _Plan | None:
    for at, (clause, (lets, _)) in enumerate(zip(walk.match.clauses, walk.chains, strict=True)):
        parts = set(pattern_vars(clause.lhs))
        for let in lets:
            if is_part_check(let.value, parts) and row_width(let.value.checked_type):
                plan = _lift(flow, finder, walk, at, let)
                if plan is not None:
                    return plan
    return None


def _lift(flow: Dataflow, finder: LoopFinder, walk: Walk, at: int, row: Let) -> _Plan | None:
    """A plan for one tensor, if a product is lifted."""
    type_ = type_of(row.value)
    if not isinstance(type_, TensorType) or not type_.shape:
        return None
    table = fresh_var("rows", TensorType((DimVar(), row_width(type_) or 0), type_.dtype))
    index = fresh_var("k", _INDEX)
    known = {row.value: Lifted(table, index, backward=False, product=False)}
    lifter = RowLifter(flow, finder, region_of(walk, finder, at), known)
    plan = _Plan(walk, at, row, table, index, {}, {})
    for node, lifted in lifter.lifted.items():
        kind = type_of(node)
        if not lifted.product or not isinstance(kind, TensorType):
            continue
        if all(_stays_lifted(r, lifter) for r in flow.readers(node)):
            continue
        whole = type_of(lifted.batch)
        width = whole.shape[1:] if isinstance(whole, TensorType) else ()
        param = fresh_var("batch", TensorType((DimVar(), *width), kind.dtype))
        plan.batches[param] = lifted.batch
        plan.rows[let_chain(node)[1]] = row_view(param, index, kind)
    return plan if plan.batches else None


def _stays_lifted(reader: Expr, lifter: RowLifter) -> bool:
    found = lifter.lifted.get(reader)
    return found is not None and found.product


# --- the two walks ------------------------------------------------------------------------------


def _rematch(match: Match, data: Var, clauses: list[Clause], type_: Type) -> Match:
    return typed(Match(data, tuple(clauses), match.complete, span=match.span), type_)


def _function(params: list[Var], body: Expr, type_: FuncType) -> Function:
    return typed(Function(tuple(params), body, type_.ret_type), type_)


def _own_dims(part: Var) -> Type:
    """The type of a part in a second function: what the pattern reads has sizes of its own there."""
    type_ = type_of(part)
    if not isinstance(type_, TensorType):
        return type_
    return TensorType([d if isinstance(d, int) else DimVar() for d in type_.shape], type_.dtype)


class _Gather:
    """The first walk: appends the tensors to a table."""

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        walk = plan.walk
        self.at = walk.position
        self.data = fresh_var(walk.data.name_hint, type_of(walk.data))
        self.table = self.fresh_table()
        result = type_of(self.fresh_table())
        type_ = FuncType([type_of(self.data), type_of(self.table)], result)
        self.var = Var("gather", checked_type=type_)
        clauses = [self._clause(at) for at in range(len(walk.chains))]
        body = _rematch(walk.match, self.data, clauses, result)
        self.function = _function([self.data, self.table], body, type_)

    def fresh_table(self) -> Var:
        """A variable for a table of unknown size."""
        type_ = type_of(self.plan.table)
        if not isinstance(type_, TensorType):
            raise TypeError(f"a table of type {type_!r}")
        return fresh_var("rows", TensorType((DimVar(), *type_.shape[1:]), type_.dtype))

    def _clause(self, at: int) -> Clause:
        plan, walk = self.plan, self.plan.walk
        clause, (lets, end) = walk.match.clauses[at], walk.chains[at]
        names = {v: fresh_var(v.name_hint, _own_dims(v)) for v in pattern_vars(clause.lhs)}
        table: Expr = self.table
        bindings: list[tuple[Var, Expr]] = []
        for let in lets:
            if let.value in walk.again:
                more = self._call(let.value, names, table)
                table = fresh_var("rows", type_of(more))
                bindings.append((table, more))
            elif let is plan.row:
                check = let.value
                part = check.args[0] if isinstance(check, Call) else None
                if not isinstance(check, Call) or not isinstance(part, Var):
                    raise TypeError("a check of a part")
                row = fresh_var(let.var.name_hint, type_of(check))
                bindings.append((row, dataclasses.replace(check, args=(names[part],))))
                table = with_row(table, row)
        last = self._call(end, names, table) if end in walk.again else table
        return Clause(
            renamed_pattern(clause.lhs, names), make_lets(bindings, last), span=clause.span
        )

    def _call(self, call: Expr, names: Mapping[Var, Var], table: Expr) -> Call:
        part = call.args[self.at] if isinstance(call, Call) else None
        if not isinstance(part, Var):
            raise TypeError("a call for a part")
        # What a call gives has a size of its own.
        return typed(
            Call(self.var, (names[part], table), span=call.span), type_of(self.fresh_table())
        )


class _Count:
    """The second walk: the old one, with the number of visits, and rows of the batches."""

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        walk = plan.walk
        self.result = TupleType([walk.result, _INDEX])
        self.start = fresh_var("k", _INDEX)
        params = [*walk.function.params, self.start, *plan.batches]
        type_ = FuncType([type_of(p) for p in params], self.result)
        self.var = Var(walk.let.var.name_hint, checked_type=type_)
        clauses = [self._clause(at) for at in range(len(walk.chains))]
        body = _rematch(walk.match, walk.data, clauses, self.result)
        self.function = _function(params, body, type_)

    def _clause(self, at: int) -> Clause:
        plan, walk = self.plan, self.plan.walk
        clause, (lets, end) = walk.match.clauses[at], walk.chains[at]
        index: Var = self.start
        work = Rewriter(plan.rows)
        bindings: list[tuple[Var, Expr]] = []
        for let in lets:
            value = work.rewrite(let.value)
            if let.value in walk.again and isinstance(value, Call):
                both = Var(let.var.name_hint, checked_type=self.result)
                bindings.append((both, self._call(value, index)))
                bindings.append((let.var, typed(TupleGetItem(both, 0), walk.result)))
                index = fresh_var("k", _INDEX)
                bindings.append((index, typed(TupleGetItem(both, 1), _INDEX)))
                continue
            bindings.append((let.var, value))
            if let is plan.row:
                bindings.append((plan.index, index))
                one = Constant(np.asarray(1, "int32"))
                index = fresh_var("k", _INDEX)
                bindings.append((index, op_call("add", (plan.index, one), _INDEX)))
        last = work.rewrite(end)
        if end in walk.again and isinstance(last, Call):
            last = self._call(last, index)
        else:
            last = typed(Tuple((last, index)), self.result)
        return Clause(clause.lhs, make_lets(bindings, last), span=clause.span)

    def _call(self, call: Call, index: Var) -> Call:
        args = (*call.args, index, *self.plan.batches)
        return typed(Call(self.var, args, span=call.span), self.result)


class _Rebuilder(Rewriter):
    def __init__(self, plans: list[_Plan]) -> None:
        super().__init__()
        self.plans = {p.walk.let: (p, _Gather(p), _Count(p)) for p in plans}
        self.functions = {p.walk.function for p in plans}
        self.entries = {c: p.walk.let for p in plans for c in p.walk.entries}

    def enter(self, node: Expr) -> bool:
        return node not in self.functions

    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(new, Call) and node in self.entries:
            return self._entry(new, *self.plans[self.entries[node]])
        if isinstance(node, Let) and isinstance(new, Let) and node in self.plans:
            _, gather, count = self.plans[node]
            inner = dataclasses.replace(new, var=count.var, value=count.function)
            return dataclasses.replace(new, var=gather.var, value=gather.function, body=inner)
        return new

    def _entry(self, call: Call, plan: _Plan, gather: _Gather, count: _Count) -> Expr:
        given = dict(zip(plan.walk.function.params, call.args, strict=True))
        root = call.args[gather.at]
        rows = gather.fresh_table()
        first = Call(gather.var, (root, empty_table(type_of(rows))), span=call.span)
        fixed = {plan.table: rows, **{p: given[p] for p in plan.walk.invariant}}
        batches = at_entry(plan.batches.values(), fixed)
        zero = Constant(np.asarray(0, "int32"))
        second = Call(count.var, (*call.args, zero, *batches), span=call.span)
        both = Var("both", checked_type=count.result)
        result = typed(TupleGetItem(both, 0), plan.walk.result)
        return make_lets(
            [(rows, typed(first, type_of(rows))), (both, typed(second, count.result))], result
        )


def _batch(function: Function) -> Function:
    if is_primitive(function):
        return function
    flow = Dataflow(function.body)
    finder = LoopFinder(flow)
    plans = [p for w in walks(flow, finder) if (p := _plan(flow, finder, w)) is not None]
    if not plans:
        return function
    return with_body(function, _Rebuilder(plans).rewrite(function.body))


def batch_leaves(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, _batch)


BATCH_LEAVES = Pass("batch_leaves", batch_leaves)
