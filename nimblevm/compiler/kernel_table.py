"""The kernels of a program: every distinct fused body is lowered once.

Two fused functions are the same kernel if they are equal up to the names of variables and dims.
`find` returns the index of the kernel and the dims that this call passes, so that lowering (slow)
happens once per body and numbering (fast) once per call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from nimblevm import dtypes
from nimblevm.bytecode import serialize
from nimblevm.compiler.op_class import is_int
from nimblevm.compiler.rewrite import postorder, type_of
from nimblevm.errors import CompileError
from nimblevm.kernels import loop_ir
from nimblevm.kernels.c_calls import CCall
from nimblevm.kernels.c_kernels import BY_VARIANT
from nimblevm.kernels.c_rules import calls_c_only
from nimblevm.kernels.loop_ir_form import serialize as serialize_body
from nimblevm.kernels.lower import IntParam, LoweredKernel, flat_types, lower_primitive
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimExpr, DimVar
from nimblevm.relay.ir import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, Type, substitute


@dataclass(frozen=True, slots=True)
class KernelCall:
    """What a call of a kernel passes.

    in_dims  in order; IntParam: the value of that flat parameter
    scratch  tensors to allocate
    alias    (output operand, input operand) pairs that may share storage
    views    shape in which each operand is to be viewed (C kernels of fixed rank), () for none
    """

    in_dims: tuple[Dim | IntParam, ...]
    scratch: tuple[TensorType, ...] = ()
    alias: tuple[tuple[int, int], ...] = ()
    views: tuple[tuple[Dim, ...], ...] = ()


class _Numbering:
    """Numbers of DimVars and of other interned things, by first occurrence."""

    def __init__(self) -> None:
        self.dims: dict[DimVar, int] = {}

    def dim(self, dim: Dim) -> object:
        if isinstance(dim, int):
            return dim
        if isinstance(dim, DimVar):
            return ("d", self.dims.setdefault(dim, len(self.dims)))
        parts = [self.dim(a) for a in getattr(dim, "args", ())]
        if getattr(dim, "op", "") in ("add", "mul", "min", "max", "bcast"):
            # The stored order depends on when variables were made, which is no part of what the
            # kernel does.
            parts.sort(key=repr)
        return (getattr(dim, "op", ""), *parts)

    def type(self, type_: Type) -> object:
        """Kernels see tensors and tuples of them; types are shallow here."""
        if isinstance(type_, TensorType):
            return (type_.dtype, *(self.dim(d) for d in type_.shape))
        return ("tuple", *(self.type(t) for t in getattr(type_, "fields", ())))

    def attrs(self, attrs: object) -> object:
        if attrs is None or not dataclasses.is_dataclass(attrs):
            return repr(attrs)
        return (
            type(attrs).__name__,
            *(self._attr(getattr(attrs, f.name)) for f in dataclasses.fields(attrs)),
        )

    def _attr(self, value: object) -> object:
        if isinstance(value, DimExpr):
            return self.dim(value)
        if isinstance(value, Type):
            return self.type(value)
        if isinstance(value, tuple):
            return tuple(self._attr(v) for v in value)
        return repr(value)


def structural_key(function: Function) -> tuple[object, tuple[DimVar, ...]]:
    """A key equal for equal fused functions, and their dim variables in the key's order."""
    numbers = _Numbering()
    index: dict[Expr, int] = {}
    rows: list[object] = []
    for param in function.params:
        index[param] = len(index)
        rows.append(numbers.type(type_of(param)))
    for node in postorder(function.body):
        if isinstance(node, Op) or node in index:
            continue
        rows.append(_row(node, index, numbers))
        index[node] = len(index)
        if isinstance(node, Let):
            index[node] = index[node.body]
    return tuple(rows), tuple(numbers.dims)


def _row(node: Expr, index: dict[Expr, int], numbers: _Numbering) -> object:
    match node:
        case Call(op=Op() as op):
            operands = tuple(index[a] for a in node.args)
            return (op.name, operands, numbers.attrs(node.attrs), numbers.type(type_of(node)))
        case Constant():
            return ("const", node.data.dtype.name, node.data.shape, node.data.tobytes())
        case Tuple():
            return ("tuple", tuple(index[f] for f in node.fields))
        case TupleGetItem():
            return ("get", index[node.tuple_value], node.index)
        case Let():
            return ("let", index[node.value])
        case Var():
            return ("var", node.name_hint)
    raise CompileError(f"{type(node).__name__} can't be part of a kernel")


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """A lowered kernel and the order of its dim variables in its key."""

    name: str
    lowered: LoweredKernel
    variables: tuple[DimVar, ...]

    @property
    def c_call(self) -> CCall | None:
        """The C kernel that computes the same, if there is one: it is preferred."""
        return self.lowered.c_kernels[0] if self.lowered.c_kernels else None


class KernelCache:
    """Lowered kernels by structure, for all passes of one compilation.

    unbox   rank-0 integers among the operands are passed as in-dims, so that no call boxes them
    """

    def __init__(self, unbox: bool = True) -> None:
        self.unbox = unbox
        self._entries: dict[object, Entry] = {}
        self._names: dict[str, int] = {}
        self._calls: dict[Function, tuple[Entry, KernelCall]] = {}

    def find(self, function: Function) -> tuple[Entry, KernelCall]:
        """The kernel of a fused function, lowered if it is new. CompileError if an operator has no
        lowering.
        """
        known = self._calls.get(function)
        if known is not None:
            return known
        key, variables = structural_key(function)
        entry = self._entries.get(key)
        if entry is None:
            name = self._name(function)
            lowered = lower_primitive(function, name, self.int_params(function))
            entry = self._entries[key] = Entry(name, lowered, variables)
        mapping: dict[DimVar, Dim] = dict(zip(entry.variables, variables, strict=True))
        found = self._calls[function] = (entry, _kernel_call(entry, mapping))
        return found

    def int_params(self, function: Function) -> frozenset[int]:
        """Positions among the flat parameters that are passed as in-dims."""
        if not self.unbox or calls_c_only(function):
            return frozenset()
        found: set[int] = set()
        position = 0
        for param in function.params:
            type_ = type_of(param)
            if is_int(type_):  # fields of tuples are objects already
                found.add(position)
            position += len(flat_types(type_))
        return frozenset(found)

    def _name(self, function: Function) -> str:
        ops = [
            n.op.name.split(".")[-1]
            for n in postorder(function.body)
            if isinstance(n, Call) and isinstance(n.op, Op)
        ]
        name = "_".join(ops[:4]) + (f"_{len(ops)}_ops" if len(ops) > 4 else "") or "copy"
        self._names[name] = number = self._names.get(name, -1) + 1
        return f"{name}_{number}" if number else name


class KernelTable:
    """The kernels that one program calls, numbered by first use."""

    def __init__(self, cache: KernelCache) -> None:
        self.cache = cache
        self.entries: list[Entry] = []
        self._index: dict[object, int] = {}

    def find(self, function: Function) -> tuple[int, KernelCall]:
        """Index of a fused function's kernel, and what this call passes."""
        entry, call = self.cache.find(function)
        c_call = entry.c_call
        key: object = entry if c_call is None else (c_call.name, c_call.attrs)
        index = self._index.get(key)
        if index is None:
            index = self._index[key] = len(self.entries)
            self.entries.append(entry)
        return index, call

    def generated(self) -> list[Entry]:
        """The kernels that are loop IR, not C."""
        return [e for e in self.entries if e.c_call is None]

    def records(self, native: dict[str, int]) -> list[serialize.KernelRecord]:
        """The kernel table of the file; `native` maps names to places in the native sections'
        tables.
        """
        return [_record(e, native.get(e.name, -1)) for e in self.entries]


def _kernel_call(entry: Entry, mapping: dict[DimVar, Dim]) -> KernelCall:
    """What a call passes whose dim variables are the values of `mapping`."""
    c_call = entry.c_call
    if c_call is not None:
        views = tuple(tuple(dims.substitute(d, mapping) for d in s) for s in c_call.shapes)
        scratch = tuple(_substituted(t, mapping) for t in c_call.scratch)
        in_dims = tuple(dims.substitute(d, mapping) for d in c_call.dims)
        return KernelCall(in_dims, scratch, views=views)
    lowered = entry.lowered
    in_params = tuple(
        d if isinstance(d, IntParam) else dims.substitute(d, mapping) for d in lowered.in_dims
    )
    scratch = tuple(_substituted(t, mapping) for t in lowered.scratch_types)
    return KernelCall(in_params, scratch, lowered.alias)


def _substituted(type_: TensorType, mapping: dict[DimVar, Dim]) -> TensorType:
    found = substitute(type_, dim_vars=mapping)
    if not isinstance(found, TensorType):
        raise TypeError(f"{type_!r} changed its kind")
    return found


_ROLES = {"in": serialize.ROLE_IN, "out": serialize.ROLE_OUT, "scratch": serialize.ROLE_SCRATCH}
_DIM_OPS = {
    "add": serialize.DIM_ADD, "sub": serialize.DIM_SUB, "mul": serialize.DIM_MUL, "floordiv": serialize.DIM_FLOORDIV,
    "floormod": serialize.DIM_FLOORMOD, "min": serialize.DIM_MIN, "max": serialize.DIM_MAX,
}  # fmt: skip


def _c_record(call: CCall) -> serialize.KernelRecord:
    """The table entry of a C kernel: the signature that the runtime has of it."""
    row, dtype = BY_VARIANT[call.name]
    names = (*row.dims, *row.attrs)
    operands = tuple(
        serialize.OperandRecord(
            _ROLES[o.role],
            dtypes.dtype(dtype if o.dtype == "T" else o.dtype).number,
            tuple(
                serialize.AxisRecord(serialize.AXIS_CONST, a)
                if isinstance(a, int)
                else serialize.AxisRecord(serialize.AXIS_DIM, names.index(a))
                for a in o.axes
            ),
        )
        for o in row.operands
    )
    return serialize.KernelRecord(
        call.name,
        serialize.KERNEL_C,
        operands,
        (),
        row.dims,
        call.attrs,
        row.out_dims,
        row.may_fail,
    )


def _record(entry: Entry, native: int) -> serialize.KernelRecord:
    if entry.c_call is not None:
        return _c_record(entry.c_call)
    kernel = entry.lowered.kernel
    exprs: list[int] = []
    alias = {out: 1 + source for out, source in kernel.alias}
    operands = tuple(
        serialize.OperandRecord(
            _ROLES[b.role],
            dtypes.dtype(b.dtype).number,
            tuple(_axis(a, exprs) for a in b.axes),
            alias.get(i, 0),
        )
        for i, b in enumerate(kernel.buffers)
    )
    return serialize.KernelRecord(
        entry.name, serialize.KERNEL_LOOP_IR, operands, tuple(exprs), kernel.dims, (), kernel.out_dims,
        entry.lowered.may_fail, serialize_body(kernel), native,
    )  # fmt: skip


def _axis(axis: loop_ir.Axis, exprs: list[int]) -> serialize.AxisRecord:
    match axis.size:
        case loop_ir.Const(value=value):
            return serialize.AxisRecord(serialize.AXIS_CONST, int(value), axis.broadcast)
        case loop_ir.DimRef(index=index):
            return serialize.AxisRecord(serialize.AXIS_DIM, index, axis.broadcast)
    start = len(exprs)
    exprs.extend(_postfix(axis.size))
    exprs.append(serialize.DIM_END)
    return serialize.AxisRecord(serialize.AXIS_EXPR, start, axis.broadcast)


def _postfix(value: loop_ir.Value) -> Iterable[int]:
    words: list[tuple[int, ...]] = []
    stack: list[loop_ir.Value] = [value]
    while stack:  # builds the reverse: operator, right operand, left operand
        match stack.pop():
            case loop_ir.Const(value=number):
                words.append((serialize.DIM_CONST, int(number)))
            case loop_ir.DimRef(index=index):
                words.append((serialize.DIM_REF, index))
            case loop_ir.Binary(op=op, lhs=lhs, rhs=rhs) if op in _DIM_OPS:
                words.append((_DIM_OPS[op],))
                stack += (lhs, rhs)
            case other:
                raise CompileError(f"{type(other).__name__} can't stand in a size of an operand")
    return [w for row in reversed(words) for w in row]
