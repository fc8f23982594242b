"""The VTA simulator: random programs against numpy, tokens that are missing, accesses out of range, cycles, hostile words."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimblevm.devices.vta import Simulator
from nimblevm.devices.vta_isa import (
    Alu,
    AluOp,
    Config,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    Store,
    encode,
    uop,
)
from nimblevm.errors import Closed, DeviceError
from tests.devices.vta_reference import Reference

SMALL = Config(0, 2, 3, 6, 7, 9, 10)  # blocks of 1x4x8; 16 micro-ops, 32 inp, 16 wgt, 32 acc
DRAM = 1 << 14


def in_order(program: list[Instruction]) -> list[Instruction]:
    """The program with tokens that make each instruction wait for the one before it, and FINISH."""
    done: list[Instruction] = []
    for instruction in [*program, Finish()]:
        here = module_of(instruction)
        if done:
            before = module_of(done[-1])
            if {before, here} == {0, 2}:  # by way of compute
                done[-1] = handing(done[-1], before, 1)
                done.append(taking(Gemm(), before, 1))
                before = 1
            done[-1] = handing(done[-1], before, here)
            instruction = taking(instruction, before, here)
        done.append(instruction)
    return done


def module_of(instruction: Instruction) -> int:
    match instruction:
        case Load(memory=Memory.INP | Memory.WGT):
            return 0
        case Store():
            return 2
        case _:
            return 1


def handing(instruction: Instruction, here: int, there: int) -> Instruction:
    name = {1: "push_next", -1: "push_prev", 0: ""}[there - here]
    change: dict[str, Any] = {name: True} if name else {}
    return dataclasses.replace(instruction, **change)


def taking(instruction: Instruction, there: int, here: int) -> Instruction:
    name = {1: "pop_prev", -1: "pop_next", 0: ""}[here - there]
    change: dict[str, Any] = {name: True} if name else {}
    return dataclasses.replace(instruction, **change)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Config, list[Instruction], int]:
    """A random one whose accesses are in range, after loads that fill every scratchpad."""
    config = draw(
        st.sampled_from((SMALL, Config(1, 2, 2, 6, 7, 8, 9), Config(0, 4, 4, 6, 9, 12, 11)))
    )
    acc, inp, wgt = (config.entries(m) for m in (Memory.ACC, Memory.INP, Memory.WGT))
    uops = config.entries(Memory.UOP)
    top = min(acc, inp, wgt) // 4
    program: list[Instruction] = [
        Load(m, 0, 1, 1, config.entries(m), 0)
        for m in (Memory.UOP, Memory.INP, Memory.WGT, Memory.ACC)
    ]
    program.append(
        Alu(op=AluOp.ADD, immediate=0, uop_end=1, iter_out=acc // 2, iter_in=2, dst_out=2, dst_in=1)
    )
    small = st.integers(0, 2)
    for _ in range(draw(st.integers(1, 8))):
        match draw(st.integers(0, 3)):
            case 0:
                memory = draw(st.sampled_from((Memory.INP, Memory.WGT, Memory.ACC, Memory.ACC8)))
                program.append(Load(memory, draw(st.integers(0, min(3, config.entries(memory) - 16))), draw(st.integers(0, 9)), draw(small), draw(small),
                                    draw(st.integers(0, 5)), *(draw(st.integers(0, 1)) for _ in range(4))))  # fmt: skip
            case 1:
                program.append(Store(Memory.OUT, draw(st.integers(0, 9)), 200 + draw(st.integers(0, 9)), draw(small),
                                     draw(small), draw(st.integers(0, 5))))  # fmt: skip
            case kind:
                begin = draw(st.integers(0, uops - 1))
                loops: dict[str, Any] = {
                    "uop_begin": begin, "uop_end": draw(st.integers(begin, uops)), "iter_out": draw(small),
                    "iter_in": draw(small), "dst_out": draw(st.integers(0, top)), "dst_in": draw(st.integers(0, 3)),
                    "src_out": draw(st.integers(0, top)), "src_in": draw(st.integers(0, 3)),
                }  # fmt: skip
                if kind == 2:
                    program.append(
                        Gemm(
                            **loops,
                            wgt_out=draw(small),
                            wgt_in=draw(small),
                            reset=draw(st.booleans()),
                        )
                    )
                else:
                    immediate = st.none() | st.integers(-40, 40) | st.integers(-(2**15), 2**15 - 1)
                    program.append(
                        Alu(**loops, op=draw(st.sampled_from(AluOp)), immediate=draw(immediate))
                    )
    return config, program, draw(st.integers(0, 2**31))


@settings(max_examples=60, deadline=None)
@given(programs())
def test_random_programs_equal_numpy(case: tuple[Config, list[Instruction], int]) -> None:
    config, program, seed = case
    generator = np.random.default_rng(seed)
    dram = generator.integers(0, 256, DRAM).astype(np.uint8)
    quarter = min(config.entries(m) for m in (Memory.ACC, Memory.INP, Memory.WGT)) // 4
    count = config.entries(Memory.UOP)
    words = [uop(*map(int, generator.integers(0, quarter, 3))) for _ in range(count)]
    words[0] = 0  # what the first ALU instruction repeats
    dram[4 : 4 + 4 * count] = np.array(words, np.uint32).view(np.uint8)
    expected = Reference(config, dram.copy())
    expected.run(program)
    with Simulator(config, DRAM) as vta:
        vta.dram[:] = dram
        stats = vta.run(in_order(program))
        assert np.array_equal(vta.dram, expected.dram)
    assert stats.cycles >= stats.gemm_cycles + stats.alu_cycles  # one module


def dense() -> Iterator[Instruction]:
    """acc[0] = inp[0] x wgt[0], stored: the smallest program with a token over every hop."""
    yield Load(Memory.UOP, 0, 0, 1, 1, 1)
    yield Load(Memory.INP, 0, 64, 1, 1, 1)
    yield Load(Memory.WGT, 0, 16, 1, 1, 1, push_next=True)
    yield Gemm(uop_end=1, reset=True)
    yield Gemm(uop_end=1, pop_prev=True, push_next=True)
    yield Store(Memory.OUT, 0, 128, 1, 1, 1, pop_prev=True, push_prev=True)
    yield Finish(pop_next=True)


def run(program: list[Instruction] | bytes, config: Config = SMALL) -> Simulator:
    vta = Simulator(config, DRAM)
    vta.dram[256:272] = [1, 2, 3, 4] * 4
    vta.dram[512:544] = np.arange(32)
    vta.run(program, cycle_limit=1_000_000)
    return vta


def test_a_product() -> None:
    with run(list(dense())) as vta:
        weights = np.arange(32).reshape(8, 4)
        assert list(vta.dram[1024:1032].view(np.int8)) == list(
            (weights @ [1, 2, 3, 4]).astype(np.int8)
        )


def changed(**changes: Any) -> list[Instruction]:
    """`dense` with fields of instructions replaced: name_3=..."""
    program = list(dense())
    for name, value in changes.items():
        field, _, index = name.rpartition("_")
        program[int(index)] = dataclasses.replace(program[int(index)], **{field: value})
    return program


FAULTS: dict[str, tuple[list[Instruction], str]] = {
    "token taken that nobody sends": (changed(push_next_2=False), r"instruction 4 \(GEMM\): dependence error: it waits"),
    "token that nobody takes": (changed(pop_prev_4=False), r"no token orders it behind the load of inp\[0\]"),
    "token left over": (changed(pop_next_6=False), r"1 tokens are left in the queue store to compute"),
    "inp read before its load": (changed(push_next_1=True, push_next_2=False), r"no token orders .* wgt\[0\]"),
    "store before the result": (
        changed(pop_prev_5=False, push_next_4=False), r"instruction 5 \(STORE\): dependence error: .*out\[0\]"
    ),
    "inp never loaded": (changed(sram_1=1), r"nothing was loaded into inp\[0\]"),
    "acc without a value": (changed(reset_3=False), r"instruction 3 \(GEMM\): dependence error: acc\[0\] holds nothing"),
    "micro-op without a value": (changed(uop_begin_4=1, uop_end_4=2), r"uop\[1\] holds nothing yet"),
    "out without a value": (changed(sram_5=1), r"out\[1\] holds nothing yet"),
    "inp out of range": (changed(sram_1=32), r"instruction 1 \(LOAD\): out of range: entries 32 to 33 of inp, which has 32"),
    "wgt out of range": (changed(sram_2=16), r"entries 16 to 17 of wgt"),
    "padding out of range": (changed(sram_1=25, y_pad_0_1=15), r"entries 25 to 41 of inp"),
    "acc index out of range": (changed(iter_out_3=33, dst_out_3=1), r"instruction 3 \(GEMM\): out of range: acc\[32\]"),
    "inp index out of range": (changed(iter_in_4=2, src_in_4=40), r"out of range: inp\[40\], which has 32"),
    "wgt index out of range": (changed(iter_in_4=2, wgt_in_4=16), r"out of range: wgt\[16\]"),
    "micro-ops out of range": (changed(uop_end_4=17), r"micro-ops up to 17 of 16"),
    "out entries out of range": (changed(sram_5=40), r"entries 40 to 41 of out"),
    "DRAM read out of range": (changed(dram_1=DRAM // 4), r"bytes 16384 to 16388 of DRAM are in nothing"),
    "DRAM rows out of range": (changed(y_size_1=3, x_stride_1=2100), r"bytes 256 to 17060 of DRAM"),
    "DRAM write out of range": (changed(dram_5=2**32 - 1), r"may write"),
    "no FINISH": (changed(push_prev_5=False)[:6], r"does not end with FINISH"),
    "more after FINISH": ([*dense(), Gemm()], r"instruction 7 \(GEMM\): it comes after FINISH"),
    "too many cycles": ([Load(Memory.UOP, 0, 0, 1, 1, 1), Gemm(uop_end=1, iter_out=9999, iter_in=9999, reset=True),
                         Finish()], r"more than 1000000 cycles"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str) -> None:
    program, message = FAULTS[name]
    with pytest.raises(DeviceError, match=message):
        run(program)


def test_a_simulator_works_on_after_a_fault() -> None:
    with run(list(dense())) as vta:
        before = vta.dram.copy()
        for program, _ in FAULTS.values():
            with pytest.raises(DeviceError):
                vta.run(program, cycle_limit=1_000_000)
            vta.dram[:] = before
            vta.run(list(dense()))
            assert np.array_equal(vta.dram, before)


def test_overwriting_what_is_still_used() -> None:
    """Write after read: the load module reuses inp[0], compute reuses out[0], memory is stored and loaded again."""
    again = [
        *changed(push_prev_4=True)[:6],
        Load(Memory.INP, 0, 64, 1, 1, 1, pop_next=True),
        Finish(pop_next=True),
    ]
    run(again).close()
    again[6] = dataclasses.replace(again[6], pop_next=False)
    again[4] = dataclasses.replace(again[4], push_prev=False)
    with pytest.raises(
        DeviceError, match=r"no token orders it behind the (load|last use) of inp\[0\]"
    ):
        run(again)
    reused = [*list(dense())[:6], Gemm(uop_end=1, reset=True, pop_next=True), Finish()]
    run(reused).close()
    reused[5], reused[6] = changed(push_prev_5=False)[5], Gemm(uop_end=1, reset=True)
    with pytest.raises(
        DeviceError, match=r"no token orders it behind (the store of|what wrote) out\[0\]"
    ):
        run(reused)


def test_memory_that_two_modules_use() -> None:
    """A load of what was stored before, and a store over what is being loaded, need tokens too."""
    chain = [*list(dense())[:6], Gemm(pop_next=True, push_prev=True),
             Load(Memory.INP, 1, 256, 1, 1, 1, pop_next=True), Finish()]  # fmt: skip
    run(chain).close()
    chain[6], chain[7] = Gemm(pop_next=True), Load(Memory.INP, 1, 256, 1, 1, 1)
    with pytest.raises(
        DeviceError, match=r"behind the (load|store) module's access to the same DRAM"
    ):
        run(chain)
    chain[7] = Load(Memory.INP, 1, 255, 2, 1, 3)  # rows around what is stored, not of it
    run(chain).close()


def test_waiting_for_room_among_tokens() -> None:
    """A queue has room for 128; more wait until some are taken, for ever if none are."""
    send = [Load(Memory.INP, push_next=True)] * 200
    run([*send, *[Gemm(pop_prev=True)] * 200, Finish()]).close()
    with pytest.raises(
        DeviceError, match=r"instruction 128 \(LOAD\): .*the queue load to compute is full \(128\)"
    ):
        run([*send, Finish()])


def test_more_instructions_than_a_queue_holds() -> None:
    """The fetch waits for the module whose queue is full; that can be a deadlock of its own."""
    steps = [instruction for _ in range(2000) for instruction in list(dense())[1:6]]
    steps[1::5] = [dataclasses.replace(i, push_next=True) for i in steps[1::5]]
    free = [Gemm(push_prev=True), *steps]
    for at in range(1, len(free), 5):
        free[at] = dataclasses.replace(free[at], pop_next=True)
        free[at + 3] = dataclasses.replace(free[at + 3], push_prev=True)
        if at > 1:
            free[at + 2] = dataclasses.replace(free[at + 2], pop_next=True)
    run([next(dense()), *free, Load(Memory.INP, pop_next=True), Finish(pop_next=True)]).close()
    with pytest.raises(DeviceError, match="waits for ever"):
        run([*[Gemm(pop_prev=True)] * 600, *[Load(Memory.INP, push_next=True)] * 600, Finish()])


def test_cycles() -> None:
    """As docs/vta.md states them: 8 bytes a cycle behind a latency of 16, a micro-op a cycle, modules side by side."""
    with Simulator(SMALL, DRAM) as vta:
        fetch, latency = 2, 16
        assert vta.run([Finish()]).cycles == fetch + 1
        stats = vta.run(
            [Load(Memory.UOP, 0, 0, 1, 16, 16), Gemm(uop_end=8, iter_out=5, reset=True), Finish()]
        )
        assert (stats.load_cycles, stats.gemm_cycles, stats.cycles) == (
            latency + 16,
            40,
            fetch + latency + 16 + 40 + 1,
        )
        stats = vta.run(
            [
                Gemm(uop_end=1, iter_out=8, dst_out=1, reset=True),
                Alu(uop_end=8, immediate=1),
                Alu(uop_end=8),
                Finish(),
            ]
        )
        assert stats.alu_cycles == 8 + 16  # two operands take a cycle each
        stats = vta.run(
            [Load(Memory.WGT, 0, 0, 1, 16, 16), Gemm(uop_end=10, iter_out=5, reset=True), Finish()]
        )
        assert (
            stats.cycles == fetch + latency + 64
        )  # the load outlasts compute, which does not wait for it
        assert stats.bytes_loaded == stats.wgt_bytes == 512


def test_double_buffering_overlaps() -> None:
    """The same work with two buffers takes about the longer of loads and products, with one their sum."""
    both = []
    for buffers in (1, 2):
        program: list[Instruction] = [Load(Memory.UOP, 0, 0, 1, 2, 2), Gemm(uop_end=1, reset=True)]
        program += [Gemm(push_prev=True)] * buffers
        for turn in range(20):
            at = turn % buffers
            program.append(Load(Memory.INP, 8 * at, 64, 1, 8, 8, pop_next=True))
            program.append(Load(Memory.WGT, 8 * at, 16, 1, 8, 8, push_next=True))
            program.append(
                Gemm(uop_begin=at, uop_end=at + 1, iter_out=64, pop_prev=True, push_prev=True)
            )
        program += [Load(Memory.INP, pop_next=True)] * buffers
        with Simulator(SMALL, DRAM) as vta:
            vta.dram[:8] = np.array([0, uop(0, 8, 8)], np.uint32).view(np.uint8)
            both.append(vta.run([*program, Finish()]))
    assert both[0].block_products == both[1].block_products
    assert both[0].cycles > 1.6 * both[1].cycles
    assert both[1].utilisation > 0.8


def test_a_simulator_that_is_closed() -> None:
    vta = Simulator(SMALL, 64)
    vta.close()
    vta.close()
    with pytest.raises(Closed):
        vta.run([Finish()])


def hostile(generator: random.Random, program: list[Instruction]) -> bytes:
    """A stream that is partly right: words at random, or a right one with bits flipped, instructions moved and gone."""
    data = bytearray(encode(program))
    match generator.randrange(4):
        case 0:
            data = bytearray(generator.randbytes(16 * generator.randrange(1, 12)))
            for at in range(0, len(data), 16):
                data[at] = data[at] & 0xF8 | generator.choice((0, 0, 1, 2, 2, 4))
        case 1:
            for _ in range(generator.randrange(1, 6)):
                bit = generator.randrange(8 * len(data))
                data[bit // 8] ^= 1 << bit % 8
        case 2:
            parts = [bytes(data[at : at + 16]) for at in range(0, len(data), 16)]
            generator.shuffle(parts)
            data = bytearray(b"".join(parts[: generator.randrange(len(parts) + 1)]))
        case _:
            at = 16 * generator.randrange(len(data) // 16) + generator.randrange(16)
            data[at] = generator.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_hostile_streams(count: int) -> None:
    """Any words either run or raise DeviceError. Run with the library under ASan, this is the fuzz target."""
    generator = random.Random(count)
    ran = 0
    with Simulator(SMALL, 4096) as vta:
        for _ in range(count):
            try:
                vta.run(hostile(generator, list(dense())), cycle_limit=20_000)
                ran += 1
            except DeviceError:
                pass
    assert ran > count // 100


def test_threads_take_turns() -> None:
    """The interpreter's lock is dropped in a run; closing waits for its end."""
    turns = [Gemm(uop_end=1, iter_out=16000, iter_in=2, reset=True) for _ in range(40)]
    program = encode(in_order([Load(Memory.UOP, y_size=1, x_size=1), *turns]))

    def run(_: int) -> int | None:
        try:
            return vta.run(program).gemm_cycles
        except Closed:
            return None

    with ThreadPoolExecutor(4) as pool, Simulator(SMALL, DRAM) as vta:
        assert set(pool.map(run, range(12))) == {40 * 32000}
        late = [pool.submit(run, 0) for _ in range(8)]
        vta.close()
        assert {future.result() for future in late} <= {40 * 32000, None}
