"""What is in an executable, as plain values: for tools that show or compare files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import msgpack

from nimblevm import dtypes
from nimblevm._ffi import ffi, lib
from nimblevm.abi import DimWord
from nimblevm.bytecode import serialize as s
from nimblevm.bytecode.executable import KERNEL_KINDS, SECTION_KINDS, Executable
from nimblevm.bytecode.records import axis_size
from nimblevm.bytecode.serialize import FIXED_HEADER_SIZE
from nimblevm.bytecode.weights import WeightInfo

_INFIX = {DimWord.ADD: "+", DimWord.SUB: "-", DimWord.MUL: "*"}


@dataclass(frozen=True, slots=True)
class SectionDescription:
    """A section of the file. offset: of its first byte in the file; digest: SHA-256 in hex, as the header has it.

    target, level, used, why_not: of machine code, see SectionInfo.
    """

    kind: str
    offset: int
    size: int
    digest: str
    target: str
    level: str
    used: bool
    why_not: str


@dataclass(frozen=True, slots=True)
class ConstantDescription:
    """A constant: its number and type; weight: the name of the weight that it is made of, "" for one in the file."""

    index: int
    dtype: str
    shape: tuple[int, ...]
    size: int
    device: int
    weight: str = ""

    @property
    def text(self) -> str:
        return tensor_text(self.dtype, map(str, self.shape))


@dataclass(frozen=True, slots=True)
class KernelDescription:
    """A kernel: kind as in KernelInfo; signature as text; native: machine code of this CPU is used.

    targets    levels or features of the machine code in the file, () for none
    ir_size    bytes of its kernel IR
    external   runtimes and devices for which the file has external code of it
    """

    name: str
    kind: str
    signature: str
    native: bool
    targets: tuple[str, ...]
    may_fail: bool
    ir_size: int
    external: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Description:
    """A whole file; sizes in bytes. weights: the tensors that the file leaves out; signed: it has a signature block."""

    format_version: int
    size: int
    header_size: int
    producer: dict[str, str]
    devices: tuple[str, ...]
    sections: tuple[SectionDescription, ...]
    constants: tuple[ConstantDescription, ...]
    kernels: tuple[KernelDescription, ...]
    sources: tuple[str, ...]
    words: int
    weights: tuple[WeightInfo, ...]
    weights_file: str
    signed: bool


def tensor_text(dtype: str, dims: Any) -> str:
    """float32[?n, 4], as kernels' operands are written; int64 for rank 0."""
    listed = ", ".join(dims)
    return f"{dtype}[{listed}]" if listed else dtype


def _operation_text(op: DimWord, x: str, y: str) -> str:
    return f"({x} {_INFIX[op]} {y})" if op in _INFIX else f"{op.name.lower()}({x}, {y})"


def axis_text(kernel: s.KernelRecord, axis: s.AxisRecord) -> str:
    """The size of an operand's axis: "4", "?n", "?n + 1"; "?n or 1" for one that may be broadcast."""
    names = [*kernel.dims, *(str(value) for value in kernel.attrs)]
    text = axis_size(kernel.exprs, axis, str, names.__getitem__, _operation_text)
    if axis.kind == s.AXIS_EXPR and text.startswith("("):
        text = text[1:-1]
    return f"{text} or 1" if axis.broadcast else text


def operand_text(kernel: s.KernelRecord, operand: s.OperandRecord) -> str:
    """float32[?n, 4]"""
    dtype = dtypes.BY_NUMBER[operand.dtype].name
    return tensor_text(dtype, (axis_text(kernel, axis) for axis in operand.axes))


def signature_text(kernel: s.KernelRecord) -> str:
    """(float32[?n, 4], float32[4]) -> float32[?n, 4]; dims that are passed as numbers stand in front."""
    groups: list[list[str]] = [[], [], []]
    for operand in kernel.operands:
        text = operand_text(kernel, operand)
        groups[operand.role].append(f"{text} in place" if operand.alias else text)
    ins, outs, scratch = groups
    result = outs[0] if len(outs) == 1 else f"({', '.join(outs)})"
    text = f"({', '.join(ins)}) -> {result}"
    return f"{text}, scratch {', '.join(scratch)}" if scratch else text


def _constant(
    index: int, constant: s.ConstantRecord, weights: Sequence[WeightInfo]
) -> ConstantDescription:
    row = dtypes.BY_NUMBER[constant.dtype]
    name = weights[constant.weight].name if constant.weight >= 0 else ""
    size = row.itemsize * prod(constant.dims)
    return ConstantDescription(index, row.name, constant.dims, size, constant.device, name)


def describe(exe: Executable) -> Description:
    """Everything but the functions, which exe.functions has. Raises Closed."""
    size = ffi.new("size_t *")
    data = lib.nvm_program_header(exe.handle, size)
    header_size = int(size[0])
    header = msgpack.unpackb(bytes(ffi.buffer(data, header_size)), strict_map_key=True)
    program = exe.program_record()
    first = FIXED_HEADER_SIZE + header_size
    first += -first % s.ALIGNMENT
    sections = tuple(
        SectionDescription(
            info.kind, first + row[1], row[2], row[3].hex(), row[4], info.level, info.used, info.why_not
        )
        for row, info in zip(header["sections"], exe.sections, strict=True)
    )  # fmt: skip
    native = SECTION_KINDS[s.NATIVE]
    targets = tuple(x.level or x.target for x in sections if x.kind == native)
    end = max((x.offset + x.size for x in sections), default=first)
    return Description(
        format_version=exe.format_version,
        size=end,
        header_size=header_size,
        producer=dict(program.producer),
        devices=program.devices,
        sections=sections,
        constants=tuple(_constant(i, c, exe.weights) for i, c in enumerate(program.constants)),
        kernels=tuple(
            KernelDescription(
                k.name,
                KERNEL_KINDS[k.kind],
                signature_text(k),
                info.native,
                targets if k.native >= 0 else (),
                k.may_fail,
                len(k.ir),
                info.external,
            )
            for k, info in zip(program.kernels, exe.kernels, strict=True)
        ),
        sources=program.sources,
        words=sum(len(f.code) for f in program.functions),
        weights=exe.weights,
        weights_file=exe.weights_file,
        signed=bool(exe.signature),
    )


__all__ = [
    "ConstantDescription", "Description", "KernelDescription", "SectionDescription", "axis_text", "describe",
    "operand_text", "signature_text", "tensor_text",
]  # fmt: skip
