"""The kernels of a program: every distinct fused body is lowered once.

Two fused functions are the same kernel if they are equal up to the names of variables and dims.
`find` returns the index of the kernel and the dims that this call passes, so that lowering (slow)
happens once per body and numbering (fast) once per call.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from nimblevm import dtypes
from nimblevm.abi import DimWord
from nimblevm.bytecode import serialize
from nimblevm.compiler.kernel_key import is_region, region_key, structural_key
from nimblevm.compiler.op_class import is_int
from nimblevm.compiler.rewrite import postorder, type_of
from nimblevm.errors import CompileError, InvalidInput
from nimblevm.kernels import loop_ir
from nimblevm.kernels.c_calls import CCall
from nimblevm.kernels.c_kernels import BY_VARIANT
from nimblevm.kernels.c_rules import calls_c_only
from nimblevm.kernels.dim_program import dim_program
from nimblevm.kernels.loop_ir_form import beyond_limits
from nimblevm.kernels.loop_ir_form import serialize as serialize_body
from nimblevm.kernels.lower import IntParam, LoweredKernel, flat_types, lower_primitive
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.ir import Call, Function
from nimblevm.relay.levels import ATTRIBUTE as LEVELS
from nimblevm.relay.op.registry import Op
from nimblevm.relay.steps import ATTRIBUTE as STEPS
from nimblevm.relay.types import TensorType, substitute


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


@dataclass(frozen=True, slots=True)
class ExternalCode:
    """What an external backend made of a kernel: bytes for the runtime of that name. has_ir: the kernel's loop IR
    computes the same.
    """

    runtime: str
    data: bytes
    has_ir: bool


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """A lowered kernel and the order of its dim variables in its key."""

    name: str
    lowered: LoweredKernel
    variables: tuple[DimVar, ...]
    external: ExternalCode | None = None

    @property
    def c_call(self) -> CCall | None:
        """The C kernel that computes the same, if there is one: it is preferred."""
        return self.lowered.c_kernels[0] if self.lowered.c_kernels else None


def on_device(function: Function) -> bool:
    """Whether plan_devices put a fused function on another device than the host: C kernels run on that alone."""
    return bool(function.attrs.get("device", 0))


class KernelCache:
    """Lowered kernels by structure, for all passes of one compilation.

    unbox    rank-0 integers among the operands are passed as in-dims, so that no call boxes them
    regions  what became of the regions of external backends, by region_key; None: their backend declined
    """

    def __init__(self, unbox: bool = True) -> None:
        self.unbox = unbox
        self.regions: dict[object, Entry | None] = {}
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
        entry, variables = self._region(function) if is_region(function) else self._own(function)
        mapping: dict[DimVar, Dim] = dict(zip(entry.variables, variables, strict=True))
        found = self._calls[function] = (entry, _kernel_call(entry, mapping))
        return found

    def _own(self, function: Function) -> tuple[Entry, tuple[DimVar, ...]]:
        key, variables = structural_key(function)
        entry = self._entries.get(key) or self._lowered(function, key, variables)
        if on_device(function) and entry.lowered.c_kernels:
            key = ("device", key)
            entry = self._entries.get(key) or self._lowered(
                function, key, variables, without_c=True
            )
        return entry, variables

    def _lowered(
        self,
        function: Function,
        key: object,
        variables: tuple[DimVar, ...],
        without_c: bool = False,
    ) -> Entry:
        name = self.new_name(function)
        place = f"{function.body.span}: " if function.body.span is not None else ""
        try:
            lowered = lower_primitive(function, name, self.int_params(function))
        except InvalidInput as error:  # a size of its scratch
            raise CompileError(f"{place}kernel {name}: {error}") from None
        problem = "" if lowered.c_kernels else beyond_limits(lowered.kernel)
        if problem:
            raise CompileError(f"{place}kernel {name}: {problem}; split the call that it is of")
        if without_c:
            lowered = dataclasses.replace(lowered, c_kernels=())
        entry = self._entries[key] = Entry(name, lowered, variables)
        return entry

    def _region(self, function: Function) -> tuple[Entry, tuple[DimVar, ...]]:
        key, variables = region_key(function)
        entry = self.regions.get(key)
        if entry is None:
            name = function.attrs["Compiler"]
            raise CompileError(f"a region of {name} has no code; compile(..., external=[{name!r}])")
        return entry, variables

    def int_params(self, function: Function) -> frozenset[int]:
        """Positions among the flat parameters that are passed as in-dims."""
        if not self.unbox or is_region(function) or calls_c_only(function):
            return frozenset()
        found: set[int] = set()
        position = 0
        for param in function.params:
            type_ = type_of(param)
            if is_int(type_):  # fields of tuples are objects already
                found.add(position)
            position += len(flat_types(type_))
        return frozenset(found)

    def new_name(self, function: Function, prefix: str = "") -> str:
        """A name for a kernel, made of its operators, that no other has."""
        ops = [
            n.op.name.split(".")[-1]
            for n in postorder(function.body)
            if isinstance(n, Call) and isinstance(n.op, Op)
        ]
        name = "_".join(ops[:4]) + (f"_{len(ops)}_ops" if len(ops) > 4 else "") or "copy"
        if STEPS in function.attrs:
            name = f"steps_of_{name}"
        if LEVELS in function.attrs:
            name = f"levels_of_{name}"
        name = f"{prefix}{name}"
        self._names[name] = number = self._names.get(name, -1) + 1
        return f"{name}_{number}" if number else name


class KernelTable:
    """The kernels that one program calls, numbered by first use."""

    def __init__(self, cache: KernelCache) -> None:
        self.cache = cache
        self.entries: list[Entry] = []
        self.devices: dict[int, set[int]] = {}  # of a kernel: the devices that run it
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
        self.devices.setdefault(index, set()).add(function.attrs.get("device", 0))
        return index, call

    def generated(self) -> list[Entry]:
        """The kernels that have loop IR."""
        return [
            e
            for e in self.entries
            if e.c_call is None and (e.external is None or e.external.has_ir)
        ]

    def external(self) -> dict[str, dict[int, bytes]]:
        """The bytes for each runtime: kernel index -> bytes."""
        found: dict[str, dict[int, bytes]] = {}
        for index, entry in enumerate(self.entries):
            if entry.external is not None:
                found.setdefault(entry.external.runtime, {})[index] = entry.external.data
        return found

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
    has_ir = entry.external is None or entry.external.has_ir
    kind = serialize.KERNEL_LOOP_IR if has_ir else serialize.KERNEL_EXTERNAL
    return serialize.KernelRecord(
        entry.name, kind, operands, tuple(exprs), kernel.dims, (), kernel.out_dims,
        entry.lowered.may_fail, serialize_body(kernel) if has_ir else b"", native,
    )  # fmt: skip


def _axis(axis: loop_ir.Axis, exprs: list[int]) -> serialize.AxisRecord:
    match axis.size:
        case loop_ir.Const(value=value):
            return serialize.AxisRecord(serialize.AXIS_CONST, int(value), axis.broadcast)
        case loop_ir.DimRef(index=index):
            return serialize.AxisRecord(serialize.AXIS_DIM, index, axis.broadcast)
    start = len(exprs)
    exprs += (*dim_program(axis.size), DimWord.END)
    return serialize.AxisRecord(serialize.AXIS_EXPR, start, axis.broadcast)
