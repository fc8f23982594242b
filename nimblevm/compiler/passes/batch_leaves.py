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

Conditions, for a recursive local function that matches one of its parameters: it is only called; its other parameters
are passed on as they are; every call from inside is made whenever its clause is taken, for a part of the value; nothing
else is in it but total operators, constructors, and checks of the value's parts. So the structure alone decides which
leaves are visited, in which order, and nothing fails that would not. Done for one clause and one tensor of it, whose
width is static, and only where a product is lifted.

Needs: inferred types, named effects. Keeps: both. Cost: O(nodes); at run time a second walk and the rows' copies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from nimblevm.compiler.copying import renamed_pattern
from nimblevm.compiler.dataflow import Dataflow, is_op, is_total_call, row_width
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
    postorder,
    type_of,
    typed,
    with_body,
)
from nimblevm.compiler.row_lift import (
    Lifted,
    RowLifter,
    at_entry,
    empty_table,
    row_of,
    with_row,
)
from nimblevm.relay.dims import DimVar
from nimblevm.relay.ir import (
    Call,
    Clause,
    Constant,
    Constructor,
    Expr,
    Function,
    IRModule,
    Leaf,
    Let,
    Match,
    Tuple,
    TupleGetItem,
    Var,
    pattern_vars,
)
from nimblevm.relay.types import FuncType, TensorType, TupleType, Type, scalar_type

_INDEX = scalar_type("int32")


@dataclass(eq=False, slots=True)
class _Walk:
    """A recursion that the structure of one parameter decides. chains: the lets and the end of each clause."""

    let: Let
    function: Function
    match: Match
    data: Var
    entries: list[Call]
    again: set[Expr]
    invariant: frozenset[Var]
    body: int
    chains: list[tuple[list[Let], Expr]]

    @property
    def result(self) -> Type:
        return type_of(self.match)


@dataclass(eq=False, slots=True)
class _Clause:
    """One clause as a region for RowLifter."""

    trip: Expr
    block: int
    body: int
    invariant: frozenset[Var]


@dataclass(eq=False, slots=True)
class _Plan:
    """row: the let that checks a tensor of clause `at`. table: the rows of all of them. index: the row of a visit.
    batches: parameter that holds a batch -> the batch, of `table`. rows: node -> what it becomes.
    """

    walk: _Walk
    at: int
    row: Let
    table: Var
    index: Var
    batches: dict[Var, Expr]
    rows: dict[Expr, Expr]


# --- recognition --------------------------------------------------------------------------------


def _walk(flow: Dataflow, finder: LoopFinder, let: Let) -> _Walk | None:
    function = let.value
    if not isinstance(function, Function) or let.var in finder.escaped or function.type_params:
        return None
    match = function.body
    data = match.data if isinstance(match, Match) else None
    if function.attrs or not isinstance(match, Match) or not isinstance(data, Var):
        return None
    if data not in function.params:
        return None
    body = finder.place.sub[function][0]
    calls = finder.calls.get(let.var, [])
    again = [c for c in calls if finder.is_inside(c, body)]
    entries = [c for c in calls if not finder.is_inside(c, body)]
    invariant = frozenset(
        p
        for at, p in enumerate(function.params)
        if all(flow.resolve(c.args[at]) is p for c in again)
    )
    if not again or not entries or {*function.params} - invariant != {data}:
        return None
    walk = _Walk(
        let, function, match, data, entries, set(again), invariant, body,
        [let_chain(c.rhs) for c in match.clauses],
    )  # fmt: skip
    return walk if _is_plain(walk, flow) else None


def _is_plain(walk: _Walk, flow: Dataflow) -> bool:
    """Whether the structure alone decides which calls are made, and nothing but checks of its parts may fail."""
    at = walk.function.params.index(walk.data)
    found = 0
    for clause, (lets, end) in zip(walk.match.clauses, walk.chains, strict=True):
        parts = set(pattern_vars(clause.lhs))
        calls = [n for n in (*(let.value for let in lets), end) if n in walk.again]
        found += len(calls)
        if not all(isinstance(c, Call) and c.args[at] in parts for c in calls):
            return False
        checks = {let.value for let in lets if _is_check(let.value, parts)}
        for node in postorder(clause.rhs):
            fine = isinstance(node, Leaf | Let | Tuple | TupleGetItem) or node in walk.again
            if not fine and not (node in checks or _is_pure_call(node)):
                return False
    return found == len(walk.again)


def _is_check(node: Expr, parts: set[Var]) -> bool:
    return isinstance(node, Call) and is_op(node, "vm.match_type") and node.args[0] in parts


def _is_pure_call(node: Expr) -> bool:
    return isinstance(node, Call) and (isinstance(node.op, Constructor) or is_total_call(node))


def _plans(flow: Dataflow, finder: LoopFinder) -> Iterator[_Plan]:
    for let in finder.candidates:
        walk = _walk(flow, finder, let)
        plan = _plan(flow, finder, walk) if walk is not None else None
        if plan is not None:
            yield plan


def _plan(flow: Dataflow, finder: LoopFinder, walk: _Walk) -> _Plan | None:
    blocks = finder.place.sub[walk.match]
    for at, (clause, (lets, _)) in enumerate(zip(walk.match.clauses, walk.chains, strict=True)):
        parts = set(pattern_vars(clause.lhs))
        region = _Clause(clause.rhs, blocks[at], walk.body, walk.invariant)
        for let in lets:
            if _is_check(let.value, parts) and row_width(let.value.checked_type):
                plan = _lift(flow, finder, walk, at, let, region)
                if plan is not None:
                    return plan
    return None


def _lift(
    flow: Dataflow, finder: LoopFinder, walk: _Walk, at: int, row: Let, region: _Clause
) -> _Plan | None:
    """A plan for one tensor, if a product is lifted."""
    type_ = type_of(row.value)
    if not isinstance(type_, TensorType) or not type_.shape:
        return None
    table = fresh_var("rows", TensorType((DimVar(), row_width(type_) or 0), type_.dtype))
    index = fresh_var("k", _INDEX)
    known = {row.value: Lifted(table, index, False, False)}
    lifter = RowLifter(flow, finder, region, known)
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
        plan.rows[let_chain(node)[1]] = row_of(param, index, kind)
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
        self.at = walk.function.params.index(walk.data)
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
    plans = list(_plans(flow, finder))
    if not plans:
        return function
    return with_body(function, _Rebuilder(plans).rewrite(function.body))


def batch_leaves(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, _batch)


BATCH_LEAVES = Pass("batch_leaves", batch_leaves)
