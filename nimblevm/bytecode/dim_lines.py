"""Reports on the dims of a program: plain records, and the report of an executable file.

What stands in a file is read from its signatures and from the instructions that check; the report of a
Relay program, which knows more, is nimblevm.compiler.dim_report's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nimblevm.bytecode import isa
from nimblevm.bytecode.executable import Executable
from nimblevm.bytecode.isa import Kind
from nimblevm.bytecode.serialize import FunctionRecord, NoteRecord, ProgramRecord
from nimblevm.bytecode.types import DimSlot, FunctionInfo, TensorType, TupleType, Type

State = Literal["static", "equal to", "checked", "free"]
STATES: tuple[State, ...] = ("static", "equal to", "checked", "free")


@dataclass(frozen=True, slots=True)
class DimCheck:
    """One comparison at run time.

    function   where it runs: "@main", "%loop in @main"
    source     name of the source, "" if it has none; line and column from 1, 0 if there is no place
    why        which operator or signature demanded it: "argument rhs of add"
    demand     what is compared: "must be ?n"; "" where the file does not say it
    """

    function: str
    source: str
    line: int
    column: int
    why: str
    demand: str

    @property
    def place(self) -> str:
        """`model.rly:3:7`, "" without a place."""
        return f"{self.source}:{self.line}:{self.column}" if self.line else ""

    def __str__(self) -> str:
        text = f"{self.why}: {self.demand}" if self.demand else self.why
        return f"{text} ({self.place})" if self.line else text


@dataclass(frozen=True, slots=True)
class DimLine:
    """One axis of one value.

    value      "parameter %x", "result", or what an intermediate value is; part: the tensor inside of it
               (".1", " (argument 0 of List)"), "" for the value itself
    dim        Relay text: "4", "?n", "?n + 1"
    state      static: a number. equal to: follows from other dims, see `equal_to`. checked: compared at
               run time, see `checks`. free: any size
    equal_to   "axis 0 of %x"; a checked dim may have it too; for a free one it says where it comes from
    """

    value: str
    part: str
    axis: int
    dim: str
    state: State
    equal_to: str = ""
    checks: tuple[DimCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionDims:
    """The dims of one function: parameters, result, local functions, intermediate checks, in this order."""

    name: str
    lines: tuple[DimLine, ...]


@dataclass(frozen=True, slots=True)
class DimReport:
    functions: tuple[FunctionDims, ...]

    def count(self, state: State) -> int:
        """How many dims have a state."""
        return sum(line.state == state for f in self.functions for line in f.lines)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts and lists, the fields' names as keys."""
        functions = [
            {"name": f.name, "dims": [_line_json(line) for line in f.lines]} for f in self.functions
        ]
        return {"functions": functions}


def _line_json(line: DimLine) -> dict[str, Any]:
    out: dict[str, Any] = {
        name: getattr(line, name) for name in ("value", "part", "axis", "dim", "state", "equal_to")
    }
    fields = ("function", "source", "line", "column", "why", "demand")
    out["checks"] = [{name: getattr(check, name) for name in fields} for check in line.checks]
    return out


# --- of a file ------------------------------------------------------------------------------------


def _tensors(type_: Type) -> Iterator[tuple[str, TensorType]]:
    stack: list[tuple[Type, str]] = [(type_, "")]
    while stack:
        current, part = stack.pop()
        if isinstance(current, TensorType):
            yield part, current
        elif isinstance(current, TupleType):
            fields = list(enumerate(current.fields))
            stack.extend((f, f"{part}.{i}") for i, f in reversed(fields))


def _entry_lines(function: FunctionInfo) -> Iterator[DimLine]:
    seen: dict[int, str] = {}
    for param in function.params:
        value = f"parameter %{param.name}"
        for part, tensor in _tensors(param.type):
            for axis, dim in enumerate(tensor.dims):
                place = f"axis {axis} of %{param.name}{part}"
                if dim is None:
                    yield DimLine(value, part, axis, "?", "free")
                elif isinstance(dim, int):
                    yield DimLine(value, part, axis, str(dim), "static")
                elif dim.index not in seen:
                    seen[dim.index] = place
                    yield DimLine(value, part, axis, _name(function, dim), "free")
                else:
                    name = _name(function, dim)
                    why = f"parameter %{param.name}{part} of @{function.name}"
                    check = DimCheck(f"@{function.name}", "", 0, 0, why, f"must be {name}")
                    yield DimLine(value, part, axis, name, "checked", seen[dim.index], (check,))
    for part, tensor in _tensors(function.result):
        for axis, dim in enumerate(tensor.dims):
            if isinstance(dim, DimSlot):
                name, origin = _name(function, dim), seen.get(dim.index, "")
                state: State = "equal to" if origin else "free"
                yield DimLine("result", part, axis, name, state, origin)
            elif dim is None:
                yield DimLine("result", part, axis, "?", "free")
            else:
                yield DimLine("result", part, axis, str(dim), "static")


def _name(function: FunctionInfo, dim: DimSlot) -> str:
    return f"?{function.dims[dim.index].name}"


def _notes(code: Sequence[int]) -> Iterator[int]:
    """The notes of the instructions of a function that check dims, in order."""
    pc = 0
    while pc < len(code):
        row = isa.BY_NUMBER[code[pc]]
        pc += 1
        for operand in row.operands:
            if operand.kind is Kind.NOTE and row.mnemonic in ("CheckDim", "Broadcast"):
                yield code[pc]
            if operand.kind is Kind.IMM64:
                pc += 2
            else:
                pc += 1 + (code[pc] if operand.kind in isa.LIST_ELEMENT else 0)


def _check_lines(program: ProgramRecord, function: FunctionRecord) -> Iterator[DimLine]:
    shown: set[NoteRecord] = set()
    for index in _notes(function.code):
        note = program.notes[index]
        if index and note not in shown:
            shown.add(note)
            source = program.sources[note.source] if note.source >= 0 else ""
            name = f"@{function.name}"
            check = DimCheck(name, source, note.line, note.column, note.text, "")
            value, _, rest = note.text.rpartition(", axis ")
            axis = rest.partition(" ")[0]
            if value and axis.isdecimal():
                yield DimLine(value, "", int(axis), "?", "checked", "", (check,))
            else:
                yield DimLine("broadcast", "", 0, note.text, "checked", "", (check,))


def executable_report(exe: Executable) -> DimReport:
    """The dims of a file: signatures of the public functions, and every check that its code makes."""
    program = exe.program_record()
    found: list[FunctionDims] = []
    for record in program.functions:
        info = exe.functions[record.name]
        lines = list(_entry_lines(info)) if info.public else []
        at_entry = {line.value + line.part + str(line.axis) for line in lines if line.checks}
        for line in _check_lines(program, record):
            if line.value.removesuffix(f" of @{record.name}") + str(line.axis) not in at_entry:
                lines.append(line)
        if lines:
            found.append(FunctionDims(record.name, tuple(lines)))
    return DimReport(tuple(found))


__all__ = [
    "DimCheck", "DimLine", "DimReport", "FunctionDims", "STATES", "State", "executable_report",
]  # fmt: skip
