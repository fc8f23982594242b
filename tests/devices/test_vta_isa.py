"""Encoding of VTA instructions: words written by hand, round trips, and agreement with the decoder in C."""

from __future__ import annotations

import struct
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimblevm.devices.vta import decoded_fields
from nimblevm.devices.vta_isa import (
    LAYOUT,
    Alu,
    AluOp,
    Config,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    Store,
    assemble,
    decode,
    disassemble,
    encode,
    uop,
)
from nimblevm.errors import AssemblerError, DeviceError

LOADED = (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC, Memory.ACC8)
C_ORDER = (
    "opcode", "pop_prev", "pop_next", "push_prev", "push_next", "memory", "sram", "dram", "y_size", "x_size", "x_stride",
    "y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1", "reset", "uop_begin", "uop_end", "iter_out", "iter_in", "dst_out",
    "dst_in", "src_out", "src_in",
)  # fmt: skip


@st.composite
def instructions(draw: st.DrawFn) -> Instruction:
    """Any that the decoder takes."""
    kind = draw(st.sampled_from((Load, Store, Gemm, Alu, Finish)))
    widths = dict(LAYOUT[kind])
    values: dict[str, object] = {}
    for field in fields(kind):
        match field.name:
            case "memory":
                values["memory"] = draw(st.sampled_from(LOADED)) if kind is Load else Memory.OUT
            case "op":
                values["op"] = draw(st.sampled_from(AluOp))
            case "immediate":
                values["immediate"] = draw(st.none() | st.integers(-(2**15), 2**15 - 1))
            case name if widths[name] == 1:
                values[name] = draw(st.booleans())
            case name:
                values[name] = draw(st.integers(0, 2 ** widths[name] - 1))
    loader = kind is Load and values["memory"] in (Memory.INP, Memory.WGT)
    if loader:
        values["pop_prev"] = values["push_prev"] = False
    if kind is Store:
        values["pop_next"] = values["push_next"] = False
        values |= dict.fromkeys(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"), 0)
    return kind(**values)


@settings(max_examples=150, deadline=None)
@given(st.lists(instructions(), max_size=4))
def test_round_trips(program: list[Instruction]) -> None:
    assert decode(encode(program)) == program
    assert assemble(disassemble(program)) == program


@settings(max_examples=200, deadline=None)
@given(instructions())
def test_the_decoder_in_c_reads_the_same(instruction: Instruction) -> None:
    values = {field.name: getattr(instruction, field.name) for field in fields(instruction)}
    values["opcode"] = instruction.OPCODE
    got = decoded_fields(encode([instruction]))
    assert got[:24] == [int(values.get(name) or 0) for name in C_ORDER]
    last = [0, 0]
    if isinstance(instruction, Gemm):
        last = [instruction.wgt_out, instruction.wgt_in]
    if isinstance(instruction, Alu):
        last = [
            instruction.op | (instruction.immediate is not None) << 3,
            instruction.immediate or 0,
        ]
    assert got[24:] == last


def test_words_written_by_hand() -> None:
    """Bits as docs/vta.md lists them."""
    load = Load(
        Memory.INP,
        sram=3,
        dram=5,
        y_size=7,
        x_size=9,
        x_stride=11,
        y_pad_0=1,
        x_pad_1=2,
        push_next=True,
    )
    assert encode([load]) == struct.pack(
        "<QQ", 0 | 1 << 6 | 2 << 7 | 3 << 10 | 5 << 26, 7 | 9 << 16 | 11 << 32 | 1 << 48 | 2 << 60
    )
    gemm = Gemm(
        uop_begin=1, uop_end=2, iter_out=3, iter_in=4, dst_out=5, src_in=6, wgt_in=7, pop_prev=True
    )
    assert encode([gemm]) == struct.pack(
        "<QQ", 2 | 1 << 3 | 1 << 8 | 2 << 21 | 3 << 35 | 4 << 49, 5 | 6 << 33 | 7 << 54
    )
    alu = Alu(op=AluOp.SHR, immediate=-2, uop_end=1)
    assert encode([alu]) == struct.pack(
        "<QQ", 4 | 1 << 21 | 1 << 35 | 1 << 49, 3 << 44 | 1 << 47 | 0xFFFE << 48
    )
    assert encode([Finish()]) == struct.pack("<QQ", 3, 0)
    assert uop(1, 2, 3) == 1 | 2 << 11 | 3 << 22


def test_text() -> None:
    text = """\
LOAD inp dram=4 y_size=1 x_size=8 x_stride=8 +next
GEMM uop_end=4 iter_out=2 reset -prev +next
ALU shr uop_end=1 immediate=-8
STORE y_size=1 x_size=1 -prev
FINISH
"""
    program = assemble(text)
    assert disassemble(program) == text
    assert program[1] == Gemm(uop_end=4, iter_out=2, reset=True, pop_prev=True, push_next=True)
    assert assemble("// nothing\n\nFINISH // the end") == [Finish()]


@pytest.mark.parametrize(
    "line",
    [
        "JUMP",
        "LOAD",
        "LOAD inp dram=x",
        "LOAD inp inp",
        "GEMM iter_out=99999",
        "ALU shr immediate=40000",
        "FINISH inp",
    ],
)
def test_text_that_is_none(line: str) -> None:
    with pytest.raises(AssemblerError, match="line 2"):
        assemble("FINISH\n" + line)


@pytest.mark.parametrize(
    "words",
    [
        (5, 0),  # opcode
        (3 | 1 << 7, 0),  # FINISH with bits set
        (0 | 4 << 7, 0),  # LOAD of OUT
        (0 | 6 << 7, 0),  # LOAD of memory 6
        (1 | 2 << 7, 0),  # STORE of INP
        (1 | 4 << 7, 1 << 60),  # STORE with padding
        (0 | 2 << 7 | 1 << 3, 0),  # LOAD that takes a token from before the load module
        (1 | 4 << 7 | 1 << 6, 0),  # STORE that hands one behind the store module
        (0 | 2 << 7 | 1 << 58, 0),  # reserved bits
        (2 | 1 << 63, 0),
        (4, 5 << 44),  # ALU operation
        (4 | 1 << 7, 0),  # ALU with reset
    ],
)
def test_words_that_are_none(words: tuple[int, int]) -> None:
    with pytest.raises(DeviceError, match="vta instruction 0"):
        decoded_fields(struct.pack("<QQ", *words))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log_batch", 5), ("log_block_in", 1), ("log_wgt_bytes", 19), ("log_acc_bytes", 18), ("log_acc_bytes", 5),
        ("log_inp_bytes", 16), ("log_uop_bytes", 16), ("bytes_a_cycle", 0), ("dram_latency", -1),
    ],
)  # fmt: skip
def test_configurations_without_room(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        Config(**{name: value})
