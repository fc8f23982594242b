"""Run all levels of a tree inside of one kernel.

before:  def @levels(%count: int64, %sizes: Tensor[(?l), int32], %names: Tensor[(?a), int32],
                     %level: int64, %start: int64, %done: Tensor[(?m, 4), float32]) {
           let %go = less(%level, %count);
           if (%go) {
             let %n = vm.read_at(%sizes, %level); let %d = vm.bind_dim(%n, dim=?n);
             let %rows = vm.rows(%names, %start, shape=[?n]);
             let %out = memory.alloc_tensor(..., shape=[?n, 4]);
             let %k = vm.call_kernel(fn (%p0, %p1, Primitive=1) { tanh(take(%p0, %p1, axis=0)) },
                                     (%done, %rows), (%out,));
             let %next = add(%level, 1i64); let %above = add(%start, %n);
             let %all = vm.append(%done, %out, axis=0);
             @levels(%count, %sizes, %names, %next, %above, %all)
           } else { %done } }
after:   ... if (%go) {
             let %left = subtract(%count, %level); let %d = vm.bind_dim(%left, dim=?left);
             let %more = vm.rows(%sizes, %level, shape=[?left]);
             let %total = ... sum of %more ...; let %d1 = vm.bind_dim(%total, dim=?total);
             let %most = ... maximum of %more ...; let %d2 = vm.bind_dim(%most, dim=?most);
             let %rows = vm.rows(%names, %start, shape=[?total]);
             let %all = memory.alloc_tensor(..., shape=[?m + ?total, 4]);
             let %k = vm.call_kernel(fn (%p0, %p1, %more, %n, %row, %most, %rows, Primitive=1, Levels=[...]) {
                 tanh(take(%p0, vm.rows(%p1, %row, shape=[?n]), axis=0)) }, (%done, %rows, %more, ...), (%all,));
             let %next = add(%level, %left); let %above = add(%start, %total);
             @levels(%count, %sizes, %names, %next, %above, %all)
           } else { ... }

batch_levels writes such loops. A turn of one takes some 30 instructions of the VM, each of which finds the caches full
of weights, copies of the results when their block is full, and two kernels that must be called. Here the kernels of a
turn become one: what one gives to another is scratch. The group's body is that of one level (relay/levels.py,
kernels/levels.py). Memory is safe whatever the sizes are: views are checked for their sum, in which a negative one
counts 2^32.

A loop qualifies if it counts by 1, a turn that goes on is kernels of loop IR that can't fail, views of its rows,
allocation and appends of results; parameters are passed on as they are, counted, or grown by such an append.

Needs: the form of manifest_alloc, integers in registers (unbox). Keeps: both. Cost: O(nodes). Removable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np

from nimblevm.abi import MAX_OPERANDS
from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.kernel_table import KernelCache
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.passes.manifest_alloc import ALIGNMENT, byte_size
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
    with_children,
)
from nimblevm.kernels.levels import NotByLevels
from nimblevm.kernels.lower import lower_primitive
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar
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
from nimblevm.relay.levels import ATTRIBUTE, LevelLoop
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.vm import STORAGE
from nimblevm.relay.types import FuncType, TensorType, TupleType, Type, scalar_type

MAX_OPS = 256
"""As in fuse_ops: LLVM's time is superlinear."""
_INT = scalar_type("int64")
_MANY = 1 << 32
_PLAIN = ("memory.alloc_storage", "memory.alloc_tensor", "vm.dim_value")

Bindings = list[tuple[Var, Expr]]


class _Fails(Exception):
    """The loop stays one of the VM."""


def _require(condition: object) -> None:
    if not condition:
        raise _Fails


def _is_call(value: Expr | None, *names: str) -> TypeGuard[Call]:
    return isinstance(value, Call) and is_op(value, *names)


def _tensor(node: Expr) -> TensorType:
    type_ = type_of(node)
    if not isinstance(type_, TensorType):
        raise _Fails
    return type_


@dataclass(eq=False, slots=True)
class _Turn:
    """What a turn is made of.

    level, limit  `level < limit`; number: the rows of a level, sizes[level]; size: the same as a dim
    start         the parameter that grows by number, if any; views: variable -> the call of vm.rows at it
    kernels       the calls, in order; made: each result's variable -> (call, number of the result)
    tables        parameter -> the variable that is joined to it; joined: the parameter -> what is passed on
    """

    level: Var
    limit: Expr
    sizes: Var
    number: Var
    size: DimVar
    start: Var | None = None
    views: dict[Var, Call] = field(default_factory=dict)
    kernels: list[Call] = field(default_factory=list)
    made: dict[Expr, tuple[Call, int]] = field(default_factory=dict)
    tables: dict[Var, Expr] = field(default_factory=dict)


class _Finder:
    """Recognises the loop of one function."""

    def __init__(self, name: GlobalVar, function: Function) -> None:
        self.name, self.function = name, function
        self.values: dict[Expr, Expr] = {}
        self.args: dict[Var, Expr] = {}

    def resolve(self, value: Expr) -> Expr:
        while isinstance(value, Var) and isinstance(self.values.get(value), Var):
            value = self.values[value]
        return value

    def fixed(self, value: Expr) -> bool:
        """Whether a value is the same in all turns."""
        value = self.resolve(value)
        return isinstance(value, Constant) or (
            isinstance(value, Var)
            and value in self.args
            and self.resolve(self.args[value]) is value
        )

    def find(self) -> _Turn:
        head, guard = let_chain(self.function.body)
        if not isinstance(guard, If):
            raise _Fails
        lets, again = let_chain(guard.true_branch)
        _require(isinstance(again, Call) and again.op is self.name)
        self.values = {let.var: let.value for let in (*head, *lets)}
        self.args = dict(zip(self.function.params, again.args, strict=True))  # type: ignore[attr-defined]
        _require(all(_is_call(let.value, "less", *_PLAIN[2:]) for let in head))
        cond = self.resolve(guard.cond)
        test = self.values.get(cond)
        if not _is_call(test, "less"):
            raise _Fails
        level, limit = map(self.resolve, test.args)
        if not isinstance(level, Var) or type_of(level) != _INT or not self.fixed(limit):
            raise _Fails
        turn = self._sizes(level, limit, lets)
        for let in lets:
            self._let(turn, let)
        self._parameters(turn)
        return turn

    def _sizes(self, level: Var, limit: Expr, lets: list[Let]) -> _Turn:
        reads = [let for let in lets if _is_call(let.value, "vm.read_at")]
        bounds = [let.value for let in lets if _is_call(let.value, "vm.bind_dim")]
        _require(len(reads) == 1 and len(bounds) == 1)
        sizes, at = map(self.resolve, reads[0].value.args)  # type: ignore[attr-defined]
        bound = bounds[0]
        _require(at is level and self.fixed(sizes) and self.resolve(bound.args[0]) is reads[0].var)
        if not isinstance(sizes, Var) or _tensor(sizes).dtype != "int32" or bound.attrs.where:
            raise _Fails
        return _Turn(level, limit, sizes, reads[0].var, bound.attrs.dim)

    def _let(self, turn: _Turn, let: Let) -> None:
        value = let.value
        if isinstance(value, Var | Tuple) or _is_call(value, "vm.read_at", "vm.bind_dim", *_PLAIN):
            return
        if _is_call(value, "vm.rows"):
            whole, start = map(self.resolve, value.args)
            _require(self.fixed(whole) and isinstance(start, Var) and turn.start in (None, start))
            _require(start is not turn.level)
            _require(value.attrs.shape[0] is turn.size)
            turn.start = start if isinstance(start, Var) else None
            turn.views[let.var] = value
        elif _is_call(value, "vm.call_kernel"):
            function, _, outs = value.args
            _require(isinstance(function, Function) and set(function.attrs) == {"Primitive"})
            _require(isinstance(outs, Tuple) and not value.attrs.dims)
            turn.kernels.append(value)
            fields = outs.fields if isinstance(outs, Tuple) else ()
            turn.made.update((self.resolve(o), (value, k)) for k, o in enumerate(fields))
        else:
            _require(_is_call(value, "vm.append", "add"))

    def _parameters(self, turn: _Turn) -> None:
        """Whether every parameter is passed on in a way that all levels at once can follow."""
        _require(turn.kernels and turn.start is not None)
        used = 0
        for param, arg in self.args.items():
            arg = self.resolve(arg)
            if arg is param:
                continue
            value = self.values.get(arg)
            if param is turn.level or param is turn.start:
                by = turn.number if param is turn.start else None
                _require(_is_call(value, "add") and self._grows(value, param, by))
            elif _is_call(value, "vm.append"):
                whole, tail = map(self.resolve, value.args)
                _require(whole is param and tail in turn.made and value.attrs.axis == 0)
                rows, added = _tensor(param), _tensor(tail)
                _require(isinstance(rows.shape[0], DimVar) and added.shape[0] is turn.size)
                turn.tables[param] = tail
                used += 1
            else:
                raise _Fails
        calls = [v for v in self.values.values() if _is_call(v, "vm.append", "add")]
        _require(turn.tables and len(calls) == used + 2)
        self._reads(turn)

    def _grows(self, value: Call, param: Var, by: Var | None) -> bool:
        parts = [self.resolve(a) for a in value.args]
        if by is not None:
            return set(parts) == {param, by}
        ones = [p for p in parts if is_known(p) and p.data.ndim == 0 and p.data == 1]
        return len(ones) == 1 and param in parts

    def _reads(self, turn: _Turn) -> None:
        """Kernels read what does not change, views, tables and each other's results."""
        for call in turn.kernels:
            ins = call.args[1]
            for atom in ins.fields if isinstance(ins, Tuple) else ():
                atom = self.resolve(atom)
                known = atom in turn.views or atom in turn.tables or atom in turn.made
                _require((known or self.fixed(atom)) and isinstance(type_of(atom), TensorType))
                _require(atom not in (turn.level, turn.start))


# --- the group of all levels ----------------------------------------------------------------------


class _Group:
    """The kernels of a turn as one function, and what it is called with: `operands`, in the order of its parameters."""

    def __init__(self, finder: _Finder, turn: _Turn) -> None:
        self.finder, self.turn = finder, turn
        self.total, self.left, self.most = DimVar("total"), DimVar("left"), DimVar("most")
        self.params: list[Var] = []
        self.operands: list[Expr] = []
        self.made: dict[Expr, Expr] = {}
        self.results: dict[Call, tuple[Expr, ...]] = {}
        self.row = fresh_var("row", _INT)
        self.whole: Var | None = None
        self._bodies()
        self.function = self._function()

    def _function(self) -> Function:
        turn, left = self.turn, self.left
        ends = tuple(self.at(tail) for tail in turn.tables.values())
        sizes = self._param(turn.sizes, TensorType((left,), "int32"))
        size = self._number("n", None)
        row = self._number("row", self.row)
        most = self._number("most", None)
        tables = [
            (self.params.index(self._table(t)), self._number("rows", None), k)
            for k, t in enumerate(turn.tables)
        ]
        if self.whole is None:
            raise _Fails
        loop = LevelLoop(
            self.params.index(sizes), size, row, most, self.params.index(self.whole), tuple(tables)
        )
        self.levels = loop
        bound = [(size, turn.size), (most, self.most)]
        for (_, rows, _), table in zip(tables, turn.tables, strict=True):
            dim = _tensor(table).shape[0]
            assert isinstance(dim, DimVar)
            bound.append((rows, dim))
        attrs = {"Primitive": 1, ATTRIBUTE: loop.attribute, "dim_params": tuple(bound)}
        types = TupleType([type_of(e) for e in ends])
        body = typed(Tuple(ends), types) if len(ends) > 1 else ends[0]
        result = type_of(body)
        _require(sum(isinstance(n, Call) for n in postorder(body)) <= MAX_OPS)
        return typed(
            Function(tuple(self.params), body, result, (), attrs),
            FuncType([type_of(p) for p in self.params], result),
        )

    def _bodies(self) -> None:
        """What each kernel gives, in terms of the group's parameters."""
        for call in self.turn.kernels:
            function, ins, _ = call.args
            assert isinstance(function, Function)
            assert isinstance(ins, Tuple)
            given: dict[Expr, Expr] = dict(
                zip(function.params, map(self.at, ins.fields), strict=True)
            )
            body = Rewriter(given).rewrite(function.body)
            self.results[call] = body.fields if isinstance(body, Tuple) else (body,)

    def at(self, atom: Expr) -> Expr:
        """An operand or result inside of the group."""
        atom = self.finder.resolve(atom)
        if atom not in self.made:
            self.made[atom] = self._at(atom)
        return self.made[atom]

    def _at(self, atom: Expr) -> Expr:
        turn = self.turn
        if atom in turn.made:
            call, number = turn.made[atom]
            _require(call in self.results)
            return self.results[call][number]
        if isinstance(atom, Var) and atom in turn.views:
            view = turn.views[atom]
            type_ = _tensor(atom)
            whole = self._param(atom, TensorType((self.total, *type_.shape[1:]), type_.dtype))
            self.whole = self.whole or whole
            return op_call("vm.rows", (whole, self.row), type_, shape=view.attrs.shape)
        return self._param(atom, type_of(atom))

    def _table(self, table: Var) -> Var:
        found = self.at(table)
        if not isinstance(found, Var):
            raise _Fails
        return found

    def _param(self, operand: Expr, type_: Type) -> Var:
        var = fresh_var(f"p{len(self.params)}", type_)
        self.params.append(var)
        self.operands.append(operand)
        return var

    def _number(self, name: str, var: Var | None) -> int:
        """The place of a number that the call does not give."""
        self.params.append(var or fresh_var(name, _INT))
        self.operands.append(_number(0))
        return len(self.params) - 1


def _number(value: int) -> Constant:
    return typed(Constant(np.asarray(value, "int64")), _INT)


# --- the turn -------------------------------------------------------------------------------------


class _Writer:
    """Writes the turn of all levels."""

    def __init__(self, finder: _Finder, turn: _Turn) -> None:
        self.finder, self.turn = finder, turn
        self.bindings: Bindings = []
        self.group = _Group(finder, turn)

    def fits(self, kernels: KernelCache) -> bool:
        """Whether the kernels can be run for all levels as one."""
        for call in self.turn.kernels:
            function = call.args[0]
            assert isinstance(function, Function)
            entry = kernels.find(function)[0]
            if entry.c_call is not None or entry.lowered.may_fail or entry.lowered.kernel.out_dims:
                return False
        function = self.group.function
        try:
            lowered = lower_primitive(function, "levels", kernels.int_params(function))
        except NotByLevels:
            return False
        return not lowered.may_fail and len(lowered.kernel.buffers) <= MAX_OPERANDS

    def branch(self, branch: Expr) -> Expr:
        lets, again = let_chain(branch)
        assert isinstance(again, Call)
        turn, group = self.turn, self.group
        for let in lets:
            if _is_call(let.value, "vm.dim_value"):
                self.bindings.append((let.var, let.value))
        left = self._let("left", op_call("subtract", (turn.limit, turn.level), _INT))
        self._bind(left, group.left)
        sizes = self._rows(turn.sizes, turn.level, group.left)
        total, most = self._count(sizes)
        self._bind(total, group.total)
        self._bind(most, group.most)
        assert turn.start is not None
        known: dict[Expr, Expr] = {
            v: self._rows(view.args[0], turn.start, group.total) for v, view in turn.views.items()
        }
        known[turn.sizes] = sizes
        operands = [known.get(o, o) for o in group.operands]
        operands[group.levels.most] = most
        tables = self._tables(operands)
        following: dict[Expr, Expr] = {
            turn.level: self._let("level", op_call("add", (turn.level, left), _INT)),
            turn.start: self._let("start", op_call("add", (turn.start, total), _INT)),
            **tables,
        }
        args = tuple(following.get(p, a) for p, a in self.finder.args.items())
        return make_lets(self.bindings, with_children(again, (again.op, *args)))

    def _let(self, name: str, value: Expr) -> Var:
        var = fresh_var(name, type_of(value))
        self.bindings.append((var, value))
        return var

    def _bind(self, number: Var, dim: DimVar) -> None:
        self._let("d", op_call("vm.bind_dim", (number,), _INT, dim=dim))

    def _rows(self, whole: Expr, begin: Var, size: Dim) -> Var:
        type_ = _tensor(whole)
        shape = (size, *type_.shape[1:])
        rows = op_call("vm.rows", (whole, begin), TensorType(shape, type_.dtype), shape=shape)
        return self._let("rows", rows)

    def _count(self, sizes: Var) -> tuple[Var, Var]:
        """The rows of all levels, more than any tensor has if a size is negative; the rows of the largest level."""
        param, type_ = fresh_var("sizes", type_of(sizes)), _tensor(sizes)
        many, flags = TensorType(type_.shape, "int64"), TensorType(type_.shape, "bool")
        wide = op_call("cast", (param,), many, dtype="int64")
        wrong = op_call("less", (wide, _number(0)), flags)
        counted = op_call("where", (wrong, _number(_MANY), wide), many)
        over_all: dict[str, Any] = {"axis": None, "keepdims": False, "exclude": False}
        found = tuple(op_call(name, (counted,), _INT, **over_all) for name in ("sum", "max"))
        both = TupleType([_INT, _INT])
        function = typed(
            Function((param,), typed(Tuple(found), both), both, (), {"Primitive": 1}),
            FuncType([type_], both),
        )
        outs = self._allocate([_INT, _INT])
        self._call(function, (sizes,), outs)
        total, most = (self._let("n", op_call("vm.read_int", (o,), _INT, index=0)) for o in outs)
        return total, most

    def _allocate(self, types: list[Type]) -> tuple[Var, ...]:
        found = []
        for type_ in types:
            assert isinstance(type_, TensorType)
            size = op_call(
                "memory.alloc_storage", (), STORAGE, size=byte_size(type_), alignment=ALIGNMENT
            )
            storage = self._let("s", size)
            tensor = op_call(
                "memory.alloc_tensor", (storage,), type_, shape=type_.shape, dtype=type_.dtype
            )
            found.append(self._let("all", tensor))
        return tuple(found)

    def _call(self, function: Function, ins: tuple[Expr, ...], outs: tuple[Var, ...]) -> None:
        given, made = (TupleType([type_of(a) for a in part]) for part in (ins, outs))
        parts = (function, typed(Tuple(ins), given), typed(Tuple(outs), made))
        place = self.turn.kernels[-1].span
        self._let("k", op_call("vm.call_kernel", parts, made, place, dims=()))

    def _tables(self, operands: list[Expr]) -> dict[Expr, Expr]:
        """The tables with the rows of all levels."""
        types: list[Type] = []
        for table in self.turn.tables:
            type_ = _tensor(table)
            shape = (dims.add(type_.shape[0], self.group.total), *type_.shape[1:])
            types.append(TensorType(shape, type_.dtype))
        found = self._allocate(types)
        self._call(self.group.function, tuple(operands), found)
        return dict(zip(self.turn.tables, found, strict=True))


def _fuse(name: GlobalVar, function: Function, kernels: KernelCache) -> Function:
    finder = _Finder(name, function)
    try:
        writer = _Writer(finder, finder.find())
    except _Fails:
        return function
    if not writer.fits(kernels):
        return function
    head, guard = let_chain(function.body)
    assert isinstance(guard, If)
    branches = (writer.branch(guard.true_branch), guard.false_branch)
    tail = with_children(guard, (guard.cond, *branches))
    return with_body(function, make_lets([(let.var, let.value) for let in head], tail))


def fuse_levels(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    if not ctx.unbox:
        return mod
    names = {function: name for name, function in mod.functions.items()}

    def fuse(function: Function) -> Function:
        special = is_primitive(function) or "Closure" in function.attrs
        return function if special else _fuse(names[function], function, ctx.kernels)

    return map_functions(mod, fuse)


FUSE_LEVELS = Pass("fuse_levels", fuse_levels)
