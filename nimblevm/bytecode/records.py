"""From a checked header back to the records of serialize.py, for tools that show or rewrite files.

No second reader: it takes only what native/src/program.c has accepted (nvm_program_header), so it
checks nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgpack

from nimblevm.abi import DimWord
from nimblevm.bytecode import serialize as s

T = TypeVar("T")


def decode_spans(data: bytes) -> tuple[s.SpanEntry, ...]:
    """The inverse of serialize.encode_spans."""
    numbers: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    entries: list[s.SpanEntry] = []
    pc = 0
    for i in range(0, len(numbers), 4):
        pc += numbers[i]
        entries.append(s.SpanEntry(pc, numbers[i + 1] - 1, numbers[i + 2], numbers[i + 3]))
    return tuple(entries)


def _function(row: dict[str, Any], code: Sequence[int]) -> s.FunctionRecord:
    first, count = row["code"]
    return s.FunctionRecord(
        name=row["name"],
        params=tuple(
            s.ParamRecord(name, kind, bool(is_int))
            for (name, kind), is_int in zip(row["params"], row["kinds"], strict=True)
        ),
        result=row["result"],
        ints=row["ints"],
        objs=row["objs"],
        code=code[first : first + count],
        result_is_int=bool(row["result_kind"]),
        public=row["public"],
        dims=tuple(s.DimRecord(n, p, tuple(program)) for n, p, program in row["dims"]),
        checked=tuple(s.CheckedRecord(*c) for c in row["checked"]),
        spans=decode_spans(row["spans"]),
    )


def _kernel(row: dict[str, Any], ir: memoryview) -> s.KernelRecord:
    offset, size = row["ir"]
    operands = (
        s.OperandRecord(
            role, dtype, tuple(s.AxisRecord(kind, value, bool(b)) for kind, b, value in axes), alias
        )
        for role, dtype, alias, axes in row["operands"]
    )
    return s.KernelRecord(
        name=row["name"],
        kind=row["kind"],
        operands=tuple(operands),
        exprs=tuple(row["exprs"]),
        dims=tuple(row["dims"]),
        attrs=tuple(row["attrs"]),
        out_dims=row["out_dims"],
        may_fail=row["may_fail"],
        ir=bytes(ir[offset : offset + size]),
        native=row["native"],
    )


def program_record(header: bytes, sections: Sequence[Any]) -> s.ProgramRecord:
    """`sections` are the sections' bytes in the order of the file; without them code and data stay
    empty.
    """
    h = msgpack.unpackb(header, strict_map_key=True)
    views = [memoryview(data) for data in sections] or [memoryview(b"")] * len(h["sections"])
    code = array("I", bytes(views[s.BYTECODE]))
    constants = (
        s.ConstantRecord(
            dtype,
            tuple(dims),
            views[s.CONSTANTS][offset : offset + size] if weight < 0 else b"",
            device,
            weight=weight,
            layout=tuple(layout),
        )
        for dtype, device, offset, size, dims, weight, layout in h["constants"]
    )
    extra = (
        s.SectionRecord(row[0], view, row[4])
        for row, view in zip(h["sections"][3:], views[3:], strict=True)
    )
    return s.ProgramRecord(
        functions=tuple(_function(f, code) for f in h["functions"]),
        types=tuple(tuple(t) for t in h["types"]),
        adts=tuple(s.AdtRecord(*a) for a in h["adts"]),
        constructors=tuple(
            s.ConstructorRecord(n, a, t, tuple(f)) for n, a, t, f in h["constructors"]
        ),
        constants=tuple(constants),
        kernels=tuple(_kernel(k, views[s.KERNEL_IR]) for k in h["kernels"]),
        notes=tuple(s.NoteRecord(*n) for n in h["notes"]),
        sources=tuple(h["sources"]),
        devices=tuple(h["devices"]),
        producer=dict(h["producer"]),
        sections=tuple(extra),
        weights=tuple(s.WeightRecord(n, t, tuple(d), digest) for n, t, d, digest in h["weights"]),
        weights_file=h["weights_file"],
    )


def axis_size(
    exprs: Sequence[int],
    axis: s.AxisRecord,
    constant: Callable[[int], T],
    dim: Callable[[int], T],
    operation: Callable[[DimWord, T, T], T],
) -> T:
    """The size of a kernel operand's axis, made of constants, dims (by index) and operations (ADD ... MAX)."""
    if axis.kind != s.AXIS_EXPR:
        return (constant if axis.kind == s.AXIS_CONST else dim)(axis.value)
    stack: list[T] = []
    at = axis.value
    while (word := DimWord(exprs[at])) is not DimWord.END:
        if word in (DimWord.CONST, DimWord.REF):
            stack.append((constant if word is DimWord.CONST else dim)(exprs[at + 1]))
            at += 2
            continue
        y, x = stack.pop(), stack.pop()
        stack.append(operation(word, x, y))
        at += 1
    return stack[0]
