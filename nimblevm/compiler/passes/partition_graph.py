"""Make a global function of each marked region: TVM's PartitionGraph. A pass that users call.

before:  def @main(%x: Tensor[(?n, 4), float32]) {
           annotation.compiler_end(tanh(annotation.compiler_begin(%x, compiler="acc")), compiler="acc") }
after:   def @tvmgen_default_acc_main_0(%acc_0_i0: Tensor[(?n, 4), float32], global_symbol="tvmgen_default_acc_main_0",
             Primitive=1, Compiler="acc", Inline=1) { tanh(%acc_0_i0) }
         def @main(%x: Tensor[(?n, 4), float32]) { @tvmgen_default_acc_main_0(%x) }

The function takes each value that the region reads once; constants stand in its body (bind_constants) or are
parameters. Several results become a tuple. Regions of "default" are what TVM writes around what no target takes: their
marks go. So do those of a region that can't be a function: one whose operators name dims in their attributes, or
whose inputs don't say what its dims are. open_regions makes kernels of these functions.

Needs: inferred types. Keeps: both. Cost: O(n log n).
"""

from __future__ import annotations

import dataclasses

from nimblevm.compiler.annotated import AnnotatedFunction, MarkedRegion, is_mark
from nimblevm.compiler.copying import FunctionCopy, can_copy
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    fresh_var,
    is_primitive,
    postorder,
    type_of,
    typed,
    with_body,
    with_children,
)
from nimblevm.relay.dims import Dim, DimExpr, DimVar, free_vars
from nimblevm.relay.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    Tuple,
    TupleGetItem,
    Var,
    children,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.compiler_region import BEGIN, END
from nimblevm.relay.types import (
    HAS_DIM,
    FuncType,
    TensorType,
    TupleType,
    Type,
    free_dims,
    transform,
    value_tensors,
)


def partition_graph_pass(mod_name: str = "default", bind_constants: bool = True) -> Pass:
    """As a pass whose functions are named @tvmgen_<mod_name>_..., or @<mod_name>_... where it starts with tvmgen."""
    prefix = mod_name if mod_name.startswith("tvmgen") else f"tvmgen_{mod_name}"
    if not prefix.replace("_", "").isalnum():
        raise ValueError(f"mod_name is of letters, digits and '_', not {mod_name!r}")

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        result = mod
        for var, function in mod.functions.items():
            if is_primitive(function):
                continue
            partitioner = _Partitioner(mod, f"{prefix}_{{}}_{var.name_hint}", bind_constants)
            new = partitioner.run(function)
            if new is not function:
                result = mod.shallow_copy() if result is mod else result
                result[var] = new
                for symbol, region in partitioner.functions.items():
                    result[symbol] = region
        return result

    return Pass("partition_graph", run)


class _Partitioner:
    """Partitions one function. name: of its regions' `functions`, {} for the compiler."""

    def __init__(self, mod: IRModule, name: str, bind_constants: bool) -> None:
        self.mod = mod
        self.name = name
        self.bind_constants = bind_constants
        self.made: dict[Expr, Expr] = {}
        self.functions: dict[GlobalVar, Function] = {}
        self.number = 0

    def run(self, function: Function) -> Function:
        graph = AnnotatedFunction(function)
        if not graph.regions:
            return function
        units = graph.units()
        regions = {units.of[graph.item[r.nodes[0]]]: r for r in graph.regions}
        for unit in units.order():
            if unit in regions:
                self._region(regions[unit])
            else:
                node = graph.nodes[unit]
                new = tuple([self._new(c) for c in children(node)])
                self.made[node] = with_children(node, new)
        return with_body(function, self._new(function.body))

    def _new(self, node: Expr) -> Expr:
        return self.made.get(node, node)

    def _region(self, region: MarkedRegion) -> None:
        results = list(dict.fromkeys(end.args[0] for end in region.ends))
        call = None if region.compiler == "default" else self._call(region, results)
        if call is None:
            for node in region.nodes:
                new = tuple([self._new(c) for c in children(node)])
                self.made[node] = new[1] if _is_mark(node) else with_children(node, new)
            return
        for end in region.ends:
            value: Expr = call
            if len(results) > 1:
                field = results.index(end.args[0])
                value = typed(TupleGetItem(call, field, span=end.span), end.checked_type)
            self.made[end] = value

    def _call(self, region: MarkedRegion, results: list[Expr]) -> Call | None:
        """The call of a new global function; None if the region can't be one."""
        compiler = region.compiler.replace(".", "_")
        params: dict[Expr, Var] = {}
        inside: dict[Expr, Expr] = {}
        for node in region.nodes:
            parts = children(node)
            if not is_mark(node, BEGIN):
                new = tuple([inside.get(c, c) for c in parts])
                inside[node] = new[1] if _is_mark(node) else with_children(node, new)
            elif isinstance(parts[1], Constant) and self.bind_constants:
                inside[node] = parts[1]
            elif parts[1] in inside:  # right behind an end of this region
                inside[node] = inside[parts[1]]
            else:
                name = f"{compiler}_{self.number}_i{len(params)}"
                inside[node] = params.setdefault(parts[1], fresh_var(name, type_of(parts[1])))
        fields = tuple([inside.get(r, r) for r in results])
        body = fields[0]
        if len(fields) > 1:
            body = typed(Tuple(fields), TupleType([type_of(f) for f in fields]))
        function = _function(tuple(params.values()), body)
        if function is None:
            return None
        symbol = self._symbol(compiler)
        attrs = {"global_symbol": symbol, "Primitive": 1, "Compiler": region.compiler, "Inline": 1}
        span = results[0].span
        var = GlobalVar(symbol)
        self.functions[var] = dataclasses.replace(function, attrs=attrs, span=span)
        return typed(Call(var, tuple([self._new(a) for a in params]), span=span), type_of(body))

    def _symbol(self, compiler: str) -> str:
        """A name that the module does not have."""
        known = {var.name_hint for var in self.mod.functions}
        while True:
            symbol = f"{self.name.format(compiler)}_{self.number}"
            self.number += 1
            if symbol not in known:
                return symbol


def _is_mark(node: Expr) -> bool:
    return is_mark(node, BEGIN) or is_mark(node, END)


class _OwnDims(FunctionCopy):
    """A copy in which dims that are expressions of others are variables."""

    def __init__(self, function: Function, sums: dict[Dim, DimVar]) -> None:
        outer = {
            d for n in postorder(function) if n.checked_type for d in free_dims(n.checked_type)
        }
        super().__init__(function, {}, frozenset(outer))
        self.sums = sums

    def type(self, type_: Type) -> Type:
        def own(leaf: Type) -> Type:
            if not isinstance(leaf, TensorType):
                return leaf
            return TensorType([self.sums.get(d, d) for d in leaf.shape], leaf.dtype)

        return transform(type_, own, HAS_DIM)


def _function(params: tuple[Var, ...], body: Expr) -> Function | None:
    """A region as a function; None if it computes nothing, or its parameters don't name all of its dims."""
    types = FuncType([type_of(p) for p in params], type_of(body))
    function = typed(Function(params, body, type_of(body)), types)
    if not any(isinstance(n, Call) for n in postorder(body)) or not can_copy(function):
        return None
    shapes = [d for p in params for t in value_tensors(type_of(p)) for d in t.shape]
    bound = {d for d in shapes if isinstance(d, DimVar)}
    sums: dict[Dim, DimVar] = {
        d: DimVar(None)
        for d in shapes
        if isinstance(d, DimExpr) and not bound.issuperset(free_vars(d))
    }
    if sums:
        made = _OwnDims(function, sums).rewrite(function)
        if not isinstance(made, Function):
            raise TypeError("the copy of a function is a function")
        function = made
        bound.update(sums.values())
    nodes = [*function.params, *postorder(function.body)]
    known = [n.checked_type for n in nodes if n.checked_type is not None]
    return function if all(bound.issuperset(free_dims(t)) for t in known) else None


__all__ = ["partition_graph_pass"]
