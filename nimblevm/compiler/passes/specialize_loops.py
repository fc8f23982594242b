"""Bring recursive functions to the call that starts them, with what every call passes on filled in.

before:  def @loop(%i: int32, %h: S, %x: Tensor[(?n, 4), float32], %w: W) -> S {
           if (less(%i, take(shape_of(%x), 0))) { @loop(%i + 1, cell(take(%x, %i), %h, %w), %x, %w) } else { %h } }
         def @main(%x: Tensor[(?m, 4), float32]) { @loop(0, %start, %x, meta[relay.Constant][0]) }
after:   def @main(%x: Tensor[(?m, 4), float32]) {
           let %loop = fn (%i: int32, %h: S) -> S {
             if (less(%i, take(shape_of(%x), 0))) {
               %loop(%i + 1, cell(take(%x, %i), %h, meta[relay.Constant][0])) } else { %h } };
           %loop(0, %start) }

The weights are constants then, and the sequence a variable from outside, which is what the passes on loops and products
look at. A parameter is filled in if every call from inside passes it on and the start gives a variable or a constant.
Dims become those of the arguments where the calls from inside keep them.

For global functions that call themselves, but not through others, in which there is a product, of at most MAX_NODES
nodes, started at most MAX_STARTS times from other functions; they stay, for they may be invoked by name. And for local
functions with a product that are started once. The types of a start's arguments must be proved.

Needs: inferred types, named effects. Keeps: both. Cost: O(nodes of the result).
"""

from __future__ import annotations

from dataclasses import dataclass

from nimblevm.compiler.copying import FunctionCopy, can_copy
from nimblevm.compiler.dataflow import Dataflow, is_op
from nimblevm.compiler.loops import LoopFinder
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, is_primitive, postorder, type_of, typed, with_body
from nimblevm.relay.dims import Dim, DimVar, compare
from nimblevm.relay.ir import Call, Constant, Expr, Function, GlobalVar, Leaf, Let, Var, children
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import FuncType, Type, free_dims, value_tensors

MAX_NODES, MAX_STARTS = 512, 4


@dataclass(frozen=True, eq=False, slots=True)
class _Recursion:
    """name: what its calls call. again: the calls from inside."""

    name: GlobalVar | Var
    function: Function
    again: list[Call]

    def is_passed_on(self, at: int) -> bool:
        return all(c.args[at] is self.function.params[at] for c in self.again)


def _global(mod: IRModule, name: GlobalVar, function: Function) -> _Recursion | None:
    """A global function that calls itself, and none that leads back to it."""
    if function.attrs or function.type_params or is_primitive(function):
        return None
    nodes = postorder(function.body)
    again = [n for n in nodes if isinstance(n, Call) and n.op is name]
    if not again or len(nodes) > MAX_NODES or not can_copy(function):
        return None
    read = [c for n in nodes if not isinstance(n, Leaf) for c in children(n)]
    if read.count(name) != len(again):
        return None
    product = any(is_op(n, "nn.dense") for n in nodes)
    seen: set[GlobalVar] = {name}
    stack = [c for c in nodes if isinstance(c, GlobalVar) and c is not name]
    while stack:
        other = stack.pop()
        if other in seen:
            continue
        seen.add(other)
        for node in postorder(mod.function(other).body):
            if node is name:
                return None
            product = product or is_op(node, "nn.dense")
            if isinstance(node, GlobalVar):
                stack.append(node)
    return _Recursion(name, function, again) if product else None


def _locals(function: Function) -> dict[Call, _Recursion]:
    """The local functions with products that are started once, outside of all of them, by the call that does."""
    finder = LoopFinder(Dataflow(function.body))
    found: dict[Call, _Recursion] = {}
    bodies: set[int] = set()
    for let in finder.candidates:
        own = let.value
        if not isinstance(own, Function) or own.attrs or own.type_params:
            continue
        body, calls = finder.place.sub[own][0], finder.calls.get(let.var, [])
        again = [c for c in calls if finder.is_inside(c, body)]
        starts = [c for c in calls if not finder.is_inside(c, body)]
        if let.var in finder.escaped or not again or len(starts) != 1 or not can_copy(own):
            continue
        work = _Recursion(let.var, own, again)
        if any(is_op(n, "nn.dense") for n in postorder(own.body)) and _filled(work, starts[0]):
            found[starts[0]] = work
            bodies.add(body)
    return {c: w for c, w in found.items() if not _is_within(finder, c, bodies)}


def _is_within(finder: LoopFinder, call: Call, bodies: set[int]) -> bool:
    """Whether a call is evaluated in one of some blocks or within one."""
    block = finder.place.home[call]
    while block and block not in bodies:
        block = finder.place.tree.parent[block]
    return block in bodies


def _filled(work: _Recursion, start: Call) -> dict[Var, Expr]:
    """The parameters that a start decides for all calls."""
    return {
        p: a
        for at, (p, a) in enumerate(zip(work.function.params, start.args, strict=True))
        if isinstance(a, Var | Constant) and work.is_passed_on(at)
    }


def _kept_dims(work: _Recursion, start: Call) -> dict[DimVar, Dim]:
    """Dims of parameters -> those of a start's arguments, for dims that the calls from inside do not change."""
    dims: dict[DimVar, Dim] = {}
    changed: set[DimVar] = set()
    for at, (param, arg) in enumerate(zip(work.function.params, start.args, strict=True)):
        want, have = type_of(param), type_of(arg)
        if any(type_of(c.args[at]) is not want for c in work.again):
            changed.update(free_dims(want))
        for q, p in zip(value_tensors(want), value_tensors(have), strict=False):
            for a, b in zip(q.shape, p.shape, strict=False):
                if isinstance(a, DimVar):
                    dims.setdefault(a, b)
    return {d: v for d, v in dims.items() if d not in changed}


def _proved(actual: Type, wanted: Type, own: set[DimVar]) -> bool:
    """Whether a value needs no check to be of a type, whose dims `own` take what comes."""
    if actual is wanted:
        return True
    have, want = value_tensors(actual), value_tensors(wanted)
    return bool(want) and len(have) == len(want) and all(
        q in own or compare(p, q)
        for a, b in zip(have, want, strict=True)
        for p, q in zip(a.shape, b.shape, strict=True)
    )  # fmt: skip


def _specialized(work: _Recursion, start: Call, outer: frozenset[DimVar]) -> Expr | None:
    """A start as a local function and its call; None if an argument's type is not proved."""
    function = work.function
    copy = FunctionCopy(function, _kept_dims(work, start), outer)
    takes_all = copy.fresh - _repeated(work, copy)
    for param, arg in zip(function.params, start.args, strict=True):
        if not _proved(type_of(arg), copy.type(type_of(param)), takes_all):
            return None
    filled = _filled(work, start)
    kept = [p for p in function.params if p not in filled]
    for param, arg in filled.items():
        copy.memo[param] = arg
    params = tuple([copy.name(p) for p in kept])
    old = type_of(function)
    result = copy.type(old.ret_type) if isinstance(old, FuncType) else None
    if result is None:
        return None
    type_ = FuncType([type_of(p) for p in params], result)
    hint = work.name.name_hint
    var = Var(hint, checked_type=type_)
    copy.memo[work.name] = var
    positions = [at for at, p in enumerate(function.params) if p not in filled]
    body = _Recaller(var, positions).rewrite(copy.rewrite(function.body))
    local = typed(Function(params, body, result, span=function.span), type_)
    args = tuple([start.args[at] for at in positions])
    call = Call(var, args, span=start.span, checked_type=start.checked_type)
    return Let(var, local, call, span=start.span, checked_type=start.checked_type)


def _repeated(work: _Recursion, copy: FunctionCopy) -> set[DimVar]:
    """Dims that more than one parameter's axes have, which an entry compares."""
    seen: dict[DimVar, int] = {}
    for param in work.function.params:
        for tensor in value_tensors(copy.type(type_of(param))):
            for dim in tensor.shape:
                if isinstance(dim, DimVar):
                    seen[dim] = seen.get(dim, 0) + 1
    return {d for d, count in seen.items() if count > 1}


class _Recaller(Rewriter):
    """Calls from inside, without the arguments that are filled in."""

    def __init__(self, var: Var, positions: list[int]) -> None:
        super().__init__()
        self.var = var
        self.positions = positions

    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(new, Call) and new.op is self.var:
            args = tuple([new.args[at] for at in self.positions])
            return Call(self.var, args, span=new.span, checked_type=new.checked_type)
        return new


class _Placer(Rewriter):
    def __init__(
        self,
        name: GlobalVar,
        globals_: dict[GlobalVar, _Recursion],
        locals_: dict[Call, _Recursion],
        outer: frozenset[DimVar],
    ) -> None:
        super().__init__()
        self.name = name
        self.globals = globals_
        self.locals = locals_
        self.outer = outer
        self.moved: set[Var] = set()

    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(new, Call) and isinstance(new.op, GlobalVar):
            work = self.globals.get(new.op)
            if work is not None and new.op is not self.name:
                return _specialized(work, new, frozenset()) or new
        elif isinstance(node, Call) and isinstance(new, Call) and node in self.locals:
            work = self.locals[node]
            placed = _specialized(work, new, self.outer)
            if placed is not None and isinstance(work.name, Var):
                self.moved.add(work.name)
                return placed
        elif isinstance(new, Let) and new.var in self.moved:
            return new.body
        return new


def _outer_dims(function: Function, locals_: dict[Call, _Recursion]) -> frozenset[DimVar]:
    """The dims of a function that are not a local function's own."""
    inside = {n for w in locals_.values() for n in postorder(w.function)}
    outer: set[DimVar] = set()
    for param in function.params:
        outer.update(free_dims(type_of(param)))
    for node in postorder(function.body):
        type_ = node.checked_type
        if node not in inside and type_ is not None and not isinstance(type_, FuncType):
            outer.update(free_dims(type_))
    return frozenset(outer)


def _starts(mod: IRModule, found: dict[GlobalVar, _Recursion]) -> dict[GlobalVar, int]:
    counts = dict.fromkeys(found, 0)
    for name, function in mod.functions.items():
        for node in postorder(function.body):
            op = node.op if isinstance(node, Call) else None
            if isinstance(op, GlobalVar) and op in found and op is not name:
                counts[op] += 1
    return counts


def specialize_loops(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    found = {
        name: work
        for name, function in mod.functions.items()
        if (work := _global(mod, name, function)) is not None
    }
    counts = _starts(mod, found) if found else {}
    globals_ = {n: w for n, w in found.items() if 0 < counts[n] <= MAX_STARTS}
    result: IRModule | None = None
    for name, function in mod.functions.items():
        if is_primitive(function):
            continue
        locals_ = _locals(function)
        if not locals_ and not globals_:
            continue
        placer = _Placer(name, globals_, locals_, _outer_dims(function, locals_))
        new = with_body(function, placer.rewrite(function.body))
        if new is not function:
            result = result or mod.shallow_copy()
            result[name] = new
    return result or mod


SPECIALIZE_LOOPS = Pass("specialize_loops", specialize_loops)
