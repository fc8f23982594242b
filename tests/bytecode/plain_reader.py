"""A reader of executables written from docs/format.md and docs/isa.md alone, standard library only.

It knows nothing of nimblevm: tables of numbers and instructions are taken from the two documents. That it reads every
file is what makes them complete. It checks what they promise by assertions, and is no guard against hostile files.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent.parent / "docs"
HEADER_KEYS = [
    "producer", "sections", "devices", "types", "adts", "constructors", "functions", "weights", "weights_file",
    "constants", "kernels", "notes", "sources",
]  # fmt: skip
FUNCTION_KEYS = [
    "name", "public", "params", "kinds", "result", "result_kind", "ints", "objs", "code", "dims", "checked", "spans",
]  # fmt: skip
KERNEL_KEYS = [
    "name", "kind", "operands", "exprs", "dims", "attrs", "out_dims", "may_fail", "ir", "native",
]  # fmt: skip


# --- the documents' tables ------------------------------------------------------------------------


def numbers(family: str) -> dict[int, str]:
    """The names of "Numbers" of docs/format.md: `dtypes: 0 bool, 1 int8, ...`."""
    text = (DOCS / "format.md").read_text()
    found = re.search(rf"^{family}: (.*?)\.(?: [A-Z]|\n\n)", text, re.MULTILINE | re.DOTALL)
    assert found, family
    pairs = [item.split(maxsplit=1) for item in re.split(r",\s+", found[1])]
    return {int(number): name for number, name in pairs}


def kinds_of(what: str) -> dict[int, str]:
    """The kinds of expressions or statements: rows of `| kind | expression | fields |`."""
    text = (DOCS / "format.md").read_text()
    start = text.index(f"| kind | {what} | fields |")
    rows = re.findall(
        r"^\| (\d+) \| (\w+) \|", text[start : text.index("\n\n", start)], re.MULTILINE
    )
    return {int(number): name for number, name in rows}


def instructions() -> dict[int, tuple[str, list[tuple[str, str]]]]:
    """number -> (name, [(operand, kind)]) of docs/isa.md."""
    out: dict[int, tuple[str, list[tuple[str, str]]]] = {}
    text = (DOCS / "isa.md").read_text()
    for number, name, operands in re.findall(
        r"^\| (\d+) \| `(\w+)` \| (.*?) \|", text, re.MULTILINE
    ):
        pairs = [tuple(item.split(": ")) for item in operands.split(", ") if item]
        out[int(number)] = (name, [(p[0], p[1]) for p in pairs])
    return out


DTYPES, UNARY, BINARY, COMPARE, ACCUMULATE = map(
    numbers, ("dtypes", "unary", "binary", "compare", "accumulate")
)
SIZES = {name: max(1, int(re.sub(r"\D", "", name) or 8) // 8) for name in DTYPES.values()}
INSTRUCTIONS, EXPRESSIONS, STATEMENTS = (
    instructions(),
    kinds_of("expression"),
    kinds_of("statement"),
)
LISTS = {"label_list", "dim_list", "arg_list", "obj_list", "out_list"}


# --- msgpack ---------------------------------------------------------------------------------------


def unpack(data: bytes) -> Any:
    value, end = _value(data, 0)
    assert end == len(data)
    return value


def _value(data: bytes, at: int) -> tuple[Any, int]:
    byte = data[at]
    if byte <= 0x7F:
        return byte, at + 1
    if byte >= 0xE0:
        return byte - 256, at + 1
    if byte in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[byte], at + 1
    if 0xCC <= byte <= 0xD3:
        code = ">" + "BHIQbhiq"[byte - 0xCC]
        return struct.unpack_from(code, data, at + 1)[0], at + 1 + struct.calcsize(code)
    fixed = {0x80: 0x0F, 0x90: 0x0F, 0xA0: 0x1F}
    for first, mask in fixed.items():
        if byte & ~mask & 0xFF == first:
            return _sized(
                data, at + 1, {0x80: "map", 0x90: "array", 0xA0: "str"}[first], byte & mask
            )
    wide = {
        0xC4: ("bin", ">B"), 0xC5: ("bin", ">H"), 0xC6: ("bin", ">I"), 0xD9: ("str", ">B"), 0xDA: ("str", ">H"),
        0xDB: ("str", ">I"), 0xDC: ("array", ">H"), 0xDD: ("array", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
    }  # fmt: skip
    kind, code = wide[byte]
    (count,) = struct.unpack_from(code, data, at + 1)
    return _sized(data, at + 1 + struct.calcsize(code), kind, count)


def _sized(data: bytes, at: int, kind: str, count: int) -> tuple[Any, int]:
    if kind in ("bin", "str"):
        raw = data[at : at + count]
        return (raw if kind == "bin" else raw.decode()), at + count
    items: list[Any] = []
    for _ in range(count * (2 if kind == "map" else 1)):
        item, at = _value(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if kind == "map" else items), at


# --- the file --------------------------------------------------------------------------------------


@dataclass
class Instruction:
    place: int  # word in the function's code
    name: str
    operands: dict[str, Any]  # list operands as lists


@dataclass
class Body:
    """Serialized loop IR: records (kind, dtype, op, rank, a, b, c) with names for numbers where they have one."""

    expressions: list[tuple[Any, ...]]
    statements: list[tuple[Any, ...]]
    indices: list[int]
    local_dtypes: list[str]
    variables: int


@dataclass
class File:
    version: int
    release: tuple[int, int, int]
    header: dict[str, Any]
    sections: list[bytes]
    signature: bytes
    code: dict[str, list[Instruction]] = field(default_factory=dict)
    spans: dict[str, list[tuple[int, int, int, int]]] = field(default_factory=dict)
    constants: list[bytes | None] = field(default_factory=list)  # None: bound late
    devices: list[list[str]] = field(default_factory=list)
    device_code: dict[str, dict[str, Any]] = field(default_factory=dict)  # by target
    external: dict[str, dict[int, bytes]] = field(default_factory=dict)
    bodies: list[Body | None] = field(default_factory=list)


def read(data: bytes) -> File:
    assert data[:8] == b"\x89NVM\r\n\x1a\n"
    version, flags, *release = struct.unpack_from("<I4B", data, 8)
    header_size, file_size = struct.unpack_from("<QQ", data, 16)
    assert (flags & ~1, file_size) == (0, len(data))
    assert tuple(release) == {1: (0, 1, 0), 2: (0, 2, 0)}[version]
    assert hashlib.sha256(data[:64]).digest() == data[64:96]
    packed = data[96 : 96 + header_size]
    assert hashlib.sha256(packed).digest() == data[32:64]
    signature = data[-128:] if flags & 1 else b""
    header = unpack(packed)
    assert list(header) == HEADER_KEYS
    file = File(version, (release[0], release[1], release[2]), header, [], signature)
    end = _sections(file, data, 96 + header_size)
    assert data[end : len(data) - len(signature)] == bytes(-end % 64 if signature else 0)
    if signature:
        assert signature[:8] == b"NVM-SIGN"
        assert struct.unpack_from("<II", signature, 8) == (1, 64)
    for function in header["functions"]:
        _function(file, function)
    _constants(file)
    _kernels(file)
    if version > 1:
        _code(file)
    return file


def _sections(file: File, data: bytes, end: int) -> int:
    first = end + -end % 64
    for number, (kind, offset, size, digest, _target) in enumerate(file.header["sections"]):
        assert kind == number if number < 3 else kind >= 3
        assert data[end : first + offset] == bytes(first + offset - end)
        assert (first + offset) % 64 == 0
        assert first + offset - end < 64
        end = first + offset + size
        file.sections.append(data[first + offset : end])
        assert hashlib.sha256(file.sections[-1]).digest() == digest
    return end


def _function(file: File, function: dict[str, Any]) -> None:
    assert list(function) == FUNCTION_KEYS
    first, count = function["code"]
    words = struct.unpack_from(f"<{count}I", file.sections[0], 4 * first)
    code: list[Instruction] = []
    at = 0
    while at < count:
        place, (name, operands) = at, INSTRUCTIONS[words[at]]
        at += 1
        values: dict[str, Any] = {}
        for operand, kind in operands:
            if kind in LISTS:
                values[operand] = list(words[at + 1 : at + 1 + words[at]])
                at += 1 + words[at]
            elif kind == "imm64":
                values[operand] = struct.unpack("<q", struct.pack("<II", *words[at : at + 2]))[0]
                at += 2
            else:
                values[operand] = words[at]
                at += 1
        code.append(Instruction(place, name, values))
    assert at == count
    file.code[function["name"]] = code
    file.spans[function["name"]] = _spans(function["spans"])


def _spans(data: bytes) -> list[tuple[int, int, int, int]]:
    values: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value = shift = 0
    out: list[tuple[int, int, int, int]] = []
    word = 0
    for i in range(0, len(values), 4):
        word += values[i]
        out.append((word, values[i + 1] - 1, values[i + 2], values[i + 3]))
    return out


def _constants(file: File) -> None:
    for dtype, _device, offset, size, dims, weight, layout in file.header["constants"]:
        expected = SIZES[DTYPES[dtype]]
        for dim in dims:
            expected *= dim
        assert size == expected
        if weight < 0:
            assert not layout
            assert offset % 64 == 0
            file.constants.append(file.sections[1][offset : offset + size])
        else:
            assert (len(layout) - 2) % 3 == 0
            file.constants.append(None)


def laid_out(file: File, index: int, weight: list[Any]) -> list[Any]:
    """The elements of a late-bound constant of its weight's dtype; `weight`: the weight's elements."""
    base, limit, *rest = file.header["constants"][index][6]
    axes = len(rest) // 3
    sizes, strides, steps = rest[:axes], rest[axes : 2 * axes], rest[2 * axes :]
    count = 1
    for size in sizes:
        count *= size
    out: list[Any] = []
    for element in range(count):
        at, place, rest_of = base, 0, element
        for size, stride, step in reversed(list(zip(sizes, strides, steps, strict=True))):
            rest_of, i = divmod(rest_of, size)
            at += i * stride
            place += i * step
        out.append(weight[at] if place < limit else 0)
    return out


def _kernels(file: File) -> None:
    ir, end = file.sections[2], 0
    for kernel in file.header["kernels"]:
        assert list(kernel) == KERNEL_KEYS
        offset, size = kernel["ir"]
        if kernel["kind"] != 0:
            assert [offset, size] == [0, 0]
            file.bodies.append(None)
            continue
        assert offset == end + -end % 8
        end = offset + size
        file.bodies.append(_body(ir[offset:end], len(kernel["operands"])))


def _code(file: File) -> None:
    """Devices, and code for them and for other runtimes."""
    kernels = file.header["kernels"]
    file.devices = [names.split(",") for names in file.header["devices"]]
    assert all(name for names in file.devices for name in names)
    for (kind, _, _, _, target), data in zip(file.header["sections"], file.sections, strict=True):
        if kind < 4:
            continue
        code = unpack(data)
        assert target
        assert target not in (file.device_code if kind == 4 else file.external)
        if kind == 5:
            assert list(code) == sorted(code)
            assert all(kernels[k]["kind"] != 1 and isinstance(b, bytes) for k, b in code.items())
            file.external[target] = code
            continue
        assert list(code) == ["source", "kernels"]
        for index, launches in code["kernels"].items():
            for _entry, grid, block, operands, dims, _shared, can_fail in launches:
                assert (len(grid), len(block)) == (3, 3)
                assert can_fail in (0, 1)
                assert set(operands) <= set(range(len(kernels[index]["operands"])))
                assert list(dims) == sorted(set(dims))
        file.device_code[target] = code
    assert all(
        k["kind"] != 2 or any(i in e for e in file.external.values()) for i, k in enumerate(kernels)
    )


def _body(data: bytes, operands: int) -> Body:
    assert data[:4] == b"NLIR"
    version, n, s, i, locals_, variables, n_operands = struct.unpack_from("<7I", data, 4)
    assert (version, n_operands) == (1, operands)
    expressions = [struct.unpack_from("<4B3I", data, 32 + 16 * k) for k in range(n)]
    statements = [struct.unpack_from("<4B3I", data, 32 + 16 * (n + k)) for k in range(s)]
    at = 32 + 16 * (n + s)
    indices = list(struct.unpack_from(f"<{i}I", data, at))
    at += 4 * i
    dtypes = [DTYPES[b] for b in data[at : at + locals_]]
    at += locals_
    assert data[at:] == bytes(-at % 8)
    return Body(
        [_expression(k, e) for k, e in enumerate(expressions)],
        [(STATEMENTS[t[0]], *t[2:]) for t in statements],
        indices, dtypes, variables,
    )  # fmt: skip


def _expression(number: int, record: tuple[int, ...]) -> tuple[Any, ...]:
    kind, dtype, op, rank, a, b, c = record
    name = EXPRESSIONS[kind]
    value: Any = op
    if name in ("Unary", "Binary", "Compare"):
        value = {"Unary": UNARY, "Binary": BINARY, "Compare": COMPARE}[name][op]
        assert a < number
    return (name, DTYPES[dtype], value, rank, a, b, c)
