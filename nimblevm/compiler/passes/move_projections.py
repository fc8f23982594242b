"""Move a projection that runs before a loop into the kernel of the loop's steps.

before:  let %rows = memory.alloc_tensor(...);
         let %k = vm.call_kernel(fn (%p0, %p1, Primitive=1) { nn.contrib_dense_pack(%p0, %p1) }, (%x, w), (%rows,));
         @loop(%n, 0, %h0, %rows)
         def @loop(%n, %i, %h, %rows) { ...
           vm.call_kernel(fn (%p0, %p1: int32, %p2, %count: int32, Primitive=1, Steps=[..]) {
             tanh(take(%p0, %p1, axis=0) + ...) }, (%rows, %i, %h, %steps), ...) ... }
after:   @loop(%n, 0, %h0, %x)
         def @loop(%n, %i, %h, %x) { ...
           vm.call_kernel(fn (%p0, %p1: int32, %p2, %w, %count: int32, Primitive=1, Steps=[..]) {
             tanh(take(nn.contrib_dense_pack(%p0, %w), %p1, axis=0) + ...) }, (%x, %i, %h, w, %steps), ...) ... }

The kernel computes the rows that its steps take before them, at most 64 (kernels/ahead.py): memory is bounded, and the
schedule has products that are bound by arithmetic and steps that are bound by reading weights in one kernel, so that
it may do both at once (kernels/schedule/beside.py).

A projection is moved if the loop is entered at one place, which alone reads the rows; the loop passes them on, and its
kernel reads a row a step; and the kernel that makes them can't fail and computes products of an input, and elementwise
operators behind them.

Needs: the form of fuse_loops. Keeps: it. Cost: O(nodes). Removable.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass

from nimblevm.compiler.copying import FunctionCopy, can_copy
from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.kernel_table import KernelCache
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    fresh_var,
    is_primitive,
    postorder,
    type_of,
    typed,
    with_children,
)
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.ir import Call, Expr, Function, GlobalVar, Let, Tuple, Var, children
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op, OpPattern
from nimblevm.relay.steps import ATTRIBUTE, StepLoop
from nimblevm.relay.types import FuncType, TupleType, free_dims, value_tensors

_PRODUCT = "nn.contrib_dense_pack"


@dataclass(eq=False, slots=True)
class _Move:
    """A projection to move.

    param    the loop's position of the rows
    operand  their position among the operands of its kernel
    kernel   the call of the kernel that makes them
    removed  bindings of that call and of the rows' memory
    """

    param: int
    operand: int
    kernel: Call
    removed: set[Var]


@dataclass(eq=False, slots=True)
class _Loop:
    """A loop of steps. again: its call of the next turn; entry: the one other call; steps: the call of its kernel."""

    name: GlobalVar
    function: Function
    caller: GlobalVar
    entry: Call
    again: Call
    steps: Call


class _Uses:
    """Who uses the variables of a function, and what they are bound to."""

    def __init__(self, function: Function) -> None:
        self.nodes = postorder(function.body)
        self.made = {n.var: n.value for n in self.nodes if isinstance(n, Let)}
        self.count = Counter(c for n in self.nodes for c in children(n) if isinstance(c, Var))
        self.kernels = {
            v: k for v, k in self.made.items() if isinstance(k, Call) and is_op(k, "vm.call_kernel")
        }


class _Finder:
    """Recognises loops of steps, and what may move into them."""

    def __init__(self, mod: IRModule, kernels: KernelCache) -> None:
        self.kernels = kernels
        self.functions = {name: f for name, f in mod.functions.items() if not is_primitive(f)}
        self.uses = {name: _Uses(f) for name, f in self.functions.items()}
        self.calls: dict[GlobalVar, list[tuple[GlobalVar, Call]]] = {}
        self.named: Counter[GlobalVar] = Counter()
        for caller, uses in self.uses.items():
            for node in uses.nodes:
                self.named.update(c for c in children(node) if isinstance(c, GlobalVar))
                if isinstance(node, Call) and isinstance(node.op, GlobalVar):
                    self.calls.setdefault(node.op, []).append((caller, node))

    def loop(self, name: GlobalVar) -> _Loop | None:
        """The loop that is this function, if it is entered at one place."""
        kernels = list(self.uses[name].kernels.values())
        calls = self.calls.get(name, [])
        outside = [(caller, call) for caller, call in calls if caller is not name]
        if len(kernels) != 1 or len(outside) != 1 or len(calls) != 2 or self.named[name] != 2:
            return None
        (again,) = [call for caller, call in calls if caller is name]
        group = kernels[0].args[0]
        if not isinstance(group, Function) or set(group.attrs) != {"Primitive", ATTRIBUTE}:
            return None
        return _Loop(name, self.functions[name], *outside[0], again, kernels[0])

    def moves(self, loop: _Loop) -> list[_Move]:
        """The projections of which the loop's kernel reads a row a step."""
        uses = self.uses[loop.name]
        group, ins, _ = loop.steps.args
        assert isinstance(group, Function)
        assert isinstance(ins, Tuple)
        steps = StepLoop.of(group)
        assert steps is not None
        inside = _Uses(group)
        counters = {group.params[p] for p, _ in steps.counters}
        found: list[_Move] = []
        for position, param in enumerate(loop.function.params):
            operands = [k for k, atom in enumerate(ins.fields) if atom is param]
            passed = loop.again.args[position] is param
            if uses.count[param] != 2 or not passed or len(operands) != 1:
                continue
            rows = group.params[operands[0]]
            readers = [n for n in inside.nodes if isinstance(n, Call) and rows in n.args]
            if inside.count[rows] == 1 and _takes_row(readers[0], rows, counters):
                found += self._made_outside(loop, position, operands[0])
        return found

    def _made_outside(self, loop: _Loop, position: int, operand: int) -> list[_Move]:
        uses = self.uses[loop.caller]
        rows = loop.entry.args[position]
        memory = uses.made.get(rows) if isinstance(rows, Var) else None
        if not isinstance(memory, Call) or not is_op(memory, "memory.alloc_tensor"):
            return []
        storage = memory.args[0]
        if not isinstance(rows, Var) or not isinstance(storage, Var):
            return []
        if uses.count[rows] != 2 or uses.count[storage] != 1:
            return []
        for var, kernel in uses.kernels.items():
            function, _, outs = kernel.args
            fills = isinstance(outs, Tuple) and outs.fields == (rows,) and not uses.count[var]
            if fills and isinstance(function, Function) and self._can_move(function):
                return [_Move(position, operand, kernel, {var, rows, storage})]
        return []

    def _can_move(self, function: Function) -> bool:
        if set(function.attrs) != {"Primitive"} or not can_copy(function):
            return False
        entry, _ = self.kernels.find(function)
        lowered = entry.lowered
        if entry.c_call is not None or lowered.may_fail or lowered.kernel.out_dims:
            return False
        calls = [n for n in postorder(function.body) if isinstance(n, Call)]
        products = [n for n in calls if is_op(n, "nn.contrib_dense_pack")]
        plain = all(
            n in products or (isinstance(n.op, Op) and n.op.pattern <= OpPattern.BROADCAST)
            for n in calls
        )
        return plain and bool(products) and all(n.args[0] in function.params for n in products)


def _takes_row(node: Call, rows: Var, counters: set[Var]) -> bool:
    if not is_op(node, "take") or node.args[0] is not rows or node.args[1] not in counters:
        return False
    return node.attrs.axis == 0 and not node.attrs.batch_dims


class _Writer(Rewriter):
    """Writes a function anew: calls of loops with other arguments, kernels that hold projections.

    given: call of a loop -> positions and what is there now, further arguments behind; params: the same of a loop's own
    """

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[Expr, list[tuple[int, tuple[Expr, ...]]]] = {}
        self.params: list[tuple[int, tuple[Var, ...]]] = []
        self.kernels: dict[Expr, Call] = {}
        self.removed: set[Var] = set()

    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(new, Let) and new.var in self.removed:
            return new.body
        if node in self.kernels:
            return self.kernels[node]
        if isinstance(new, Call) and node in self.given:
            args = list(new.args)
            for position, given in self.given[node]:
                args[position] = given[0]
                args += given[1:]
            return dataclasses.replace(new, args=tuple(args))
        return new

    def function(self, old: Function) -> Function:
        body = self.rewrite(old.body)
        params = list(old.params)
        for position, names in self.params:
            params[position] = names[0]
            params += names[1:]
        type_ = type_of(old)
        assert isinstance(type_, FuncType)
        new = FuncType([type_of(p) for p in params], type_.ret_type, type_.type_params)
        return dataclasses.replace(old, params=tuple(params), body=body, checked_type=new)


def _mapping(loop: _Loop) -> dict[DimVar, Dim]:
    """The caller's dims in terms of the loop's."""
    found: dict[DimVar, Dim] = {}
    for param, arg in zip(loop.function.params, loop.entry.args, strict=True):
        pairs = zip(value_tensors(type_of(param)), value_tensors(type_of(arg)), strict=True)
        for want, have in pairs:
            for inner, outer in zip(want.shape, have.shape, strict=True):
                if isinstance(outer, DimVar):
                    found.setdefault(outer, inner)
    return found


def _plan(loop: _Loop, moves: list[_Move], writers: dict[GlobalVar, _Writer]) -> None:
    """Enter what changes in the loop and where it is entered."""
    mapping = _mapping(loop)
    steps = loop.steps
    for move in moves:
        projection, ins, _ = move.kernel.args
        assert isinstance(projection, Function)
        assert isinstance(ins, Tuple)
        nodes = (*projection.params, *postorder(projection.body))
        known = {d for n in nodes if n.checked_type is not None for d in free_dims(n.checked_type)}
        given = tuple(dict.fromkeys(a for a in ins.fields if isinstance(a, Var)))
        copy = FunctionCopy(projection, mapping, frozenset())
        # What binds the dims of the rows has to bind them still.
        bound = {d for a in given for d in free_dims(copy.type(type_of(a)))}
        rows = free_dims(type_of(loop.function.params[move.param]))
        if not known <= mapping.keys() or not given or not bound.issuperset(rows):
            continue
        params = {a: fresh_var(a.name_hint, copy.type(type_of(a))) for a in given}
        atoms = tuple(params[a] if isinstance(a, Var) else a for a in ins.fields)
        steps = _with_projection(steps, move, projection, copy, atoms)
        inside, outside = (writers.setdefault(n, _Writer()) for n in (loop.name, loop.caller))
        names = tuple(params.values())
        inside.kernels[loop.steps] = steps
        inside.params.append((move.param, names))
        inside.given.setdefault(loop.again, []).append((move.param, names))
        outside.given.setdefault(loop.entry, []).append((move.param, given))
        outside.removed |= move.removed


def _with_projection(
    call: Call, move: _Move, projection: Function, copy: FunctionCopy, atoms: tuple[Expr, ...]
) -> Call:
    """The call of the steps' kernel with the projection inside. Its first operand that is no constant takes the place
    of the rows, so that all others stay where they are; the rest stand before the number of steps.
    """
    old, ins, outs = call.args
    assert isinstance(old, Function)
    assert isinstance(ins, Tuple)
    steps = StepLoop.of(old)
    assert steps is not None
    own = [fresh_var(p.name_hint, copy.type(type_of(p))) for p in projection.params]
    for param, var in zip(projection.params, own, strict=True):
        copy.memo[param] = var
    body = Rewriter({old.params[move.operand]: copy.rewrite(projection.body)}).rewrite(old.body)
    first = next(k for k, atom in enumerate(atoms) if isinstance(atom, Var))
    rest = [k for k in range(len(atoms)) if k != first]
    operands, given = list(old.params[:-1]), list(ins.fields[:-1])
    operands[move.operand], given[move.operand] = own[first], atoms[first]
    operands += [own[k] for k in rest]
    given += [atoms[k] for k in rest]
    steps = dataclasses.replace(steps, count=len(operands))
    params = (*operands, old.params[-1])
    attrs = {**old.attrs, ATTRIBUTE: steps.attribute}
    group = typed(
        Function(params, body, old.ret_type, (), attrs, span=old.span),
        FuncType([type_of(p) for p in params], type_of(body)),
    )
    passed = (*given, ins.fields[-1])
    operands_ = typed(Tuple(passed), TupleType([type_of(a) for a in passed]))
    new = with_children(call, (call.op, group, operands_, outs))
    assert isinstance(new, Call)
    return new


def move_projections(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    finder = _Finder(mod, ctx.kernels)
    writers: dict[GlobalVar, _Writer] = {}
    for name in finder.functions:
        loop = finder.loop(name)
        if loop is not None:
            _plan(loop, finder.moves(loop), writers)
    if not writers:
        return mod
    result = mod.shallow_copy()
    for name, writer in writers.items():
        result[name] = writer.function(finder.functions[name])
    return result


MOVE_PROJECTIONS = Pass("move_projections", move_projections)
