"""Group operators into kernels.

before:  let %a = nn.dense(%x, %w); let %b = %a + %c; let %y = tanh(%b); %y
after:   fn (%p0, %p1, %p2, Primitive=1) { tanh(nn.dense(%p0, %p1) + %p2) }(%x, %w, %c)

Inside each block, on the graph of its operator calls: an operator joins the group of its immediate
post-dominator where the patterns of all operators between them allow it (TVM:
src/relay/transforms/fuse_ops.cc; patterns in op/registry.py). Then groups of injective operators
whose other consumers come later join their first consumer as a group with several results, which
keeps the pointwise tail of a recurrent cell in one kernel. Fields of tuples and tuples of operands
go along.

Never fused: operators whose size depends on data, rank-0 integer arithmetic (integer instructions),
reshapes other than those that add or drop axes of size 1 (views). A may_fail operator moves to its
group's place only if nothing between could fail, branch, call or write. A group has at most 256
operators, each counted as often as its code is written (fused_size.py), and 32 operands.
Everything else of class KERNEL becomes a group of one. What only a C kernel computes gets a
parameter for each operand, constants and repeated ones too.

Needs: ANF, inferred types. Keeps: both. Cost: O(n log n), with the group limit as factor.
"""

from __future__ import annotations

from nimblevm.compiler.block_graph import BlockGraph
from nimblevm.compiler.function_blocks import FunctionBlocks
from nimblevm.compiler.fusion import Fusion, Group
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    fresh_var,
    is_primitive,
    make_lets,
    map_functions,
    type_of,
    typed,
)
from nimblevm.kernels.c_rules import calls_c_only
from nimblevm.relay.ir import Call, Expr, Function, Let, Tuple, TupleGetItem, Var, is_known
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import FuncType, TupleType


class _Fuser(FunctionBlocks):
    """Fuses the blocks of one function."""

    def __init__(self, function: Function, unbox: bool) -> None:
        super().__init__(function)
        self.unbox = unbox

    def block(self, lets: list[Let], tail: Expr) -> Expr:
        return _BlockFuser(self, lets, tail).run()


class _BlockFuser:
    """One block: finds groups and writes the block anew."""

    def __init__(self, fuser: _Fuser, lets: list[Let], tail: Expr) -> None:
        self.fuser = fuser
        self.vars: list[Var | None] = [*(let.var for let in lets), None]
        self.values: list[Expr] = [*(let.value for let in lets), tail]
        self.graph = BlockGraph(self.vars, self.values, fuser.uses, fuser.unbox)
        self.fusion = Fusion(self.graph)
        self.bindings: list[tuple[Var, Expr]] = []

    def run(self) -> Expr:
        groups = self.fusion.fuse()
        by_root = {group.members[-1]: group for group in groups}
        inside = {index for group in groups for index in group.members} | self.graph.inlined
        tail: Expr | None = None
        for index, value in enumerate(self.values):
            var = self.vars[index]
            group = by_root.get(index)
            if group is not None:
                tail = self._write_group(group)
            elif index not in inside:
                value = self.fuser.nested(value)
                if var is not None:
                    self.bindings.append((var, value))
                else:
                    tail = value
        if tail is None:
            raise ValueError("a block without an end")
        return make_lets(self.bindings, tail)

    def _write_group(self, group: Group) -> Expr | None:
        """Bind the results of a group; returns the block's end if the group computes it."""
        outputs = [i for i in group.members if self.fusion.is_output(i, group)]
        call = _GroupBuilder(self.graph, group, outputs).call()
        if len(outputs) == 1:
            var = self.vars[outputs[0]]
            if var is None:
                return call
            self.bindings.append((var, call))
            return None
        tuple_var = fresh_var("g", type_of(call))
        self.bindings.append((tuple_var, call))
        tail: Expr | None = None
        for field, index in enumerate(outputs):
            value = self.values[index]
            item = typed(TupleGetItem(tuple_var, field, span=value.span), type_of(value))
            var = self.vars[index]
            if var is None:
                tail = item
            else:
                self.bindings.append((var, item))
        return tail


class _GroupBuilder:
    """Writes a group as a primitive function and its call."""

    def __init__(self, graph: BlockGraph, group: Group, outputs: list[int]) -> None:
        self.graph = graph
        self.group = group
        self.outputs = outputs
        self.params: list[Var] = []
        self.args: list[Expr] = []
        self.made: dict[Expr, Expr] = {}

    def call(self) -> Call:
        graph = self.graph
        for index in self.group.members:
            value = graph.values[index]
            var = graph.vars[index]
            new = self._inner(value)
            if var is not None:
                self.made[var] = new
            self.made[value] = new
        results = tuple(self.made[graph.values[i]] for i in self.outputs)
        body: Expr
        if len(results) == 1:
            body = results[0]
        else:
            body = typed(Tuple(results), TupleType([type_of(r) for r in results]))
        result = type_of(body)
        span = graph.values[self.group.members[-1]].span
        function = typed(
            Function(tuple(self.params), body, result, (), {"Primitive": 1}, span=span),
            FuncType([type_of(p) for p in self.params], result),
        )
        return typed(Call(function, tuple(self.args), span=span), result)

    def _inner(self, value: Expr) -> Expr:
        match value:
            case Call():
                operand = self._param if calls_c_only(value) else self._operand
                args = tuple([operand(a) for a in value.args])
                new: Expr = Call(value.op, args, value.attrs, span=value.span)
            case TupleGetItem():
                new = TupleGetItem(self._operand(value.tuple_value), value.index, span=value.span)
            case Tuple():
                new = Tuple(tuple([self._operand(f) for f in value.fields]), span=value.span)
            case _:
                raise ValueError(f"{type(value).__name__} in a fused group")
        return typed(new, type_of(value))

    def _operand(self, atom: Expr) -> Expr:
        if is_known(atom) and atom.data.size == 1:
            return atom
        found = self.made.get(atom)
        if found is not None:
            return found
        inline = self.graph.inline_tuple(atom)
        if inline is not None:
            new: Expr = typed(
                Tuple(tuple([self._operand(f) for f in inline.fields])), type_of(inline)
            )
        else:
            new = self._param(atom)
        self.made[atom] = new
        return new

    def _param(self, atom: Expr) -> Var:
        param = fresh_var(f"p{len(self.params)}", type_of(atom))
        self.params.append(param)
        self.args.append(atom)
        return param


def fuse_function(function: Function, unbox: bool) -> Function:
    """One function in ANF with its groups."""
    if is_primitive(function) or "Closure" in function.attrs:
        return function
    return _Fuser(function, unbox).run()


def fuse_ops(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, lambda function: fuse_function(function, ctx.unbox))


FUSE_OPS = Pass("fuse_ops", fuse_ops, required=True)
