"""VTA's instruction set: configuration, instructions, micro-ops, assembler and disassembler.

    program = [Load(Memory.INP, sram=0, dram=4, y_size=1, x_size=8, x_stride=8, push_next=True),
               Finish()]
    data = encode(program)                 16 bytes an instruction
    decode(data) == program;  assemble(disassemble(program)) == program

The encoding is that of VTA's hardware 0.0.2 (arXiv 1807.04188); docs/vta.md has every bit. native/devices/vta_isa.c
is the decoder that counts. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import ClassVar

from nimblevm.errors import AssemblerError

INSTRUCTION_BYTES = 16
UOP_BITS, ACC_BITS, INP_BITS, WGT_BITS = 13, 11, 11, 10
"""log2 of the most entries that each scratchpad may have: the widths of the fields that count them."""


class Memory(IntEnum):
    """Scratchpads. ACC8 is ACC, loaded from int8 numbers that are widened."""

    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4
    ACC8 = 5


class AluOp(IntEnum):
    """dst = dst op src, in int32; SHR shifts left by a negative count; counts are taken modulo 32."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3


@dataclass(frozen=True, slots=True)
class Config:
    """The hardware. Sizes as log2, of blocks in elements and of scratchpads in bytes.

    bytes_a_cycle   what each module moves between DRAM and its scratchpad
    dram_latency    cycles from a transfer's start to its first byte

    Raises ValueError for numbers that the instruction set has no room for.
    """

    log_batch: int = 0
    log_block_in: int = 4
    log_block_out: int = 4
    log_uop_bytes: int = 15
    log_inp_bytes: int = 15
    log_wgt_bytes: int = 18
    log_acc_bytes: int = 17
    bytes_a_cycle: int = 8
    dram_latency: int = 16

    def __post_init__(self) -> None:
        _check("log_batch", self.log_batch, 0, 4)
        _check("log_block_in", self.log_block_in, 2, 6)
        _check("log_block_out", self.log_block_out, 2, 6)
        _check("bytes_a_cycle", self.bytes_a_cycle, 1, 4096)
        _check("dram_latency", self.dram_latency, 0, 65536)
        rows = (
            ("log_uop_bytes", 2, UOP_BITS),
            ("log_inp_bytes", self.log_batch + self.log_block_in, INP_BITS),
            ("log_wgt_bytes", self.log_block_in + self.log_block_out, WGT_BITS),
            ("log_acc_bytes", self.log_batch + self.log_block_out + 2, ACC_BITS),
        )
        for name, entry, bits in rows:
            _check(name, getattr(self, name), entry, entry + bits)

    @property
    def batch(self) -> int:
        return 1 << self.log_batch

    @property
    def block_in(self) -> int:
        return 1 << self.log_block_in

    @property
    def block_out(self) -> int:
        return 1 << self.log_block_out

    def entry_bytes(self, memory: Memory) -> int:
        """Bytes of one element of a scratchpad as it lies in DRAM."""
        match memory:
            case Memory.UOP:
                return 4
            case Memory.WGT:
                return self.block_in * self.block_out
            case Memory.INP:
                return self.batch * self.block_in
            case Memory.ACC:
                return 4 * self.batch * self.block_out
            case _:
                return self.batch * self.block_out

    def entries(self, memory: Memory) -> int:
        """Elements that a scratchpad holds."""
        match memory:
            case Memory.UOP:
                return 1 << self.log_uop_bytes - 2
            case Memory.WGT:
                return (1 << self.log_wgt_bytes) // self.entry_bytes(Memory.WGT)
            case Memory.INP:
                return (1 << self.log_inp_bytes) // self.entry_bytes(Memory.INP)
            case _:
                return (1 << self.log_acc_bytes) // self.entry_bytes(Memory.ACC)

    def numbers(self) -> list[int]:
        """All numbers in the order of nvm_vta_config."""
        return [getattr(self, field.name) for field in fields(self)]


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"vta configuration: {name} must be {low} to {high}, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Which queues an instruction takes a token from before it starts, and which get one when it has ended. `prev` and
    `next` are the neighbours in the row load, compute, store.
    """

    pop_prev: bool = False
    pop_next: bool = False
    push_prev: bool = False
    push_next: bool = False


@dataclass(frozen=True, slots=True)
class Transfer(Tokens):
    """Rows of elements of `memory`: `y_size` rows of `x_size`, `x_stride` apart in DRAM, packed in the scratchpad."""

    memory: Memory
    sram: int = 0
    dram: int = 0
    y_size: int = 0
    x_size: int = 0
    x_stride: int = 0
    y_pad_0: int = 0
    y_pad_1: int = 0
    x_pad_0: int = 0
    x_pad_1: int = 0


@dataclass(frozen=True, slots=True)
class Load(Transfer):
    """DRAM to scratchpad; the padding is zeros around the rows, in the scratchpad alone."""

    OPCODE: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Store(Transfer):
    """OUT to DRAM."""

    memory: Memory = Memory.OUT
    OPCODE: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Loops(Tokens):
    """The micro-ops [uop_begin, uop_end), inside a loop of iter_in inside a loop of iter_out; each turn adds the
    factors to their indices.
    """

    uop_begin: int = 0
    uop_end: int = 0
    iter_out: int = 1
    iter_in: int = 1
    dst_out: int = 0
    dst_in: int = 0
    src_out: int = 0
    src_in: int = 0


@dataclass(frozen=True, slots=True)
class Gemm(Loops):
    """acc[dst] += inp[src] x transposed wgt[wgt]; with `reset`, acc[dst] = 0."""

    OPCODE: ClassVar[int] = 2
    wgt_out: int = 0
    wgt_in: int = 0
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Alu(Loops):
    """acc[dst] = acc[dst] op (acc[src], or `immediate` if that is not None)."""

    OPCODE: ClassVar[int] = 4
    op: AluOp = AluOp.ADD
    immediate: int | None = None


@dataclass(frozen=True, slots=True)
class Finish(Tokens):
    """The end of a stream."""

    OPCODE: ClassVar[int] = 3


Instruction = Load | Store | Gemm | Alu | Finish

_TOKENS = (("pop_prev", 1), ("pop_next", 1), ("push_prev", 1), ("push_next", 1))
_TRANSFER = (("memory", 3), ("sram", 16), ("dram", 32), ("", 6), ("y_size", 16), ("x_size", 16), ("x_stride", 16),
             ("y_pad_0", 4), ("y_pad_1", 4), ("x_pad_0", 4), ("x_pad_1", 4))  # fmt: skip
_LOOPS = (("reset", 1), ("uop_begin", UOP_BITS), ("uop_end", UOP_BITS + 1), ("iter_out", 14), ("iter_in", 14), ("", 1),
          ("dst_out", ACC_BITS), ("dst_in", ACC_BITS), ("src_out", INP_BITS), ("src_in", INP_BITS))  # fmt: skip
LAYOUT: dict[type, tuple[tuple[str, int], ...]] = {
    Load: (("opcode", 3), *_TOKENS, *_TRANSFER),
    Store: (("opcode", 3), *_TOKENS, *_TRANSFER),
    Gemm: (("opcode", 3), *_TOKENS, *_LOOPS, ("wgt_out", WGT_BITS), ("wgt_in", WGT_BITS)),
    Alu: (("opcode", 3), *_TOKENS, *_LOOPS, ("op", 3), ("use_immediate", 1), ("immediate", 16)),
    Finish: (("opcode", 3), *_TOKENS, ("", 121)),
}
"""(field, bits) of each instruction from bit 0 up, 128 in all; "" are bits that are 0."""

_BY_OPCODE: dict[int, type] = {kind.OPCODE: kind for kind in (Load, Store, Gemm, Finish, Alu)}


def _values(instruction: Instruction) -> dict[str, int]:
    """Every field of LAYOUT as a number."""
    values: dict[str, int] = {"opcode": instruction.OPCODE, "reset": 0}
    for field in fields(instruction):
        value = getattr(instruction, field.name)
        values[field.name] = 0 if value is None else int(value)
    if isinstance(instruction, Alu):
        values["use_immediate"] = int(instruction.immediate is not None)
        if not -(1 << 15) <= values["immediate"] < 1 << 15:
            raise ValueError(f"immediate must fit 16 bits, not {values['immediate']}")
        values["immediate"] &= 0xFFFF
    return values


def encode(program: Iterable[Instruction]) -> bytes:
    """Instructions as bytes. Raises ValueError for a number that its field has no room for."""
    return b"".join(_encode(instruction) for instruction in program)


def _encode(instruction: Instruction) -> bytes:
    values, word, at = _values(instruction), 0, 0
    for name, width in LAYOUT[type(instruction)]:
        value = values[name] if name else 0
        if not 0 <= value < 1 << width:
            raise ValueError(
                f"{type(instruction).__name__}: {name} must be 0 to {(1 << width) - 1}, not {value}"
            )
        word |= value << at
        at += width
    return word.to_bytes(INSTRUCTION_BYTES, "little")


def decode(data: bytes) -> list[Instruction]:
    """Bytes as instructions. Raises ValueError for what is none; the C decoder refuses more (tokens for neighbours that
    a module lacks, transfers that there are not).
    """
    if len(data) % INSTRUCTION_BYTES:
        raise ValueError(f"{len(data)} bytes are no whole number of instructions")
    return [
        _decode(int.from_bytes(data[at : at + INSTRUCTION_BYTES], "little"))
        for at in range(0, len(data), INSTRUCTION_BYTES)
    ]


def _decode(word: int) -> Instruction:
    kind = _BY_OPCODE.get(word & 7)
    if kind is None:
        raise ValueError(f"opcode {word & 7} is unknown")
    values: dict[str, int] = {}
    for name, width in LAYOUT[kind]:
        value, word = word & ((1 << width) - 1), word >> width
        if not name and value:
            raise ValueError(f"{kind.__name__}: bits that mean nothing are set")
        values[name] = value
    found: dict[str, object] = {}
    for field in fields(kind):
        value = values[field.name]
        match field.name:
            case "memory":
                found[field.name] = Memory(value)
            case "op":
                found[field.name] = AluOp(value)
            case "immediate":
                signed = value - (1 << 16) if value >> 15 else value
                found[field.name] = signed if values["use_immediate"] else None
            case name:
                found[name] = bool(value) if name in _FLAGS else value
    result: Instruction = kind(**found)
    return result


_FLAGS = {"pop_prev", "pop_next", "push_prev", "push_next", "reset"}


def uop(dst: int, src: int = 0, wgt: int = 0) -> int:
    """A micro-op: indices of acc, of inp (GEMM) or acc (ALU), and of wgt."""
    for name, value, bits in (
        ("dst", dst, ACC_BITS),
        ("src", src, INP_BITS),
        ("wgt", wgt, WGT_BITS),
    ):
        if not 0 <= value < 1 << bits:
            raise ValueError(f"micro-op: {name} must be 0 to {(1 << bits) - 1}, not {value}")
    return dst | src << ACC_BITS | wgt << ACC_BITS + INP_BITS


# --- text ---------------------------------------------------------------------------------------


def disassemble(program: Sequence[Instruction]) -> str:
    """A line an instruction: its name, the fields that are not as by default, the tokens at the end:

    LOAD inp dram=4 y_size=1 x_size=8 x_stride=8 +next
    GEMM uop_end=4 iter_out=2 reset -prev +next
    """
    return "".join(_line(instruction) + "\n" for instruction in program)


def _line(instruction: Instruction) -> str:
    words = [type(instruction).__name__.upper()]
    if isinstance(instruction, Load):
        words.append(instruction.memory.name.lower())
    if isinstance(instruction, Alu):
        words.append(instruction.op.name.lower())
    for field in fields(instruction):
        value = getattr(instruction, field.name)
        if field.name in ("memory", "op") or field.name in _TOKEN_WORDS or value == field.default:
            continue
        words.append(field.name if value is True else f"{field.name}={int(value)}")
    words += [word for name, word in _TOKEN_WORDS.items() if getattr(instruction, name)]
    return " ".join(words)


_TOKEN_WORDS = {
    "pop_prev": "-prev",
    "pop_next": "-next",
    "push_prev": "+prev",
    "push_next": "+next",
}
_TOKEN_NAMES = {word: name for name, word in _TOKEN_WORDS.items()}
_BY_NAME = {kind.__name__.upper(): kind for kind in _BY_OPCODE.values()}


def assemble(text: str) -> list[Instruction]:
    """The instructions of what `disassemble` writes; `//` begins a comment. Raises AssemblerError with the line."""
    program = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("//")[0].split()
        if words:
            try:
                program.append(_instruction(words))
            except (ValueError, TypeError, KeyError) as error:
                raise AssemblerError(f"line {number}: {line.strip()!r}: {error}") from error
    return program


def _instruction(words: list[str]) -> Instruction:
    kind = _BY_NAME.get(words[0])
    if kind is None:
        raise ValueError(f"expected one of {', '.join(_BY_NAME)}")
    values: dict[str, object] = {}
    for word in words[1:]:
        name, equals, number = word.partition("=")
        if equals and re.fullmatch(r"-?\d+", number):
            key, value = name, int(number)
        elif word in _TOKEN_NAMES:
            key, value = _TOKEN_NAMES[word], True
        elif word == "reset":
            key, value = word, True
        elif word.upper() in Memory.__members__:
            key, value = "memory", Memory[word.upper()]
        elif word.upper() in AluOp.__members__:
            key, value = "op", AluOp[word.upper()]
        else:
            raise ValueError(f"{word!r} is no field=number, token, memory or operation")
        if key in values:
            raise ValueError(f"{key} occurs twice")
        values[key] = value
    instruction: Instruction = kind(**values)
    _encode(instruction)  # numbers that have no room are found here, with their line
    return instruction


__all__ = [
    "ACC_BITS", "INP_BITS", "INSTRUCTION_BYTES", "LAYOUT", "UOP_BITS", "WGT_BITS", "Alu", "AluOp", "Config", "Finish",
    "Gemm", "Instruction", "Load", "Memory", "Store", "assemble", "decode", "disassemble", "encode", "uop",
]  # fmt: skip
