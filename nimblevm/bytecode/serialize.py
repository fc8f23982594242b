"""Write an executable file: plain records -> bytes, exactly docs/format.md.

Reading is native/src/program.c; nothing here reads a file back. The result depends on the records
alone (no clock, no hash order), and writing is linear in their size. Validation is the reader's: a
record that breaks a rule of the format is refused when its bytes are loaded.

`ProgramBuilder` interns types, notes, sources and constants while a compiler or assembler goes;
`serialize` lays out.
"""

from __future__ import annotations

import hashlib
import math
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import msgpack

from nimblevm import dtypes
from nimblevm.bytecode.distinct_bytes import DistinctBytes
from nimblevm.errors import CompileError

FORMAT_VERSION = 2
FIRST_RELEASES = {1: (0, 1, 0), 2: (0, 2, 0)}
"""The first release of nimblevm that reads a format version."""
MAGIC = b"\x89NVM\r\n\x1a\n"
ALIGNMENT = 64
FIXED_HEADER_SIZE = 96
SIGNATURE_SIZE = 128

BYTECODE, CONSTANTS, KERNEL_IR, NATIVE, DEVICE_CODE, EXTERNAL = range(6)
"""Section kinds."""
KERNEL_LOOP_IR, KERNEL_C, KERNEL_EXTERNAL = range(3)
"""Kernel kinds."""
ROLE_IN, ROLE_OUT, ROLE_SCRATCH = range(3)
AXIS_CONST, AXIS_DIM, AXIS_EXPR = range(3)
TYPE_TENSOR, TYPE_TUPLE, TYPE_ADT, TYPE_FUNC, TYPE_REF, TYPE_VAR = range(6)
UNKNOWN_DIM = -1


def dim_slot(slot: int) -> int:
    """The dim word of a type that stands for dim slot `slot` of the function in whose signature it
    stands.
    """
    return -(2 + slot)


@dataclass(frozen=True, slots=True)
class ParamRecord:
    """A parameter; `is_int`: it arrives in an int register (its type must be a rank-0 unboxable
    tensor).
    """

    name: str
    type: int
    is_int: bool = False


@dataclass(frozen=True, slots=True)
class DimRecord:
    """A named dim of a signature. An empty program: bound at its first occurrence in the
    parameters, which is in parameter `param`. Otherwise words of a postfix program over earlier
    slots, ended by END."""

    name: str
    param: int = -1
    program: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedRecord:
    """For people: axis `axis` of parameter `param` is checked at entry; `text` says it in words,
    "%x axis 1 = 4".
    """

    param: int
    axis: int
    text: str


@dataclass(frozen=True, slots=True)
class SpanEntry:
    """From word `pc` on, instructions come from this place. source -1: unknown."""

    pc: int
    source: int
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """One function: `code` is its words, `ints` and `objs` count registers, parameters included."""

    name: str
    params: tuple[ParamRecord, ...]
    result: int
    ints: int
    objs: int
    code: Sequence[int]
    result_is_int: bool = False
    public: bool = True
    dims: tuple[DimRecord, ...] = ()
    checked: tuple[CheckedRecord, ...] = ()
    spans: tuple[SpanEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class ConstantRecord:
    """A tensor constant; `data` is its row-major bytes (any C-contiguous buffer). One that is bound late has no data;
    `weight` (index, else -1) and `layout` say what its bytes are.
    """

    dtype: int
    dims: tuple[int, ...]
    data: Any
    device: int = 0
    weight: int = -1
    layout: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightRecord:
    """A tensor that is bound late. digest: the SHA-256 of its row-major bytes, b"" if it may be any."""

    name: str
    dtype: int
    dims: tuple[int, ...]
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class AxisRecord:
    """Size of an operand's axis: AXIS_CONST size, AXIS_DIM index into dims, AXIS_EXPR index into
    the kernel's exprs.
    """

    kind: int
    value: int
    broadcast: bool = False


@dataclass(frozen=True, slots=True)
class OperandRecord:
    """A buffer of a kernel. alias: for outputs, 1 + the input operand whose storage it may share,
    0 none.
    """

    role: int
    dtype: int
    axes: tuple[AxisRecord, ...]
    alias: int = 0


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A kernel table entry; see docs/format.md. `ir` is the serialized loop IR (kind
    KERNEL_LOOP_IR).
    """

    name: str
    kind: int
    operands: tuple[OperandRecord, ...]
    exprs: tuple[int, ...] = ()
    dims: tuple[str, ...] = ()
    attrs: tuple[int, ...] = ()
    out_dims: int = 0
    may_fail: bool = False
    ir: bytes = b""
    native: int = -1


@dataclass(frozen=True, slots=True)
class AdtRecord:
    name: str
    type_params: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class ConstructorRecord:
    name: str
    adt: int
    tag: int
    fields: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NoteRecord:
    """What a check is about; source -1: no place."""

    text: str
    source: int = -1
    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class SectionRecord:
    """A section of kind NATIVE, DEVICE_CODE or EXTERNAL; `target` says what it needs: machine code of a CPU, a device
    backend (and ":" and an architecture), a runtime of external code.
    """

    kind: int
    data: Any
    target: str = ""


TUPLE_CONSTRUCTOR = ConstructorRecord("", -1, 0, ())
NO_NOTE = NoteRecord("")


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """Everything that a file holds. constructors[0] is TUPLE_CONSTRUCTOR, notes[0] is NO_NOTE; devices[0] is "cpu", the
    others are backend names in order of preference, with commas between.
    """

    functions: tuple[FunctionRecord, ...] = ()
    types: tuple[tuple[int, ...], ...] = ()
    adts: tuple[AdtRecord, ...] = ()
    constructors: tuple[ConstructorRecord, ...] = (TUPLE_CONSTRUCTOR,)
    constants: tuple[ConstantRecord, ...] = ()
    kernels: tuple[KernelRecord, ...] = ()
    notes: tuple[NoteRecord, ...] = (NO_NOTE,)
    sources: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    producer: Mapping[str, str] = field(default_factory=dict)
    sections: tuple[SectionRecord, ...] = ()
    weights: tuple[WeightRecord, ...] = ()
    weights_file: str = ""


class ProgramBuilder:
    """Collects a program's tables; equal types, notes, sources and constants get one index."""

    def __init__(self, producer: Mapping[str, str] | None = None) -> None:
        self.functions: list[FunctionRecord | None] = []
        self.kernels: list[KernelRecord] = []
        self.sections: list[SectionRecord] = []
        self.devices: list[str] = ["cpu"]
        self.producer: dict[str, str] = dict(producer or {})
        self._types: dict[tuple[int, ...], int] = {}
        self._notes: dict[NoteRecord, int] = {NO_NOTE: 0}
        self._sources: dict[str, int] = {}
        self.weights_file = ""
        self._constants = DistinctBytes()
        self._late_constants: dict[tuple[Any, ...], int] = {}
        self._weights: dict[str, WeightRecord] = {}
        self._late: dict[int, str] = {}
        self._constant_records: list[ConstantRecord] = []
        self._adts: list[AdtRecord] = []
        self._constructors: list[ConstructorRecord] = [TUPLE_CONSTRUCTOR]

    # --- types ---

    def type(self, words: Iterable[int]) -> int:
        """Index of a type given as words of docs/format.md ("Types")."""
        return self._types.setdefault(tuple(words), len(self._types))

    def tensor_type(self, dtype: str, dims: Iterable[int] = ()) -> int:
        """dims: sizes, UNKNOWN_DIM or dim_slot(k)."""
        return self.type((TYPE_TENSOR, dtypes.dtype(dtype).number, *dims))

    def tuple_type(self, fields: Iterable[int]) -> int:
        return self.type((TYPE_TUPLE, *fields))

    def adt_type(self, adt: int, args: Iterable[int] = ()) -> int:
        return self.type((TYPE_ADT, adt, *args))

    def func_type(self, result: int, params: Iterable[int]) -> int:
        return self.type((TYPE_FUNC, result, *params))

    def ref_type(self, content: int) -> int:
        return self.type((TYPE_REF, content))

    def type_var(self, index: int) -> int:
        return self.type((TYPE_VAR, index))

    def declare_adt(
        self, name: str, type_params: int, constructors: Sequence[str]
    ) -> tuple[int, int]:
        """(index of the ADT, index of its first constructor); fields come with define_constructor,
        because they may mention the ADT itself."""
        adt, first = len(self._adts), len(self._constructors)
        self._adts.append(AdtRecord(name, type_params, first, len(constructors)))
        self._constructors.extend(
            ConstructorRecord(c, adt, tag, ()) for tag, c in enumerate(constructors)
        )
        return adt, first

    def define_constructor(self, constructor: int, fields: Iterable[int]) -> None:
        """Set the field types (indices) of a declared constructor."""
        old = self._constructors[constructor]
        self._constructors[constructor] = ConstructorRecord(
            old.name, old.adt, old.tag, tuple(fields)
        )

    # --- notes, constants, functions, kernels ---

    def source(self, name: str) -> int:
        written = name.encode("utf-8", "replace").decode()  # paths may hold bytes that are no UTF-8
        return self._sources.setdefault(written, len(self._sources))

    def note(self, text: str, source: int = -1, line: int = 0, column: int = 0) -> int:
        return self._notes.setdefault(NoteRecord(text, source, line, column), len(self._notes))

    def constant(self, dtype: str, dims: Iterable[int], data: Any, device: int = 0) -> int:
        """Index of a constant; equal ones are one. `data` (C-contiguous buffer) is kept, not copied."""
        number, shape = dtypes.dtype(dtype).number, tuple(int(d) for d in dims)
        new = len(self._constant_records)
        index = self._constants.number((number, shape, device), _bytes_view(data), new)
        if index == new:
            self._constant_records.append(ConstantRecord(number, shape, data, device))
        return index

    def weight(self, name: str, dtype: str, dims: Iterable[int], digest: bytes = b"") -> None:
        """Declare a tensor that is bound late; it is the same wherever it is declared."""
        record = WeightRecord(name, dtypes.dtype(dtype).number, tuple(map(int, dims)), digest)
        if self._weights.setdefault(name, record) != record:
            raise CompileError(f"two weights are named {name}")

    def late_constant(
        self, dtype: str, dims: Iterable[int], weight: str, layout: Iterable[int], device: int = 0
    ) -> int:
        """Index of a constant whose elements are those of a declared weight in another layout (docs/format.md)."""
        number, shape = dtypes.dtype(dtype).number, tuple(int(d) for d in dims)
        words = tuple(int(w) for w in layout)
        index = self._late_constants.setdefault(
            (number, shape, device, weight, words), len(self._constant_records)
        )
        if index == len(self._constant_records):
            self._constant_records.append(
                ConstantRecord(number, shape, b"", device, layout=words, weight=0)
            )
            self._late[index] = weight
        return index

    def kernel(self, record: KernelRecord) -> int:
        self.kernels.append(record)
        return len(self.kernels) - 1

    def declare_function(self) -> int:
        """Reserve an index (for calls) before the code exists."""
        self.functions.append(None)
        return len(self.functions) - 1

    def define_function(self, index: int, record: FunctionRecord) -> None:
        self.functions[index] = record

    def function(self, record: FunctionRecord) -> int:
        self.functions.append(record)
        return len(self.functions) - 1

    def finish(self) -> ProgramRecord:
        """The collected program; raises CompileError if a declared function was never defined."""
        functions = [f for f in self.functions if f is not None]
        if len(functions) != len(self.functions):
            missing = [i for i, f in enumerate(self.functions) if f is None]
            raise CompileError(f"functions declared but not defined: indices {missing[:10]}")
        weights = {name: index for index, name in enumerate(sorted(self._weights, key=str.encode))}
        constants = list(self._constant_records)
        for index, name in self._late.items():
            constants[index] = replace(constants[index], weight=weights[name])
        return ProgramRecord(
            tuple(functions), tuple(self._types), tuple(self._adts), tuple(self._constructors),
            tuple(constants), tuple(self.kernels), tuple(self._notes),
            tuple(self._sources), tuple(self.devices), dict(self.producer), tuple(self.sections),
            tuple([self._weights[name] for name in weights]), self.weights_file,
        )  # fmt: skip


# --- layout ---------------------------------------------------------------------------------------


def external_section(target: str, blobs: Mapping[int, bytes]) -> SectionRecord:
    """External code for one runtime or device backend: a blob for each kernel, by its index in the table."""
    packed = msgpack.packb(dict(sorted(blobs.items())), use_bin_type=True)
    return SectionRecord(EXTERNAL, bytes(packed), target)


def external_kernels(data: Any) -> tuple[int, ...]:
    """The kernels that a section of external code is for."""
    return tuple(msgpack.unpackb(data, strict_map_key=False))


def _bytes_view(data: Any) -> memoryview:
    view = memoryview(data)
    if view.nbytes == 0:  # cast refuses zeros in the shape
        return memoryview(b"")
    return view if view.ndim == 1 and view.format == "B" else view.cast("B")


def _padding(size: int, alignment: int = ALIGNMENT) -> bytes:
    return bytes(-size % alignment)


def _words(code: Sequence[int]) -> bytes:
    words = array("I", code)
    if sys.byteorder != "little":
        words.byteswap()
    return words.tobytes()


def encode_spans(spans: Iterable[SpanEntry]) -> bytes:
    """Four unsigned LEB128 numbers an entry; entries must come in order of pc."""
    out = bytearray()
    last = 0
    for entry in spans:
        if entry.pc < last:
            raise CompileError(f"span entries out of order: word {entry.pc} after {last}")
        for number in (entry.pc - last, entry.source + 1, entry.line, entry.column):
            rest = number
            while rest >= 0x80:
                out.append(rest & 0x7F | 0x80)
                rest >>= 7
            out.append(rest)
        last = entry.pc
    return bytes(out)


def _layout_constants(records: Sequence[ConstantRecord]) -> tuple[list[list[Any]], list[Any]]:
    """Header rows and the section's pieces. Equal bytes (of constants with other dims, say) are
    stored once.
    """
    rows: list[list[Any]] = []
    pieces: list[Any] = []
    distinct = DistinctBytes()
    offsets: list[int] = []
    end = 0
    for record in records:
        dims, layout = list(record.dims), list(record.layout)
        if record.weight >= 0:
            size = math.prod(record.dims) * dtypes.BY_NUMBER[record.dtype].itemsize
            rows.append([record.dtype, record.device, 0, size, dims, record.weight, layout])
            continue
        view = _bytes_view(record.data)
        place = distinct.number((), view, len(offsets))
        if place == len(offsets):
            padding = _padding(end)
            offsets.append(end + len(padding))
            pieces += [padding, view]
            end = offsets[place] + view.nbytes
        offset = offsets[place]
        rows.append([record.dtype, record.device, offset, view.nbytes, dims, -1, layout])
    return rows, pieces


def _layout_ir(kernels: Sequence[KernelRecord]) -> tuple[list[list[int]], bytes]:
    places: list[list[int]] = []
    out = bytearray()
    for kernel in kernels:
        if kernel.kind != KERNEL_LOOP_IR:
            places.append([0, 0])
            continue
        out += _padding(len(out), 8)
        places.append([len(out), len(kernel.ir)])
        out += kernel.ir
    return places, bytes(out)


def _function_rows(functions: Sequence[FunctionRecord]) -> tuple[list[dict[str, Any]], list[bytes]]:
    rows: list[dict[str, Any]] = []
    pieces: list[bytes] = []
    first = 0
    for f in functions:
        code = _words(f.code)
        rows.append(
            {
                "name": f.name,
                "public": f.public,
                "params": [[p.name, p.type] for p in f.params],
                "kinds": bytes(int(p.is_int) for p in f.params),
                "result": f.result,
                "result_kind": int(f.result_is_int),
                "ints": f.ints,
                "objs": f.objs,
                "code": [first, len(code) // 4],
                "dims": [[d.name, d.param, list(d.program)] for d in f.dims],
                "checked": [[c.param, c.axis, c.text] for c in f.checked],
                "spans": encode_spans(f.spans),
            }
        )
        pieces.append(code)
        first += len(code) // 4
    return rows, pieces


def _kernel_row(kernel: KernelRecord, place: list[int]) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "kind": kernel.kind,
        "operands": [
            [o.role, o.dtype, o.alias, [[a.kind, int(a.broadcast), a.value] for a in o.axes]]
            for o in kernel.operands
        ],
        "exprs": list(kernel.exprs),
        "dims": list(kernel.dims),
        "attrs": list(kernel.attrs),
        "out_dims": kernel.out_dims,
        "may_fail": kernel.may_fail,
        "ir": place,
        "native": kernel.native,
    }


def _digest(pieces: Iterable[Any]) -> tuple[bytes, int]:
    """SHA-256 and size of a section given as pieces."""
    state, size = hashlib.sha256(), 0
    for piece in pieces:
        state.update(piece)
        size += len(piece)
    return state.digest(), size


def _header(program: ProgramRecord) -> tuple[bytes, list[list[Any]]]:
    """The msgpack header, and every section as pieces (padded in front)."""
    functions, code = _function_rows(program.functions)
    constants, constant_pieces = _layout_constants(program.constants)
    places, ir = _layout_ir(program.kernels)
    sections: list[tuple[int, list[Any], str]] = [
        (BYTECODE, list(code), ""),
        (CONSTANTS, constant_pieces, ""),
        (KERNEL_IR, [ir], ""),
        *((s.kind, [_bytes_view(s.data)], s.target) for s in program.sections),
    ]
    rows: list[list[Any]] = []
    pieces: list[list[Any]] = []
    end = 0
    for kind, parts, target in sections:
        padding = _padding(end)
        digest, size = _digest(parts)
        rows.append([kind, end + len(padding), size, digest, target])
        pieces.append([padding, *parts])
        end += len(padding) + size
    header = {
        "producer": dict(program.producer),
        "sections": rows,
        "devices": list(program.devices),
        "types": [list(t) for t in program.types],
        "adts": [[a.name, a.type_params, a.first, a.count] for a in program.adts],
        "constructors": [[c.name, c.adt, c.tag, list(c.fields)] for c in program.constructors],
        "functions": functions,
        "weights": [[w.name, w.dtype, list(w.dims), w.digest] for w in program.weights],
        "weights_file": program.weights_file,
        "constants": constants,
        "kernels": [_kernel_row(k, p) for k, p in zip(program.kernels, places, strict=True)],
        "notes": [[n.text, n.source, n.line, n.column] for n in program.notes],
        "sources": list(program.sources),
    }
    packed = msgpack.packb(header, use_bin_type=True)
    return bytes(packed), pieces


def _check_names(program: ProgramRecord) -> None:
    """ValueError for a NUL character, which ends a name in C: no text of a file holds one."""
    functions = program.functions
    names = (
        (f.name for f in functions),
        (p.name for f in functions for p in f.params),
        (d.name for f in functions for d in f.dims),
        (c.text for f in functions for c in f.checked),
        (a.name for a in program.adts),
        (c.name for c in program.constructors),
        (w.name for w in program.weights),
        (n.text for n in program.notes),
        (d for k in program.kernels for d in k.dims),
        program.sources,
    )
    for name in chain.from_iterable(names):
        if "\0" in name:
            raise ValueError(f"the name or text {name!r} holds a NUL character")


def seal(
    header: bytes, file_size: int, version: int = FORMAT_VERSION, signed: bool = False
) -> bytes:
    """The fixed header (96 bytes) of a file with this msgpack header."""
    release = FIRST_RELEASES.get(version, FIRST_RELEASES[FORMAT_VERSION])
    start = struct.pack(
        "<8sI4BQQ32s", MAGIC, version, int(signed), *release, len(header), file_size,
        hashlib.sha256(header).digest(),
    )  # fmt: skip
    return start + hashlib.sha256(start).digest()


def serialize(program: ProgramRecord) -> bytes:
    """The bytes of a program's file. Raises CompileError for what it can't hold (an int beyond 64
    bits, a name with a NUL character).
    """
    try:
        _check_names(program)
        header, sections = _header(program)
    except (OverflowError, ValueError) as error:
        raise CompileError(f"program can't be written: {error}") from error
    pieces: list[Any] = [header, _padding(FIXED_HEADER_SIZE + len(header))]
    for section in sections:
        pieces += section
    size = FIXED_HEADER_SIZE + sum(len(p) for p in pieces)
    return b"".join([seal(header, size), *pieces])
