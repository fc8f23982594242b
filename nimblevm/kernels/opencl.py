"""Launches -> OpenCL C, and the payload of an "opencl" section.

An entry's arguments: for each operand a pointer to a buffer and the operand's byte offset in it (buffers that are parts
of others need more alignment than operands have), the error record if it can fail, the dims that it needs. Kernels with
doubles are left out where a device has none (cl_khr_fp64).

The source is OpenCL C 1.2 without other extensions. Products are fused into sums only where loop_ir.py allows it.
"""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm.errors import NUMBER_OF, DivisionByZero, IndexOutOfRange, NimbleError
from nimblevm.kernels import opencl_ops as ops
from nimblevm.kernels.device_code import launch_record, payload
from nimblevm.kernels.facts import divides, nonzero, pitches, touched
from nimblevm.kernels.loop_ir import (
    Accumulate,
    Barrier,
    Binary,
    Cast,
    CheckIndex,
    Compare,
    Const,
    DimRef,
    For,
    If,
    Kernel,
    Load,
    Local,
    LoopVar,
    Select,
    SetLocal,
    Statement,
    Store,
    Unary,
    Value,
)
from nimblevm.kernels.opencl_ops import MEMORY, REGISTER, Helpers
from nimblevm.kernels.rewrite import parts
from nimblevm.kernels.schedule.grid import schedule_grid
from nimblevm.kernels.schedule.launch import Launch, elements, locals_of
from nimblevm.kernels.value_scopes import ScopedValues

UNROLL = 4
"""Loops of at most so many turns over arrays of a thread are unrolled, so that these become registers; for the loop
over the depth of a tile too, compilers take ten times as long."""


class LaunchText(ScopedValues):
    """Writes one launch as a kernel function. number: of the kernel in its file, for fault records."""

    def __init__(self, launch: Launch, entry: str, number: int, helpers: Helpers) -> None:
        super().__init__(launch.buffers, launch.kernel.alias)
        self.launch, self.entry, self.number, self.helpers = launch, entry, number, helpers
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.locals: dict[Local, str] = {}
        self.pitches = pitches(launch.kernel)
        self.operands = launch.operands()
        self.private = set(launch.own("private"))
        self.strides: dict[int, list[tuple[str, str]]] = {}

    def text(self) -> str:
        """The function. Unsupported for an operation without code."""
        self._begin()
        self._block(self.launch.body)
        x, y, z = self.launch.block
        head = f"__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\nvoid {self.entry}({self._params()}) {{"
        found = "\n".join([head, *self.lines, "}", ""])
        return ops.guarded(found) if self._has_doubles() else found

    def _has_doubles(self) -> bool:
        """Whether the function has a variable or operand of type double."""
        launch = self.launch
        used = [launch.buffers[n] for n in (*self.operands, *launch.own("shared"), *self.private)]
        kinds = {b.dtype for b in used} | {v.dtype for v in launch.values()}
        return "float64" in kinds | {local.dtype for local in locals_of(launch.body)}

    def _params(self) -> str:
        found: list[str] = []
        for n in self.operands:
            type_ = MEMORY[self.launch.buffers[n].dtype]
            found += [f"__global {type_} *a{n}", f"long o{n}"]
        if self.launch.can_fail():
            found.append("__global nvm_fault_record *record")
        return ", ".join([*found, *(f"long d{n}" for n in self.launch.dims())])

    def _begin(self) -> None:
        """Ids, arrays, locals, strides."""
        launch = self.launch
        for kind, letter, names in (
            ("group_id", "g", launch.group),
            ("local_id", "t", launch.thread),
        ):
            for axis, var in enumerate(names):
                self.scopes[0][var] = f"{letter}{axis}"
                self._line(f"const long {letter}{axis} = get_{kind}({axis});")
        for n in self.operands:
            type_ = MEMORY[launch.buffers[n].dtype]
            self._line(
                f"__global {type_} *b{n} = (__global {type_} *)((__global char *)a{n} + o{n});"
            )
        for n in (*launch.own("shared"), *launch.own("private")):
            buffer = launch.buffers[n]
            space = "__local " if buffer.role == "shared" else ""
            self._line(f"{space}{REGISTER[buffer.dtype]} b{n}[{elements(buffer)}];")
        for local in locals_of(launch.body):
            self.locals[local] = f"x{len(self.locals)}"
            self._line(f"{REGISTER[local.dtype]} {self.locals[local]} = 0;")
        for n in (*self.operands, *launch.own("shared"), *launch.own("private")):
            self.strides[n] = [self._stride(n, axis) for axis in range(len(launch.buffers[n].axes))]

    def _stride(self, buffer: int, axis: int) -> tuple[str, str]:
        """A factor for indices, 0 where an axis of one element is broadcast ("" for an axis that never is), and the
        axis's size.
        """
        place = self.pitches.get((buffer, axis))
        if place is None:
            return "", self._value(self.launch.buffers[buffer].axes[axis].size)
        return f"(d{place} != 1)", f"d{place}"

    # --- statements -----------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def _name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def _block(self, body: Sequence[Statement]) -> None:
        """Statements nest as deep as loops do (at most 32 and what schedules add), so this recurses."""
        for statement in body:
            self.temporary = {}
            match statement:
                case For():
                    self._for(statement)
                case If(cond=cond, then=then, otherwise=otherwise):
                    self._line(f"if ({self._value(cond)}) {{")
                    self._scoped(then)
                    if otherwise:
                        self._line("} else {")
                        self._scoped(otherwise)
                    self._line("}")
                case Store(buffer=buffer, indices=indices, value=value):
                    self._store(buffer, indices, value)
                case SetLocal(local=local, value=value):
                    found = self._value(value)
                    self._line(f"{self.locals[local]} = {found};")
                case Accumulate():
                    self._accumulate(statement)
                case Barrier():
                    self._line("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);")
                case _:
                    raise TypeError(f"{type(statement).__name__} can't stand in a launch")

    def _scoped(self, body: Sequence[Statement], first: dict[Value, str] | None = None) -> None:
        self.depth += 1
        super()._scoped(body, first)
        self.depth -= 1

    def _for(self, loop: For) -> None:
        extent = self._value(loop.extent)
        turn = self._name()
        if self._unrolls(loop):
            self._line("#pragma unroll")
        self._line(f"for (long {turn} = 0; {turn} < {extent}; {turn}++) {{")
        self._scoped(loop.body, {loop.var: turn})
        self._line("}")

    def _unrolls(self, loop: For) -> bool:
        if not self.private or not isinstance(loop.extent, Const) or loop.extent.value > UNROLL:
            return False
        return bool(touched(loop.body) & self.private)

    def _store(self, buffer: int, indices: tuple[Value, ...], value: Value) -> None:
        found = self._total(value) if buffer in self.private else self._value(value)
        place = self._position(buffer, indices)
        if buffer in self.operands and self.launch.buffers[buffer].dtype == "float16":
            self._line(f"vstore_half_rte({found}, {place}, b{buffer});")
        else:
            self._line(f"b{buffer}[{place}] = {found};")

    def _total(self, value: Value) -> str:
        """A new element of an array of the thread's: an Accumulate in another form."""
        if isinstance(value, Binary) and value.op == "add":
            return self._sum(self._value(value.lhs), value.rhs, value.dtype)
        return self._value(value)

    def _sum(self, old: str, term: Value, dtype: str) -> str:
        """old + term, a product being fused into it."""
        product = isinstance(term, Binary) and term.op == "mul"
        if isinstance(term, Binary) and product and dtype in ("float32", "float64"):
            x, y = self._value(term.lhs), self._value(term.rhs)
            return f"NVM_FUSED_{REGISTER[dtype]}({x}, {y}, {old})"
        return ops.binary(self.helpers, "add", old, self._value(term), dtype)

    def _accumulate(self, statement: Accumulate) -> None:
        name, dtype = self.locals[statement.local], statement.local.dtype
        if statement.op == "add":
            new = self._sum(name, statement.value, dtype)
        else:
            new = ops.binary(self.helpers, statement.op, name, self._value(statement.value), dtype)
        self._line(f"{name} = {new};")

    def _position(self, buffer: int, indices: tuple[Value, ...]) -> str:
        """The number of an element in its buffer, row-major. An outer index of 0 is left out."""
        position = ""
        for (stretched, size), index in zip(self.strides[buffer], indices, strict=True):
            at = self._value(index)
            if stretched:
                at = f"{at} * {stretched}"
            position = f"({position}) * {size} + {at}" if position and position != "0l" else at
        return position or "0"

    # --- values ---------------------------------------------------------------------------------

    def _fixed(self, value: Value) -> str | None:
        if isinstance(value, Const):
            return ops.literal(value.value, value.dtype)
        if isinstance(value, DimRef):
            return f"d{value.index}"
        return self.locals[value] if isinstance(value, Local) else None

    def _write(self, value: Value) -> str:
        """A new variable of the value, whose parts are known."""
        if isinstance(value, CheckIndex):
            return self._checked(value)
        if isinstance(value, Binary) and divides(value) and not nonzero(value.rhs):
            self._fail_if(f"{self._known(value.rhs)} == 0", DivisionByZero, -1, "0l", "0l")
        text = self._expression(value)
        name = self._name()
        self._line(f"const {REGISTER[value.dtype]} {name} = {text};")
        return name

    def _expression(self, value: Value) -> str:
        x, y, z = (*(self._known(p) or "" for p in parts(value)), "", "", "")[:3]
        match value:
            case Load(dtype=dtype, buffer=buffer, indices=indices):
                place = self._position(buffer, indices)
                if buffer in self.operands and dtype == "float16":
                    return f"vload_half({place}, b{buffer})"
                element = f"b{buffer}[{place}]"
                return f"{element} != 0" if buffer in self.operands and dtype == "bool" else element
            case Unary(op=op, dtype=dtype, operand=operand):
                return ops.unary(self.helpers, op, x, operand.dtype, dtype)
            case Binary(op=op, dtype=dtype):
                return ops.binary(self.helpers, op, x, y, dtype)
            case Compare(op=op):
                return ops.compare(op, x, y)
            case Select():
                return f"{x} ? {y} : {z}"
            case Cast(dtype=dtype, operand=operand):
                return ops.cast(x, operand.dtype, dtype)
            case LoopVar(name=name):
                raise ValueError(f"launch {self.entry}: {name} is used outside of its loop")
        raise TypeError(f"unknown value {type(value).__name__}")

    def _checked(self, value: CheckIndex) -> str:
        index, bound = self._known(value.index) or "", self._known(value.bound) or ""
        bad = f"{index} < 0 || {index} >= {bound}"
        self._fail_if(bad, IndexOutOfRange, value.operand, index, bound)
        return index

    def _fail_if(
        self, bad: str, error: type[NimbleError], operand: int, index: str, bound: str
    ) -> None:
        args = f"record, {NUMBER_OF[error]}, {operand}, {index}, {bound}, {self.number}"
        self._line(f"if ({bad}) {{ nvm_fault({args}); return; }}")


def generate(kernels: Sequence[tuple[int, Kernel]]) -> bytes:
    """The payload of a section for these kernels, each with its number in the file.

    Unsupported for a kernel that has no OpenCL code.
    """
    helpers = Helpers()
    texts: list[str] = []
    records: dict[int, list[list[object]]] = {}
    for number, kernel in kernels:
        records[number] = []
        for part, launch in enumerate(schedule_grid(kernel)):
            entry = f"k{number}_{part}"
            texts.append(
                f"/* {kernel.name.replace('*/', '')} */\n"
                + LaunchText(launch, entry, number, helpers).text()
            )
            records[number].append(launch_record(launch, entry))
    source = "\n".join([ops.HEAD, *helpers.texts.values(), *texts])
    return payload(source.encode(), records)


__all__ = ["LaunchText", "generate"]
