"""Give external backends the operators that they want (compiler/external.py).

before:  relu(nn.dense(%x, %w) + %b)              (the backend's table has dense, add, relu as "acc.dense")
after:   fn (%p0, %p1, %p2, Primitive=1, Compiler="acc", global_symbol="acc_dense_add_relu") {
           fn (%q0, %q1, %q2, Composite="acc.dense", PartitionedFromPattern="nn.dense_add_nn.relu_") {
             relu(nn.dense(%q0, %q1) + %q2)
           }(%p0, %p1, %p2)
         }(%x, %w, %b)

For each backend, in the order in which the user named them, in each block: patterns in the table's order match from the
block's end towards its begin, through lets; what a match computes on its way must not be read elsewhere. Matches that
are connected become one region where the backend wants that and where no path leads out of it and back. A region never
crosses the boundary of a function, a branch or a clause. Operators that may fail keep their order. Where the codegen
declines a region of several matches, each is tried alone; what it declines then may match another pattern, and is left
to what follows in the end.

Blocks are brought into ANF for this; a function in which no backend takes anything stays as it is. Never matched:
operators whose size depends on data, rank-0 integer arithmetic.

Needs: inferred types. Keeps: both. Cost: O(n log n), times the number of patterns.
Source: TVM's MergeComposite, AnnotateTarget, MergeCompilerRegions and PartitionGraph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nimblevm.compiler.block_dag import BlockDag, Units
from nimblevm.compiler.external import External, is_wanted
from nimblevm.compiler.function_blocks import FunctionBlocks
from nimblevm.compiler.kernel_table import KernelCache
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.passes.to_anf import anf_function
from nimblevm.compiler.region import compile_region
from nimblevm.compiler.rewrite import (
    fresh_var,
    is_primitive,
    make_lets,
    map_functions,
    type_of,
    typed,
    with_children,
)
from nimblevm.relay.dataflow_pattern import DFPattern, Matcher
from nimblevm.relay.ir import (
    Call,
    Expr,
    Function,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    children,
    is_known,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import FuncType, TensorType, TupleType


@dataclass(frozen=True, eq=False, slots=True)
class _Match:
    """What one pattern matched; name "": a tuple or a field of one between matches."""

    name: str
    root: Expr
    inside: frozenset[Expr]


class _Partitioner(FunctionBlocks):
    """Partitions the blocks of one function in ANF. regions: how many it has made."""

    def __init__(
        self, function: Function, externals: Sequence[External], cache: KernelCache, unbox: bool
    ) -> None:
        super().__init__(function)
        self.externals = externals
        self.cache = cache
        self.unbox = unbox
        self.regions = 0

    def block(self, lets: list[Let], tail: Expr) -> Expr:
        return _BlockPartitioner(self, lets, tail).run()


class _BlockPartitioner:
    """taken: items of regions and of this backend's matches. calls: unit -> the call of its region, and its outputs."""

    def __init__(self, owner: _Partitioner, lets: list[Let], tail: Expr) -> None:
        nested: dict[Var, list[int]] = {}
        for let in lets:
            hosts = [index for index, inside in owner.uses.get(let.var, ()) if inside]
            if hosts:
                nested[let.var] = hosts
        self.owner = owner
        self.dag = BlockDag(
            [*(let.var for let in lets), None],
            [*(let.value for let in lets), tail],
            nested,
            owner.unbox,
        )
        self.units = Units(self.dag)
        self.taken: set[int] = set()
        self.declined: set[tuple[str, str, Expr]] = set()  # backend, pattern, root
        self.calls: dict[int, tuple[Call, list[int]]] = {}

    def run(self) -> Expr:
        for external in self.owner.externals:
            before = -1
            while before < len(self.declined):  # what it declined may match another pattern of it
                before = len(self.declined)
                self._take(external)
        return self._written()

    def _take(self, external: External) -> None:
        matches = self._matches(external)
        groups = [[match] for match in matches.values()]
        if external.merge:
            matches.update(self._glue(matches))
            connected = self.units.connected(dict.fromkeys(matches))
            groups = [[matches[unit] for unit in group] for group in connected]
        for group in groups:
            self._region(group, external)

    # --- what to take -----------------------------------------------------------------------------

    def _matches(self, external: External) -> dict[int, _Match]:
        """unit -> match, of items that no backend has taken. Each match is a unit."""
        found: dict[int, _Match] = {}
        for name, pattern, check in external.patterns:
            for index in reversed(range(len(self.dag.exprs))):
                expr = self.dag.exprs[index]
                if index in self.taken or not isinstance(expr, Call):
                    continue
                if (external.name, name, expr) in self.declined:
                    continue
                inside = _inside(pattern, expr)
                if inside is None or not self._is_closed(expr, inside):
                    continue
                if not is_wanted(
                    check, expr, f"check of external backend {external.name}, pattern {name}"
                ):
                    continue
                items = {self.dag.item[e] for e in inside}
                if self.units.may_join(items):
                    found[self.units.join(items)] = _Match(name, expr, inside)
                    self.taken |= items
        return found

    def _is_closed(self, root: Expr, inside: frozenset[Expr]) -> bool:
        """Whether all of it is free and in this block, and nothing but its root is read elsewhere."""
        items = {self.dag.item.get(e, -1) for e in inside}
        if -1 in items or not items.isdisjoint(self.taken):
            return False
        return not any(
            self.dag.is_read_outside(i, items) for i in items if i != self.dag.item[root]
        )

    def _glue(self, matches: dict[int, _Match]) -> dict[int, _Match]:
        """Fields of matches' tuples, and tuples with results of matches, that only matches read."""
        found: dict[int, _Match] = {}
        for index, expr in enumerate(self.dag.exprs):
            if not isinstance(expr, Tuple | TupleGetItem) or index in self.dag.outside:
                continue
            made = any(self.units.of[self.dag.item[c]] in matches for c in self._made_here(expr))
            if made and all(self.units.of[r] in matches for r in self.dag.readers[index]):
                found[index] = _Match("", expr, frozenset((expr,)))
        return found

    def _made_here(self, expr: Expr) -> list[Expr]:
        return [c for c in children(expr) if c in self.dag.item]

    # --- regions ----------------------------------------------------------------------------------

    def _region(self, matches: list[_Match], external: External) -> None:
        """Make one kernel of matches, or of each of them, or leave them."""
        named = [match for match in matches if match.name]
        call = self._call(matches if len(named) > 1 else named, external)
        if call is not None or not named:
            return
        if len(named) > 1:
            for match in named:
                self._region([match], external)
            return
        items = {self.dag.item[e] for e in named[0].inside}
        self.declined.add((external.name, named[0].name, named[0].root))
        self.taken -= items
        self.units.split(max(items))

    def _call(self, matches: list[_Match], external: External) -> Call | None:
        """The call of a new region; None if the backend declines it, or it can't be a kernel."""
        items = {self.dag.item[e] for match in matches for e in match.inside}
        # A tuple that another region reads is no result of this one; its fields are.
        matches = [m for m in matches if m.name or self.dag.readers[self.dag.item[m.root]] <= items]
        if not matches:
            return None
        items = {self.dag.item[e] for match in matches for e in match.inside}
        roots = {self.dag.item[match.root]: match.root for match in matches}
        outputs = sorted(i for i in roots if self.dag.is_read_outside(i, items))
        types = [type_of(roots[i]) for i in outputs]
        if len(types) > 1 and not all(isinstance(t, TensorType) for t in types):
            return None  # a kernel's results are tensors, or one tuple of them
        call = _RegionBuilder(self.dag, external).call(matches, [roots[i] for i in outputs])
        function = call.op
        if not isinstance(function, Function):
            raise TypeError("a region is a function")
        made = compile_region(self.owner.cache, function, external)
        if made is None:
            return None
        call = typed(Call(made, call.args, span=call.span), call.checked_type)
        self.calls[self.units.join(items)] = call, outputs
        self.owner.regions += 1
        return call

    # --- the block anew ---------------------------------------------------------------------------

    def _written(self) -> Expr:
        bindings: list[tuple[Var, Expr]] = []
        tail: Expr | None = None
        for unit in self.units.order():
            if unit in self.calls:
                tail = self._write_call(*self.calls[unit], bindings)
                continue
            value, var = self.owner.nested(self.dag.values[unit]), self.dag.variables[unit]
            if var is None:
                tail = value
            else:
                bindings.append((var, value))
        if tail is None:
            raise ValueError("a block without an end")
        return make_lets(bindings, tail)

    def _write_call(
        self, call: Call, outputs: list[int], bindings: list[tuple[Var, Expr]]
    ) -> Expr | None:
        """Bind the results; the block's end if the region computes it."""
        if len(outputs) == 1:
            var = self.dag.variables[outputs[0]]
            if var is None:
                return call
            bindings.append((var, call))
            return None
        result = fresh_var("g", type_of(call))
        bindings.append((result, call))
        tail: Expr | None = None
        for field, index in enumerate(outputs):
            value = self.dag.values[index]
            item = typed(TupleGetItem(result, field, span=value.span), type_of(value))
            var = self.dag.variables[index]
            if var is None:
                tail = item
            else:
                bindings.append((var, item))
        return tail


def _inside(pattern: DFPattern, expr: Expr) -> frozenset[Expr] | None:
    """What a pattern computes if it matches here."""
    matcher = Matcher()
    if not matcher.match(pattern, expr):
        return None
    return frozenset({e for p, e in matcher.bindings.items() if p.inner} | {expr})


class _RegionBuilder:
    """Writes matches as a region and its call."""

    def __init__(self, dag: BlockDag, external: External) -> None:
        self.dag = dag
        self.external = external
        self.params: dict[Expr, Var] = {}
        self.made: dict[Expr, Expr] = {}

    def call(self, matches: list[_Match], outputs: list[Expr]) -> Call:
        for match in sorted(matches, key=lambda m: self.dag.item[m.root]):
            root = match.root
            if match.name:
                self.made[root] = self._composite(match)
            else:
                new = tuple([self._operand(c) for c in children(root)])
                self.made[root] = with_children(root, new)
        results = tuple([self.made[e] for e in outputs])
        body = results[0]
        if len(results) > 1:
            body = typed(Tuple(results), TupleType(type_of(r) for r in results))
        attrs = {"Primitive": 1, "Compiler": self.external.name}
        function = _function(self.params.values(), body, attrs, outputs[-1])
        args = tuple(map(self.dag.atom, self.params))
        return typed(Call(function, args, span=outputs[-1].span), type_of(body))

    def _composite(self, match: _Match) -> Call:
        """The call of a function that holds one match."""
        params: dict[Expr, Var] = {}
        made: dict[Expr, Expr] = {}
        names: list[str] = []
        for expr in sorted(match.inside, key=lambda e: self.dag.item[e]):
            new: list[Expr] = []
            for child in children(expr):
                if child in made:
                    new.append(made[child])
                elif isinstance(child, Op) or self._stays(child):
                    new.append(child)
                else:
                    if child not in params:
                        params[child] = fresh_var(f"q{len(params)}", type_of(child))
                    new.append(params[child])
            made[expr] = with_children(expr, tuple(new))
            if isinstance(expr, Call) and isinstance(expr.op, Op):
                names.append(f"{expr.op.name}_")
        attrs = {"Composite": match.name, "PartitionedFromPattern": "".join(names)}
        function = _function(params.values(), made[match.root], attrs, match.root)
        args = tuple([self._operand(e) for e in params])
        return typed(Call(function, args, span=match.root.span), type_of(match.root))

    def _stays(self, expr: Expr) -> bool:
        """Whether a constant stands in the body."""
        if not is_known(expr):
            return False
        return self.external.constants == "owned" or expr.data.size == 1

    def _operand(self, expr: Expr) -> Expr:
        """What stands for a value of the block inside of the region."""
        if expr in self.made:
            return self.made[expr]
        if self._stays(expr):
            return expr
        if isinstance(expr, Tuple) and expr in self.dag.item:
            # Operands are tensors where they can be.
            fields = tuple([self._operand(f) for f in expr.fields])
            self.made[expr] = typed(Tuple(fields, span=expr.span), type_of(expr))
            return self.made[expr]
        if expr not in self.params:
            self.params[expr] = fresh_var(f"p{len(self.params)}", type_of(expr))
        return self.params[expr]


def _function(params: Iterable[Var], body: Expr, attrs: dict[str, Any], source: Expr) -> Function:
    own = tuple(params)
    result = type_of(body)
    return typed(
        Function(own, body, result, (), attrs, span=source.span),
        FuncType([type_of(p) for p in own], result),
    )


def partition_function(
    function: Function, mod: IRModule, externals: Sequence[External], ctx: PassContext
) -> Function:
    """One function with the regions of these backends; the same object if there are none."""
    if is_primitive(function):
        return function
    partitioner = _Partitioner(anf_function(function, mod), externals, ctx.kernels, ctx.unbox)
    result = partitioner.run()
    return result if partitioner.regions else function


def partition(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    if not ctx.externals:
        return mod
    return map_functions(mod, lambda f: partition_function(f, mod, ctx.externals, ctx))


PARTITION = Pass("partition", partition)
