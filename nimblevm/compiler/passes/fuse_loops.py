"""Run the steps of a counted loop inside of one kernel.

before:  def @loop(%n: int32, %i: int32, %h: Tensor[(1, 4), float32], %rows: Tensor[(?n, 4), float32]) {
           let %go = less(%i, %n);
           if (%go) {
             let %s = memory.alloc_storage(size=16); let %out = memory.alloc_tensor(%s, shape=[1, 4], ...);
             let %k = vm.call_kernel(fn (%p0, %p1: int32, %p2, Primitive=1) {...}, (%rows, %i, %h), (%out,));
             let %next = add(%i, 1);
             @loop(%n, %next, %out, %rows)
           } else { %h } }
after:   def @loop(...) {
           let %go = less(%i, %n);
           if (%go) {
             let %steps = maximum(minimum(subtract(%n, %i), 64), 1);
             let %s = memory.alloc_storage(size=16); let %out = memory.alloc_tensor(%s, shape=[1, 4], ...);
             let %k = vm.call_kernel(fn (%p0, %p1, %p2, %count: int32, Primitive=1, Steps=[3, [[1, 1]], [[2, 0]], []])
                                     {...}, (%rows, %i, %h, %steps), (%out,));
             let %next = add(%i, %steps);
             @loop(%n, %next, %out, %rows)
           } else { %h } }

Between two steps a turn of the loop in the VM costs little by itself, but a step that streams weights through the
caches throws everything out that the VM needs for it. And the threads take each other step from the other end, so that
part of the weights is still in their caches (native/src/call.c). The group's body stays that of one step
(relay/steps.py); what the loop carries is read and written inside (kernels/repeat.py). Rows that the loop appends are
appended for all steps at once. Turns of at most 64 steps keep limits on instructions, and memory for rows small.

A loop qualifies if a turn that goes on is one kernel that can't fail and is not a C kernel, allocation, integer
arithmetic and appends of single rows; its parameters are passed on as they are, counted by 1, results of the kernel, or
grown by such an append. The kernel may read integers that are the counter times 1, -1, ... plus what does not change.

Needs: the form of manifest_alloc, integers in registers (unbox). Keeps: both. Cost: O(nodes). Removable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np

from nimblevm.abi import MAX_OPERANDS, MAX_RANK
from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.kernel_table import KernelCache
from nimblevm.compiler.op_class import OpClass, class_of
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.passes.manifest_alloc import ALIGNMENT, byte_size
from nimblevm.compiler.rewrite import (
    fresh_var,
    is_primitive,
    let_chain,
    make_lets,
    map_functions,
    op_call,
    type_of,
    typed,
    with_body,
    with_children,
)
from nimblevm.kernels.lower import LoweredKernel
from nimblevm.relay import dims
from nimblevm.relay.dims import DimExpr, DimVar
from nimblevm.relay.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Tuple,
    Var,
    is_known,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.vm import STORAGE
from nimblevm.relay.steps import ATTRIBUTE, StepLoop
from nimblevm.relay.types import FuncType, TensorType, TupleType, Type, free_dims, scalar_type

MAX_STEPS = 64
_MEMORY = ("memory.alloc_storage", "memory.alloc_tensor")


@dataclass(eq=False, slots=True)
class _Loop:
    """What a turn is made of, by position of parameters.

    counter: i; limit: n of `i < n`; next: the variable of i + 1. kernel: its binding. carried: parameter -> result.
    appended: parameter -> (binding of the append, result). slopes: integers -> what they grow by with each turn.
    """

    counter: Var
    limit: Expr
    next: Let
    kernel: Let
    carried: dict[Var, int] = field(default_factory=dict)
    appended: dict[Var, tuple[Let, int]] = field(default_factory=dict)
    slopes: dict[Expr, int] = field(default_factory=dict)


class _Finder:
    """Recognises the loop of one function."""

    def __init__(self, name: GlobalVar, function: Function, kernels: KernelCache) -> None:
        self.name = name
        self.function = function
        self.kernels = kernels
        self.made: dict[Var, Expr] = {}
        self.slopes: dict[Expr, int] = {}
        self.fixed: set[Var] = set()
        self.checked: list[Var] = []

    def find(self) -> _Loop | None:
        head, guard = let_chain(self.function.body)
        if not isinstance(guard, If) or not isinstance(guard.cond, Var):
            return None
        lets, again = let_chain(guard.true_branch)
        if not isinstance(again, Call) or again.op is not self.name:
            return None
        self.made = {let.var: let.value for let in (*head, *lets)}
        cond = self.made.get(guard.cond)
        if not isinstance(cond, Call) or not is_op(cond, "less", "greater"):
            return None
        low, high = map(self.resolve, cond.args if is_op(cond, "less") else reversed(cond.args))
        if not isinstance(low, Var) or low not in self.function.params:
            return None
        args = dict(zip(self.function.params, again.args, strict=True))
        self.fixed = {p for p, a in args.items() if self.resolve(a) is p}
        self.slopes = {low: 1, **dict.fromkeys(self.fixed, 0)}
        if not self._find_slopes(head) or not self._find_slopes(lets) or self.slope(high) != 0:
            return None
        kernels = [let for let in lets if _is_call(let.value, "vm.call_kernel")]
        following = [let for let in lets if self.resolve(args[low]) is let.var]
        if len(kernels) != 1 or len(following) != 1 or not self._is_next(following[0].value, low):
            return None
        loop = _Loop(low, high, following[0], kernels[0], slopes=self.slopes)
        fits = self._find_carried(loop, args, lets) and self._reads_once(loop, head, lets, again)
        return loop if fits else None

    def resolve(self, value: Expr) -> Expr:
        while isinstance(value, Var) and isinstance(self.made.get(value), Var):
            value = self.made[value]
        return value

    def slope(self, value: Expr) -> int | None:
        value = self.resolve(value)
        return 0 if isinstance(value, Constant) else self.slopes.get(value)

    def _find_slopes(self, lets: list[Let]) -> bool:
        """What the integers of a block grow by; False where something else than a loop's turn is computed."""
        for let in lets:
            value = let.value
            if class_of(value, unbox=True) is OpClass.SCALAR and isinstance(value, Call):
                slope = self._sum(value)
                if slope is not None:
                    self.slopes[let.var] = slope
            elif _is_call(value, "vm.dim_value"):
                self.slopes[let.var] = 0
            elif _is_call(value, "vm.match_type") and self.resolve(value.args[0]) in self.fixed:
                # Checked once for all steps; the first one fails, or none.
                self.slopes[let.var] = 0
                self.checked.append(let.var)
            elif not (
                isinstance(value, Var | Tuple)
                or _is_call(value, *_MEMORY, "vm.call_kernel", "vm.append")
            ):
                return False
        return True

    def _sum(self, value: Call) -> int | None:
        slopes = [self.slope(a) for a in value.args]
        known = [s for s in slopes if s is not None]
        if len(known) < len(slopes):
            return None
        if is_op(value, "add") and type_of(value) == type_of(value.args[0]):
            return known[0] + known[1]
        if is_op(value, "subtract"):
            return known[0] - known[1]
        return None if any(known) else 0

    def _is_next(self, value: Expr, counter: Var) -> bool:
        if not isinstance(value, Call) or not is_op(value, "add"):
            return False
        parts = [self.resolve(a) for a in value.args]
        ones = [p for p in parts if is_known(p) and p.data.ndim == 0 and p.data == 1]
        return len(ones) == 1 and counter in parts

    def _find_carried(self, loop: _Loop, args: dict[Var, Expr], lets: list[Let]) -> bool:
        """Whether every parameter is passed on in a way that the steps of a kernel can follow."""
        outs = _outs(loop.kernel)
        appends = {let.var: let for let in lets if _is_call(let.value, "vm.append")}
        for param, arg in args.items():
            arg = self.resolve(arg)
            append = appends.pop(arg, None) if isinstance(arg, Var) else None
            if param in self.fixed or param is loop.counter:
                continue
            if append is not None and isinstance(append.value, Call):
                whole, tail = map(self.resolve, append.value.args)
                rows = tail in outs and append.value.attrs.axis == 0 and _is_row(type_of(tail))
                if whole is not param or not rows:
                    return False
                loop.appended[param] = (append, outs.index(tail))
            elif arg in outs and type_of(arg) == type_of(param):
                loop.carried[param] = outs.index(arg)
            elif not self._keeps_dim(param, arg):
                return False
        return not appends

    def _keeps_dim(self, param: Var, arg: Expr) -> bool:
        """Whether a parameter that is the number of a dim is passed that very number again."""
        made = self.made.get(arg) if isinstance(arg, Var) else None
        positions = dict(self.function.attrs.get("dim_params", ()))
        dim = positions.get(self.function.params.index(param))
        return dim is not None and _is_call(made, "vm.dim_value") and made.attrs.dim is dim

    def _reads_once(self, loop: _Loop, head: list[Let], lets: list[Let], again: Call) -> bool:
        """Whether a turn's results go nowhere else than to the next turn."""
        appended = {let.var for let, _ in loop.appended.values()}
        moving = {loop.next.var, *appended}
        allowed = [loop.kernel, *(let for let, _ in loop.appended.values())]
        results = set(_outs(loop.kernel))
        for let in lets:
            for part in getattr(let.value, "args", ()):
                found = self.resolve(part)
                if found in appended or (found in results and let not in allowed):
                    return False
        return sum(self.resolve(a) in moving for a in again.args) == len(moving)


def _is_call(value: Expr | None, *names: str) -> TypeGuard[Call]:
    return isinstance(value, Call) and is_op(value, *names)


def _parts(value: Expr) -> list[Expr]:
    """What a binding reads: a variable, operands of a call, fields of a tuple among them."""
    found: list[Expr] = []
    for part in value.args if isinstance(value, Call) else (value,):
        found += part.fields if isinstance(part, Tuple) else (part,)
    return found


def _is_row(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.shape[0] == 1


def _outs(kernel: Let) -> tuple[Expr, ...]:
    outs = kernel.value.args[2] if isinstance(kernel.value, Call) else None
    return outs.fields if isinstance(outs, Tuple) else ()


class _Writer:
    """Writes the turn of several steps."""

    def __init__(self, finder: _Finder, loop: _Loop, kernels: KernelCache) -> None:
        self.finder = finder
        self.loop = loop
        self.kernels = kernels
        self.function = finder.function
        self.bindings: list[tuple[Var, Expr]] = []
        self.grown: dict[Var, Var] = {}

    def fits(self) -> StepLoop | None:
        """How the kernel is repeated; None if it can't be."""
        call = self.loop.kernel.value
        if not isinstance(call, Call) or call.attrs.dims:
            return None
        function, ins, outs = call.args
        if not isinstance(function, Function) or set(function.attrs) != {"Primitive"}:
            return None
        if not isinstance(ins, Tuple) or not isinstance(outs, Tuple):
            return None
        entry, passed = self.kernels.find(function)
        lowered = entry.lowered
        if entry.c_call is not None or lowered.may_fail or lowered.kernel.out_dims:
            return None
        ints = self.kernels.int_params(function)
        counters: list[tuple[int, int]] = []
        carried: list[tuple[int, int]] = []
        for position, atom in enumerate(ins.fields):
            atom = self.finder.resolve(atom)
            if not isinstance(type_of(atom), TensorType):
                return None
            slope = self.finder.slope(atom)
            if isinstance(atom, Var) and atom in self.loop.carried:
                carried.append((position, self.loop.carried[atom]))
            elif slope is None or (slope and position not in ints):
                return None
            elif slope:
                counters.append((position, slope))
        collected = tuple(dict.fromkeys(out for _, out in self.loop.appended.values()))
        steps = StepLoop(len(ins.fields), tuple(counters), tuple(carried), collected)
        stable = self._stable_dims() | {
            d for v in self.finder.checked for d in free_dims(type_of(v))
        }
        needed = {v for d in passed.in_dims if isinstance(d, DimExpr) for v in dims.free_vars(d)}
        if not needed <= stable or not self._is_small(lowered, steps, ints):
            return None
        return steps

    def _stable_dims(self) -> set[DimVar]:
        """Dims that are the same in all turns: of what does not change, and of what is carried as it is."""
        same = [p for p in self.function.params if p not in self.loop.appended]
        found = {d for p in same for d in free_dims(type_of(p))}
        return found | {d for _, d in self.function.attrs.get("dim_params", ())}

    @staticmethod
    def _is_small(lowered: LoweredKernel, steps: StepLoop, ints: frozenset[int]) -> bool:
        """Whether the kernel of several steps has few enough operands, of ranks that are low enough."""
        buffers = lowered.kernel.buffers
        tensors = [p for p in range(len(lowered.param_types) + len(ints)) if p not in ints]
        states = [buffers[tensors.index(p)] for p, _ in steps.carried]
        fits = all(len(s.axes) < MAX_RANK and not any(a.broadcast for a in s.axes) for s in states)
        return fits and len(buffers) + len(states) + len(steps.collected) <= MAX_OPERANDS

    def branch(self, branch: Expr, steps: StepLoop) -> Expr:
        lets, again = let_chain(branch)
        assert isinstance(again, Call)
        loop = self.loop
        count = self._count()
        rows = self._rows(count, steps)
        appends = {let.var: out for let, out in loop.appended.values()}
        for let in lets:
            value = let.value
            if let is loop.kernel and isinstance(value, Call):
                self._call(let, value, count, tuple(rows.values()), steps)
            elif let is loop.next:
                self._next(let, lets, count)
            elif let.var in appends and isinstance(value, Call):
                self._append(let, value, rows[appends[let.var]])
            else:
                self.bindings.append((let.var, value))
        resolved = ((a, self.finder.resolve(a)) for a in again.args)
        args = tuple(self.grown.get(r, a) if isinstance(r, Var) else a for a, r in resolved)
        return make_lets(self.bindings, with_children(again, (again.op, *args)))

    def _next(self, let: Let, lets: list[Let], count: Var) -> None:
        """The counter of the next turn. Where the kernel reads i + 1 too (`take(%x, %i + 1)`), that keeps its name."""
        type_ = type_of(let.var)
        grown = let.var
        if any(part is let.var for other in lets for part in _parts(other.value)):
            self.bindings.append((let.var, let.value))
            grown = self.grown[let.var] = fresh_var(let.var.name_hint, type_)
        self.bindings.append((grown, op_call("add", (self.loop.counter, count), type_)))

    def _count(self) -> Var:
        """min(n - i, MAX_STEPS). A difference that wraps is negative: then one step."""
        type_ = type_of(self.loop.counter)
        assert isinstance(type_, TensorType)
        most, least = (Constant(np.asarray(n, type_.dtype)) for n in (MAX_STEPS, 1))
        left = self._let("subtract", self.loop.limit, self.loop.counter, type_)
        return self._let("maximum", self._let("minimum", left, most, type_), least, type_)

    def _let(self, op: str, left: Expr, right: Expr, type_: TensorType) -> Var:
        var = fresh_var("steps", type_)
        self.bindings.append((var, op_call(op, (left, right), type_)))
        return var

    def _rows(self, count: Var, steps: StepLoop) -> dict[int, Var]:
        """A tensor for the rows of all steps, by result."""
        outs = _outs(self.loop.kernel)
        dim = DimVar("steps")
        if steps.collected:
            wide = scalar_type("int64")
            number = fresh_var("rows", wide)
            self.bindings.append((number, op_call("cast", (count,), wide, dtype="int64")))
            bound = op_call("vm.bind_dim", (number,), wide, dim=dim)
            self.bindings.append((fresh_var("d", wide), bound))
        found: dict[int, Var] = {}
        for result in steps.collected:
            row = type_of(outs[result])
            assert isinstance(row, TensorType)
            type_ = TensorType((dim, *row.shape[1:]), row.dtype)
            storage, found[result] = fresh_var("s", STORAGE), fresh_var("rows", type_)
            size = op_call(
                "memory.alloc_storage", (), STORAGE, size=byte_size(type_), alignment=ALIGNMENT
            )
            tensor = op_call(
                "memory.alloc_tensor", (storage,), type_, shape=type_.shape, dtype=type_.dtype
            )
            self.bindings += ((storage, size), (found[result], tensor))
        return found

    def _call(
        self, let: Let, call: Call, count: Var, rows: tuple[Var, ...], steps: StepLoop
    ) -> None:
        function, ins, outs = call.args
        assert isinstance(function, Function)
        assert isinstance(ins, Tuple)
        assert isinstance(outs, Tuple)
        param = fresh_var("count", type_of(count))
        params = (*function.params, param)
        repeated = typed(
            Function(
                params, function.body, function.ret_type, (),
                {**function.attrs, ATTRIBUTE: steps.attribute}, span=function.span,
            ),
            FuncType([type_of(p) for p in params], type_of(function.body)),
        )  # fmt: skip
        given, made = (*ins.fields, count), (*outs.fields, *rows)
        types = TupleType([type_of(o) for o in made])
        new = op_call(
            "vm.call_kernel",
            (repeated, typed(Tuple(given), TupleType([type_of(a) for a in given])), typed(Tuple(made), types)),
            types,
            call.span,
            dims=(),
        )  # fmt: skip
        self.bindings.append((let.var if not rows else fresh_var("k", types), new))

    def _append(self, let: Let, value: Call, rows: Var) -> None:
        whole, added = type_of(value.args[0]), type_of(rows)
        assert isinstance(whole, TensorType)
        assert isinstance(added, TensorType)
        type_ = TensorType(
            (dims.add(whole.shape[0], added.shape[0]), *whole.shape[1:]), whole.dtype
        )
        var = fresh_var(let.var.name_hint, type_)
        new = op_call("vm.append", (value.args[0], rows), type_, value.span, axis=value.attrs.axis)
        self.bindings.append((var, new))
        self.grown[let.var] = var


def _fuse(name: GlobalVar, function: Function, kernels: KernelCache) -> Function:
    finder = _Finder(name, function, kernels)
    loop = finder.find()
    if loop is None:
        return function
    writer = _Writer(finder, loop, kernels)
    steps = writer.fits()
    head, guard = let_chain(function.body)
    if steps is None or not isinstance(guard, If):
        return function
    branches = (writer.branch(guard.true_branch, steps), guard.false_branch)
    tail = with_children(guard, (guard.cond, *branches))
    return with_body(function, make_lets([(let.var, let.value) for let in head], tail))


def fuse_loops(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    if not ctx.unbox:
        return mod
    names = {function: name for name, function in mod.functions.items()}

    def fuse(function: Function) -> Function:
        special = is_primitive(function) or "Closure" in function.attrs
        return function if special else _fuse(names[function], function, ctx.kernels)

    return map_functions(mod, fuse)


FUSE_LOOPS = Pass("fuse_loops", fuse_loops)
