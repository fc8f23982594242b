"""Give each layer of a recurrent program a loop of its own (loop distribution).

before:  let %loop = fn (%i: int32, %h: S, %g: S) {
           if (less(%i, %n)) {
             let %a = cell1(take(%x, %i), %h); let %b = cell2(%a, %g); %loop(%i + 1, %a, %b) } else { %g } };
         %loop(0, %h0, %g0)
after:   let %loop_below = fn (%i: int32, %h: S, %rows: Tensor[(?, 8), float32]) {
           if (less(%i, %n)) { let %a = cell1(take(%x, %i), %h);
             %loop_below(%i + 1, %a, concatenate((%rows, %a), axis=0)) } else { (%rows,) } };
         let %loop = fn (%i: int32, %g: S, %rows: Tensor[(?n, 8), float32]) {
           if (less(%i, %n)) { %loop(%i + 1, cell2(take(%rows, %i), %g), %rows) } else { %g } };
         let %t = %loop_below(0, %h0, zeros(shape=[0, 8])); %loop(0, %g0, %t.0)

A time step of all layers reads all their weights, more than a near cache holds; and the upper layer's product with the
lower one's result, a row at a time, becomes one product of all rows once the rows are there (hoist_projection).

The states of a loop form a graph: a state's next value reads states. The lower loop takes a set of states that reads no
others, the smallest that holds a product with one of its own states; the upper loop takes the rest. What the upper one
reads of the lower one's trip is collected, a row a trip, and handed on. Repeated for more layers.

Only for counted loops (compiler/loops.py) whose trips are straight lines of total operators, so that neither order nor
failure can be observed; where the rows that cross have static widths, at most MAX_CROSSING, and a product reads one.

Needs: inferred types, named effects. Keeps: both. Cost: O(nodes) a layer, up to MAX_LAYERS; memory: the rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Set
from dataclasses import dataclass

from nimblevm.compiler.dataflow import Dataflow, is_op, is_total_call, row_width
from nimblevm.compiler.loops import Loop, LoopFinder
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.passes.insert_checks import match_type
from nimblevm.compiler.rewrite import (
    Rewriter,
    fresh_var,
    is_primitive,
    map_functions,
    type_of,
    typed,
    with_body,
    with_children,
)
from nimblevm.compiler.row_lift import empty_table, row_of, with_row
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.ir import (
    Call,
    Expr,
    Function,
    If,
    Leaf,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    children,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import FuncType, TensorType, TupleType

MAX_STATES, MAX_CROSSING, MAX_LAYERS = 64, 4, 8


class _Trip:
    """A loop whose trip is a straight line: next value and reads of each state, as bits in the order of `states`."""

    def __init__(self, flow: Dataflow, finder: LoopFinder, loop: Loop) -> None:
        self.flow = flow
        self.finder = finder
        self.loop = loop
        self.states = [
            p for p in loop.function.params if p not in loop.invariant and p is not loop.counter
        ]
        self.bit = {p: 1 << at for at, p in enumerate(self.states)}
        self.reads: dict[Expr, int] = {}
        self.plain = self._is_plain()
        call = loop.again[0]
        self.next = {p: call.args[loop.position(p)] for p in self.states}

    def parts(self, node: Expr) -> tuple[Expr, ...]:
        """What a node is made from, the loop's lets opened; a check that the trips prove is its operand."""
        if isinstance(node, Var) and self.finder.is_inside(node, self.loop.body):
            value = self.flow.lets.get(node)
            return () if value is None else (value,)
        match node:
            case Leaf():
                return ()
            case Let():
                return (node.body,)
            case Call():
                return node.args[:1] if is_op(node, "vm.match_type") else node.args
        return children(node)

    def _is_plain(self) -> bool:
        """Whether the function is `if`, and its trip total operators and the call; fills `reads`."""
        loop = self.loop
        end = loop.trip
        while isinstance(end, Let):
            end = end.body
        if loop.function.body is not loop.guard or len(loop.again) != 1 or end is not loop.again[0]:
            return False
        if not 2 <= len(self.states) <= MAX_STATES:
            return False
        for node in (*Dataflow(loop.trip).order, *Dataflow(loop.guard.cond).order):
            if not self._is_plain_node(node, end):
                return False
            mine = self.bit.get(node, 0) if isinstance(node, Var) else 0
            for part in self.parts(node):
                mine |= self.reads.get(part, 0)
            self.reads[node] = mine
        return not self.reads[loop.guard.cond]

    def _is_plain_node(self, node: Expr, end: Expr) -> bool:
        match node:
            case Leaf() | Tuple() | TupleGetItem():
                return True
            case Let(var=var):
                return var in self.flow.lets
            case Call():
                return node is end or is_total_call(node) or self._is_proved(node)
        return False

    def _is_proved(self, call: Call) -> bool:
        """A check that a source of the loop has a row, which is so in every trip."""
        if not is_op(call, "vm.match_type"):
            return False
        source, wanted = self.flow.resolve(call.args[0]), call.attrs.type
        have = type_of(source)
        if not isinstance(source, Var) or not isinstance(have, TensorType) or not have.shape:
            return False
        if source not in self.loop.invariant and self.finder.is_inside(source, self.loop.body):
            return False
        rest = zip(wanted.shape[1:], have.shape[1:], strict=True)
        same = wanted.shape[0] is dims.max_(1, have.shape[0]) and all(
            dims.compare(p, q) for p, q in rest
        )
        return same and self.finder.covers(self.loop, source)

    def closure(self, state: Var) -> int:
        """The states that a state's value depends on, over any number of trips."""
        found, todo = 0, self.bit[state]
        while todo:
            low = todo & -todo
            found |= low
            todo = (todo | self.reads[self.next[self.states[low.bit_length() - 1]]]) & ~found
        return found

    def slice_of(self, roots: Iterable[Expr], below: Set[Expr] = frozenset()) -> list[Expr]:
        """The nodes that make some values; those of `below` that read states have no parts in it."""
        seen: dict[Expr, None] = {}
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen[node] = None
            if node not in below or not self.reads[node]:
                stack.extend(self.parts(node))
        return list(seen)


@dataclass(eq=False, slots=True)
class _Plan:
    """below: the states of the lower loop. above: of the upper one. rows: what crosses. size: the number of trips.
    lower, upper: the variables of the two loops. finals: states of the lower loop that the end reads.
    """

    trip: _Trip
    below: list[Var]
    above: list[Var]
    rows: list[Expr]
    size: Dim
    finals: list[Var]


def _plan(trip: _Trip) -> _Plan | None:
    if not trip.plain:
        return None
    size = trip.finder.number(trip.loop.limit)
    every = (1 << len(trip.states)) - 1
    if size is None:
        return None
    closures = sorted({trip.closure(s) for s in trip.states}, key=lambda c: (c.bit_count(), c))
    for lower in closures:
        if lower == every:
            break
        below = [s for s in trip.states if trip.bit[s] & lower]
        above = [s for s in trip.states if not trip.bit[s] & lower]
        inner = trip.slice_of(trip.next[s] for s in below)
        if not any(is_op(n, "nn.dense") and trip.reads[n] for n in inner):
            continue
        # A value that only the upper loop needs is its own to compute, from rows of the lower one.
        shared = {*inner, *below}
        outer = trip.slice_of((trip.next[s] for s in above), shared)
        rows = _rows(trip, outer, shared, lower)
        if rows:
            finals = _read_at_end(trip, below)
            return _Plan(trip, below, above, rows, size, finals)
    return None


def _rows(trip: _Trip, outer: list[Expr], shared: Set[Expr], lower: int) -> list[Expr] | None:
    """The values that cross, if all of them can be collected and a product reads one."""
    resolve = trip.flow.resolve
    rows = list(dict.fromkeys(resolve(n) for n in outer if n in shared and trip.reads[n]))
    if not rows or len(rows) > MAX_CROSSING:
        return None
    if not all(isinstance(n.checked_type, TensorType) and row_width(n.checked_type) for n in rows):
        return None
    read = [trip.reads[n.args[0]] for n in outer if isinstance(n, Call) and is_op(n, "nn.dense")]
    return rows if any(bits and not bits & ~lower for bits in read) else None


def _read_at_end(trip: _Trip, below: list[Var]) -> list[Var]:
    """The lower loop's states that the value of the whole loop needs."""
    used = set(Dataflow(trip.loop.guard.false_branch).order)
    return [s for s in below if s in used]


class _Copier:
    """Copies of a trip's values as graphs without lets, in terms of other variables."""

    def __init__(self, trip: _Trip, known: Iterable[tuple[Expr, Expr]]) -> None:
        self.trip = trip
        self.memo = dict(known)

    def copy(self, root: Expr) -> Expr:
        stack = [root]
        memo = self.memo
        while stack:
            node = stack[-1]
            parts = self.trip.parts(node)
            missing = [p for p in parts if p not in memo] if node not in memo else []
            if missing:
                stack += reversed(missing)
                continue
            stack.pop()
            if node not in memo:
                memo[node] = self._made(node, [memo[p] for p in parts])
        return memo[root]

    def _made(self, node: Expr, parts: list[Expr]) -> Expr:
        if isinstance(node, Var | Let) and parts:
            return parts[0]
        if isinstance(node, Call) and is_op(node, "vm.match_type"):
            return parts[0]
        head = (node.op,) if isinstance(node, Call) else ()
        return with_children(node, (*head, *parts)) if parts else node


def _function(params: list[Var], guard: Expr, span: object) -> Function:
    type_ = FuncType([type_of(p) for p in params], type_of(guard))
    return typed(Function(tuple(params), guard, type_of(guard)), type_)


def _if(old: If, cond: Expr, trip: Expr, end: Expr) -> If:
    return typed(If(cond, trip, end, span=old.span), type_of(end))


class _Split:
    """The two loops of a plan, and what an entry becomes."""

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        trip, loop = plan.trip, plan.trip.loop
        self.constants = [p for p in loop.function.params if p in loop.invariant]
        self.tables = [fresh_var("rows", self._table(n, plan.size)) for n in plan.rows]
        self.lower_var, self.lower = self._lower(trip, loop)
        self.upper_var, self.upper = self._upper(trip, loop)

    def _table(self, row: Expr, size: Dim) -> TensorType:
        type_ = type_of(row)
        if not isinstance(type_, TensorType):
            raise TypeError(f"a row of type {type_!r}")
        return TensorType((size, row_width(type_) or 0), type_.dtype)

    def _lower(self, trip: _Trip, loop: Loop) -> tuple[Var, Function]:
        plan = self.plan
        fresh = {
            p: fresh_var(p.name_hint, type_of(p))
            for p in (loop.counter, *plan.below, *self.constants)
        }
        grown = [fresh_var("rows", self._table(n, DimVar())) for n in plan.rows]
        copier = _Copier(trip, fresh.items())
        params = [*fresh.values(), *grown]
        results = [
            *(match_type(g, type_of(t), "rows of a loop", None) for g, t in zip(grown, self.tables, strict=True)),
            *(fresh[s] for s in plan.finals),
        ]  # fmt: skip
        end = typed(Tuple(tuple(results)), TupleType([type_of(r) for r in results]))
        type_ = FuncType([type_of(p) for p in params], type_of(end))
        var = Var(f"{loop.var.name_hint}_below", checked_type=type_)
        again = (
            copier.copy(loop.again[0].args[loop.position(loop.counter)]),
            *(copier.copy(trip.next[s]) for s in plan.below),
            *(fresh[p] for p in self.constants),
            *(with_row(g, copier.copy(n)) for g, n in zip(grown, plan.rows, strict=True)),
        )
        call = typed(Call(var, again, span=loop.again[0].span), type_of(end))
        guard = _if(loop.guard, copier.copy(loop.guard.cond), call, end)
        return var, _function(params, guard, None)

    def _upper(self, trip: _Trip, loop: Loop) -> tuple[Var, Function]:
        plan = self.plan
        params = [loop.counter, *plan.above, *self.constants, *self.tables, *plan.finals]
        rows = zip(plan.rows, self.tables, strict=True)
        copier = _Copier(trip, ((n, row_of(t, loop.counter, type_of(n))) for n, t in rows))
        result = type_of(loop.guard)
        var = Var(loop.var.name_hint, checked_type=FuncType([type_of(p) for p in params], result))
        again = (
            copier.copy(loop.again[0].args[loop.position(loop.counter)]),
            *(copier.copy(trip.next[s]) for s in plan.above),
            *self.constants, *self.tables, *plan.finals,
        )  # fmt: skip
        call = typed(Call(var, again, span=loop.again[0].span), result)
        guard = typed(
            If(loop.guard.cond, call, loop.guard.false_branch, span=loop.guard.span), result
        )
        return var, dataclasses.replace(
            loop.function, params=tuple(params), body=guard, checked_type=type_of(var)
        )

    def enter(self, call: Call) -> Expr:
        """The loop's call as calls of the two loops, one after the other."""
        plan, loop = self.plan, self.plan.trip.loop
        given = dict(zip(loop.function.params, call.args, strict=True))
        empty = [empty_table(type_of(t)) for t in self.tables]
        result = self.lower.ret_type
        if not isinstance(result, TupleType):
            raise TypeError(f"the lower loop gives {result!r}")
        first = (
            given[loop.counter],
            *(given[s] for s in plan.below),
            *(given[p] for p in self.constants),
        )
        below = typed(Call(self.lower_var, (*first, *empty), span=call.span), result)
        done = Var("rows", checked_type=result)
        fields = [typed(TupleGetItem(done, at), type_) for at, type_ in enumerate(result.fields)]
        second = (
            given[loop.counter],
            *(given[s] for s in plan.above),
            *(given[p] for p in self.constants),
        )
        above = Call(
            self.upper_var, (*second, *fields), span=call.span, checked_type=call.checked_type
        )
        return Let(done, below, above, span=call.span, checked_type=call.checked_type)


class _Rebuilder(Rewriter):
    def __init__(self, splits: list[_Split]) -> None:
        super().__init__()
        self.lets = {s.plan.trip.loop.var: s for s in splits}
        self.functions = {s.plan.trip.loop.function for s in splits}
        self.entries = {c: s for s in splits for c in s.plan.trip.loop.entries}

    def enter(self, node: Expr) -> bool:
        return node not in self.functions

    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(new, Call) and node in self.entries:
            return self.entries[node].enter(new)
        if isinstance(new, Let) and new.var in self.lets:
            split = self.lets[new.var]
            inner = dataclasses.replace(new, var=split.upper_var, value=split.upper)
            return Let(
                split.lower_var, split.lower, inner, span=new.span, checked_type=new.checked_type
            )
        return new


def _split(function: Function) -> Function:
    if is_primitive(function):
        return function
    for _ in range(MAX_LAYERS):
        flow = Dataflow(function.body)
        finder = LoopFinder(flow)
        plans = [_plan(_Trip(flow, finder, loop)) for loop in finder.loops()]
        splits = [_Split(plan) for plan in plans if plan is not None]
        if not splits:
            break
        function = with_body(function, _Rebuilder(splits).rewrite(function.body))
    return function


def split_loops(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, _split)


SPLIT_LOOPS = Pass("split_loops", split_loops)
