"""Compute a recursion over a tree level by level, all nodes of a level at once.

before:  let %walk = fn (%t: Tree) { match (%t) {
           Leaf(%x) => { tanh(nn.dense(%x, %w)) },
           Node(%l, %r) => { let %a = %walk(%l); let %b = %walk(%r); cell(%a, %b) } } };
after:   let %walk = fn (%t: Tree) {
           let %tables = vm.linearize(%t);     // Leaf: sizes, %x; Node: sizes, %l, %r
           let %loop = fn (%level: int64, %start: int64, %done: Tensor[(?, 150), float32]) {
             if (%level < %levels) {
               let %n = vm.read_at(%tables.2, %level);
               let %l = take(%done, vm.rows(%tables.3, %start, shape=[%n]), axis=0);
               let %r = take(%done, vm.rows(%tables.4, %start, shape=[%n]), axis=0);
               %loop(%level + 1, %start + %n, concatenate((%done, cell(%l, %r)), axis=0))
             } else { %done } };
           let %done = %loop(1, 0, tanh(nn.dense(%tables.1, %w)));
           vm.rows(%done, number of nodes - 1, shape=[1, 150]) };

A tree of n leaves needs a product for each level, with weights that are read once for all of its nodes, instead of one
for each node. What a node computes of its own tensors alone is computed for all levels at once. Rows of all results are
numbered by level, so children come first and the root is last (relay/linearize.py; the VM finds the levels). What nodes
compute becomes what batches compute by compiler/row_lift.py.

Conditions: compiler/tree_walk.py; each clause is for one constructor; results are rows of static width, or tuples of
such, and all of them can be lifted; tensors in the type have static sizes where the clauses check them; some node has
two children or more, else levels have one node; a product is lifted from such a node.

Needs: inferred types, named effects. Keeps: both. Cost: O(nodes). Source: Fegade, Chen, Gibbons and Mowry 2021,
"Cortex" (arXiv 2011.01383); batching by depth: Looks et al. 2017, TensorFlow Fold (arXiv 1702.02181).
Not done: recursion through several types (lists of children), which batch_leaves may still improve.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nimblevm.compiler.dataflow import Dataflow, is_op, row_width
from nimblevm.compiler.loops import LoopFinder
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    dim_value,
    fresh_var,
    is_primitive,
    make_lets,
    map_functions,
    op_call,
    postorder,
    type_of,
    typed,
    with_body,
)
from nimblevm.compiler.row_lift import Lifted, RowLifter, row_view
from nimblevm.compiler.tree_walk import ClauseRegion, Walk, is_part_check, region_of, walks
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.ir import (
    Call,
    Constant,
    Constructor,
    Expr,
    Function,
    If,
    PatternConstructor,
    PatternVar,
    PatternWildcard,
    Tuple,
    TupleGetItem,
    Var,
)
from nimblevm.relay.linearize import SIZES, FieldKind, kind_of_field, tables_of
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import FuncType, TensorType, TupleType, Type, scalar_type

_INT = scalar_type("int64")
_BOOL = scalar_type("bool")
_NOWHERE = Constant(np.asarray(0, "int64"))  # the index of a row, which nothing asks for

Bindings = list[tuple[Var, Expr]]


class _Fails(Exception):
    """The walk can't be done by levels."""


def _require(condition: object) -> None:
    if not condition:
        raise _Fails


# --- recognition --------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Clause:
    """A clause for one constructor. children, tensors: field -> its variable in the pattern, None if it has none.
    checks: the check of a tensor.
    """

    at: int
    constructor: Constructor
    children: dict[int, Var | None] = field(default_factory=dict)
    tensors: dict[int, Var | None] = field(default_factory=dict)
    checks: dict[Var, Call] = field(default_factory=dict)


def _clauses(walk: Walk, constructors: Sequence[Constructor]) -> list[_Clause]:
    """The clauses in the order of the constructors."""
    found: dict[Constructor, _Clause] = {}
    for at, (clause, (lets, _)) in enumerate(zip(walk.match.clauses, walk.chains, strict=True)):
        pattern = clause.lhs
        if not isinstance(pattern, PatternConstructor) or pattern.constructor in found:
            raise _Fails
        made = found[pattern.constructor] = _Clause(at, pattern.constructor)
        for index, part in enumerate(pattern.patterns):
            _require(isinstance(part, PatternVar | PatternWildcard))
            var = part.var if isinstance(part, PatternVar) else None
            kind = kind_of_field(pattern.constructor, index)
            if kind is FieldKind.CHILD:
                made.children[index] = var
            elif kind is FieldKind.TABLE:
                made.tensors[index] = var
        tensors = {v for v in made.tensors.values() if v is not None}
        parts = {p.var for p in pattern.patterns if isinstance(p, PatternVar)}
        for let in lets:
            check = let.value
            if isinstance(check, Call) and is_part_check(check, parts):
                checked = check.args[0]
                if not isinstance(checked, Var) or checked not in tensors:
                    raise _Fails
                made.checks[checked] = check
        # The VM checks what it stacks, so all of it must have been checked before, or need no check.
        for index, var in made.tensors.items():
            type_ = pattern.constructor.inputs[index]
            _require(var in made.checks or (isinstance(type_, TensorType) and not type_.shape))
    _require(len(found) == len(constructors))
    return [found[c] for c in constructors]


def _result_rows(type_: Type) -> tuple[TensorType, ...]:
    """The tensors of a result, each a row."""
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    rows = tuple([t for t in fields if isinstance(t, TensorType) and row_width(t) is not None])
    _require(rows and len(rows) == len(fields))
    return rows


def _batched(row: TensorType, size: Dim) -> TensorType:
    """The type of `size` rows as RowLifter has them."""
    return TensorType((size, row_width(row) or 0) if row.shape else (size,), row.dtype)


# --- the function by levels ---------------------------------------------------------------------


class _Levels:
    """Rewrites one walk. outer: the lets before the loop."""

    def __init__(self, flow: Dataflow, finder: LoopFinder, walk: Walk, mod: IRModule) -> None:
        self.flow, self.finder, self.walk = flow, finder, walk
        self.outer: Bindings = []
        first = walk.match.clauses[0].lhs
        if not isinstance(first, PatternConstructor):
            raise _Fails
        definition = mod.type_definitions[first.constructor.belong_to]
        _require(not definition.type_vars)
        self.clauses = _clauses(walk, definition.constructors)
        self.inner = [c for c in self.clauses if c.children]
        self.rows = _result_rows(walk.result)
        _require(any(len(c.children) > 1 for c in self.inner))
        self.columns: dict[_Clause, tuple[Var, dict[int, Var]]] = {}
        self._take_apart(definition.constructors)
        self.pays = False

    def _let(self, name: str, value: Expr, bindings: Bindings) -> Var:
        var = fresh_var(name, type_of(value))
        bindings.append((var, value))
        return var

    def _take_apart(self, constructors: Sequence[Constructor]) -> None:
        """columns[clause]: sizes of levels, and the table of each field."""
        layout = tables_of(constructors, DimVar())
        type_ = TupleType([t for one in layout for t in one.values()])
        made = op_call("vm.linearize", (self.walk.data,), type_, type=type_)
        whole = self._let("tables", made, self.outer)
        at = 0
        for clause, tables in zip(self.clauses, layout, strict=True):
            found: dict[int, Var] = {}
            for index, table in tables.items():
                item = typed(TupleGetItem(whole, at), table)
                found[index] = self._let("sizes" if index == SIZES else "rows", item, self.outer)
                at += 1
            self.columns[clause] = found.pop(SIZES), found
        sizes = self.columns[self.inner[0]][0]
        count = op_call("vm.dim_of", (sizes,), _INT, axis=0)
        self.levels = self._let("levels", count, self.outer)

    def function(self) -> Function:
        """The walk's function without recursion. _Fails if there is none."""
        tables = self._leaves()
        loop = self._loop([type_of(t) for t in tables])
        _require(self.pays)
        self.outer.append(loop)
        start = [_number(1), *(_number(0) for _ in self.inner), *tables]
        result = TupleType([_any_size(type_of(t)) for t in tables])
        done = self._let("done", typed(Call(loop[0], tuple(start)), result), self.outer)
        roots: list[Expr] = []
        for at, (row, table) in enumerate(zip(self.rows, result.fields, strict=True)):
            item = self._let("done", typed(TupleGetItem(done, at), table), self.outer)
            size = table.shape[0] if isinstance(table, TensorType) else 0
            last = self._let("root", dim_value(dims.sub(size, 1)), self.outer)
            roots.append(row_view(item, last, row))
        whole = isinstance(self.walk.result, TupleType)
        end = typed(Tuple(tuple(roots)), self.walk.result) if whole else roots[0]
        return dataclasses.replace(self.walk.function, body=make_lets(self.outer, end))

    # --- clauses --------------------------------------------------------------------------------

    def _leaves(self) -> list[Expr]:
        """A table for each result, with the rows of the nodes that have no children."""
        parts: list[list[Expr]] = [[] for _ in self.rows]
        for clause in self.clauses:
            if clause.children:
                continue
            lifter = RowLifter(self.flow, self.finder, self._region(clause), self._own(clause))
            batches = self._outputs(clause, lifter, {}, self._count(clause))
            for part, batch in zip(parts, batches, strict=True):
                part.append(self._let("batch", batch, self.outer))
        _require(parts[0])
        return [_joined(p) for p in parts]

    def _count(self, clause: _Clause) -> Dim:
        """How many nodes of a clause without children there are."""
        sizes, tables = self.columns[clause]
        for table in tables.values():
            type_ = type_of(table)
            if isinstance(type_, TensorType):
                return type_.shape[0]
        return self._size(sizes, _number(0), self.outer)[1]

    def _size(self, sizes: Var, level: Expr, bindings: Bindings) -> tuple[Var, DimVar]:
        """The number of a clause's nodes on a level, as a value and as a dim."""
        dim = DimVar()
        number = self._let("n", op_call("vm.read_at", (sizes, level), _INT), bindings)
        self._let("d", op_call("vm.bind_dim", (number,), _INT, dim=dim), bindings)
        return number, dim

    def _region(self, clause: _Clause) -> ClauseRegion:
        return region_of(self.walk, self.finder, clause.at)

    def _own(self, clause: _Clause) -> dict[Expr, Lifted]:
        """The tensors of nodes as rows of their tables."""
        known: dict[Expr, Lifted] = {}
        for index, var in clause.tensors.items():
            if var is None:
                continue
            node = clause.checks.get(var, var)
            table = self._flat(self.columns[clause][1][index], type_of(node))
            if table is not None:
                known[node] = Lifted(table, _NOWHERE, backward=False, product=False)
        return known

    def _flat(self, table: Var, row: Type) -> Expr | None:
        """A table of tensors as RowLifter has batches; None if they are no rows."""
        whole = type_of(table)
        if not isinstance(row, TensorType) or not isinstance(whole, TensorType):
            return None
        if row_width(row) is None:
            return None
        type_ = _batched(row, whole.shape[0])
        if type_ is whole:
            return table
        return op_call("reshape", (table,), type_, newshape=(-1, *type_.shape[1:]))

    def _outputs(
        self, clause: _Clause, lifter: RowLifter, calls: dict[Expr, list[Expr]], size: Dim
    ) -> list[Expr]:
        """What a clause gives, as a batch for each result."""
        end = self.flow.resolve(self.walk.chains[clause.at][1])
        if end in calls:
            return calls[end]
        fields: Sequence[Expr] = (end,)
        if isinstance(self.walk.result, TupleType):
            _require(isinstance(end, Tuple))
            fields = end.fields if isinstance(end, Tuple) else ()
        return [
            self._output(lifter, node, _batched(row, size))
            for node, row in zip(fields, self.rows, strict=True)
        ]

    def _output(self, lifter: RowLifter, node: Expr, type_: TensorType) -> Expr:
        lifted = lifter.of(node)
        if lifted is not None:
            _require(lifted.batch.checked_type is type_)
            return lifted.batch
        same = lifter.invariant(node)
        if same is None:
            raise _Fails
        return op_call("broadcast_to", (same,), type_, shape=type_.shape)

    # --- the loop -------------------------------------------------------------------------------

    def _loop(self, tables: Sequence[Type]) -> tuple[Var, Expr]:
        """The loop over the levels that have nodes with children, from 1 on."""
        level = fresh_var("level", _INT)
        starts = {c: fresh_var("start", _INT) for c in self.inner}
        done = [fresh_var("done", _any_size(t)) for t in tables]
        result = TupleType([_any_size(t) for t in tables])
        params = [level, *starts.values(), *done]
        var = Var("levels", checked_type=FuncType([type_of(p) for p in params], result))
        trip: Bindings = []
        parts: list[list[Expr]] = [[d] for d in done]
        following: list[Expr] = []
        for clause in self.inner:
            number, size = self._size(self.columns[clause][0], level, trip)
            batches = self._node(clause, starts[clause], size, done, trip)
            for part, batch in zip(parts, batches, strict=True):
                part.append(self._let("batch", batch, trip))
            following.append(op_call("add", (starts[clause], number), _INT))
        above = op_call("add", (level, _number(1)), _INT)
        args = (above, *following, *(_joined(p) for p in parts))
        # What a call gives has a size of its own.
        again = make_lets(trip, typed(Call(var, args), TupleType([_any_size(t) for t in tables])))
        more = op_call("less", (level, self.levels), _BOOL)
        end = typed(Tuple(tuple(done)), TupleType([type_of(d) for d in done]))
        body = typed(If(more, again, end), result)
        return var, typed(Function(tuple(params), body, result), type_of(var))

    def _node(
        self, clause: _Clause, start: Var, size: DimVar, done: Sequence[Var], trip: Bindings
    ) -> list[Expr]:
        """What the nodes of a clause on one level give."""
        region, own = self._region(clause), self._own(clause)
        alone = RowLifter(self.flow, self.finder, region, own)
        known = {
            node: Lifted(
                _part(table, start, size),
                _NOWHERE,
                backward=False,
                product=alone.lifted[node].product,
            )
            for node, table in self._hoisted(alone, own).items()
        }
        calls = self._calls(clause, start, size, done, trip)
        for node in postorder(region.trip):
            if node in calls and not isinstance(self.walk.result, TupleType):
                known[node] = Lifted(calls[node][0], _NOWHERE, backward=False, product=False)
            elif isinstance(node, TupleGetItem):
                fields = calls.get(self.flow.resolve(node.tuple_value))
                if fields is not None:
                    known[node] = Lifted(
                        fields[node.index], _NOWHERE, backward=False, product=False
                    )
        lifter = RowLifter(self.flow, self.finder, region, known)
        self.pays = self.pays or (
            len(clause.children) > 1
            and any(is_op(n, "nn.dense") and n not in alone.lifted for n in lifter.lifted)
        )
        return self._outputs(clause, lifter, calls, size)

    def _hoisted(self, alone: RowLifter, own: dict[Expr, Lifted]) -> dict[Expr, Var]:
        """What nodes compute of their own tensors, as far as it is products, for all levels: node -> table."""
        found: dict[Expr, Var] = {}
        for node, lifted in alone.lifted.items():
            leaves = node in own or (
                lifted.product and not all(_is_product(r, alone) for r in self.flow.readers(node))
            )
            if leaves and isinstance(lifted.batch.checked_type, TensorType):
                found[node] = self._let("batch", lifted.batch, self.outer)
        return found

    def _calls(
        self, clause: _Clause, start: Var, size: DimVar, done: Sequence[Var], trip: Bindings
    ) -> dict[Expr, list[Expr]]:
        """Calls for children -> the children's results, gathered."""
        fields = {var: index for index, var in clause.children.items() if var is not None}
        lets, end = self.walk.chains[clause.at]
        found: dict[Expr, list[Expr]] = {}
        for call in (*(let.value for let in lets), end):
            if call not in self.walk.again or not isinstance(call, Call):
                continue
            part = call.args[self.walk.position]
            if not isinstance(part, Var) or part not in fields:
                raise _Fails
            names = _part(self.columns[clause][1][fields[part]], start, size)
            rows = self._let("children", names, trip)
            found[call] = [
                op_call("take", (table, rows), _batched(row, size), axis=0)
                for table, row in zip(done, self.rows, strict=True)
            ]
        return found


def _is_product(reader: Expr, lifter: RowLifter) -> bool:
    found = lifter.lifted.get(reader)
    return found is not None and found.product


def _part(table: Var, start: Var, size: DimVar) -> Expr:
    """The rows of a table that belong to a level."""
    type_ = type_of(table)
    if not isinstance(type_, TensorType):
        raise TypeError(f"a table of type {type_!r}")
    return row_view(table, start, TensorType((size, *type_.shape[1:]), type_.dtype))


def _joined(parts: Sequence[Expr]) -> Expr:
    """Batches, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    types = [t for t in map(type_of, parts) if isinstance(t, TensorType)]
    size: Dim = 0
    for type_ in types:
        size = dims.add(size, type_.shape[0])
    whole = typed(Tuple(tuple(parts)), TupleType(types))
    result = TensorType((size, *types[0].shape[1:]), types[0].dtype)
    return op_call("concatenate", (whole,), result, axis=0)


def _any_size(type_: Type) -> TensorType:
    """A table's type with a number of rows of its own."""
    if not isinstance(type_, TensorType):
        raise TypeError(f"a table of type {type_!r}")
    return TensorType((DimVar(), *type_.shape[1:]), type_.dtype)


def _number(value: int) -> Constant:
    return typed(Constant(np.asarray(value, "int64")), _INT)


def _batch(mod: IRModule, function: Function) -> Function:
    if is_primitive(function):
        return function
    flow = Dataflow(function.body)
    finder = LoopFinder(flow)
    made: dict[Expr, Expr] = {}
    for walk in walks(flow, finder):
        try:
            made[walk.function] = _Levels(flow, finder, walk, mod).function()
        except _Fails:
            continue
    return with_body(function, Rewriter(made).rewrite(function.body)) if made else function


def batch_levels(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, lambda function: _batch(mod, function))


BATCH_LEVELS = Pass("batch_levels", batch_levels)
