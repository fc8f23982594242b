"""PTX of kernels: its text, what NVIDIA's assembler says of it, and what it computes, translated to C (fake_cuda)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest

from nimblevm.errors import STATUSES, IndexOutOfRange
from nimblevm.kernels import llvm, ptx
from nimblevm.kernels import loop_ir as ir
from nimblevm.kernels.device_support import supports
from nimblevm.kernels.loop_ir_eval import KernelFault, evaluate
from tests.devices.fake_cuda.driver import PtxGrid
from tests.kernels import ptxas
from tests.kernels.fused import FUSED, floats
from tests.kernels.ir_random import Generator
from tests.kernels.native import Program, agree, program

pytestmark = pytest.mark.skipif(not llvm.HAVE_LLVM, reason="no llvmlite")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
needs_ptxas = pytest.mark.skipif(
    not ptxas.path(), reason="no ptxas: pip install nvidia-cuda-nvcc-cu12"
)
QUICK = ("broadcast_three", "lstm_cell", "softmax_along_rows", "take_checked", "moved_data")


def source(*kernels: ir.Kernel) -> str:
    payload = ptx.generate(list(enumerate(kernels)))
    return str(msgpack.unpackb(payload, strict_map_key=False)["source"].decode())


def made(names: Sequence[str]) -> list[tuple[str, Program, list[Any]]]:
    found = [(name, *program(FUSED[name][0], *FUSED[name][1])) for name in names]
    return [row for row in found if supports(row[1].lowered.kernel)]


def test_the_text_is_for_old_drivers_and_always_the_same() -> None:
    kernel = made(["lstm_cell"])[0][1].lowered.kernel
    text = source(kernel)
    assert ".version 6.0" in text
    assert ".target sm_70" in text
    assert ".reqntid" in text
    assert text == source(kernel)


def test_nothing_is_contracted_that_the_loop_ir_does_not_allow() -> None:
    text = "def @main(%x: Tensor[(?n), float32], %y: Tensor[(?n), float32]) { %x * %y + %x }"
    found = source(program(text, floats(3), floats(3))[0].lowered.kernel)
    assert "mul.rn.f32" in found
    assert "add.rn.f32" in found
    assert "fma" not in found
    assert ".ftz" not in found
    assert ".approx" not in found


@needs_gcc
def test_kernels_run() -> None:
    """Several kernels of one module."""
    rows = made(QUICK)
    grid = PtxGrid(*(program.lowered.kernel for _, program, _ in rows))
    for number, (name, row, expected) in enumerate(rows):
        for found, right in zip(row.run(grid, number), expected, strict=True):
            assert agree(found, right, 1e-4, 1e-5), name


@needs_gcc
def test_faults_are_reported() -> None:
    text = "def @main(%x: Tensor[(4), float32], %i: Tensor[(3), int64]) { gather(%x, %i, axis=0) }"
    row, _ = program(text, floats(4), np.array([0, 1, 2]))
    grid = PtxGrid(row.lowered.kernel)
    row.run(grid)
    row.arrays[1][1] = 4
    with pytest.raises(IndexOutOfRange):
        row.run(grid)


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("name", [n for n in FUSED if n not in QUICK])
def test_fused_kernels_run(name: str) -> None:
    for _, row, expected in made([name]):
        for found, right in zip(row.run(PtxGrid(row.lowered.kernel)), expected, strict=True):
            assert agree(found, right, 1e-4, 1e-5)


def without_out_dims(body: Sequence[ir.Statement]) -> tuple[ir.Statement, ...]:
    found: list[ir.Statement] = []
    for statement in body:
        match statement:
            case ir.SetDim():
                continue
            case ir.For(body=inner):
                statement = replace(statement, body=without_out_dims(inner))
            case ir.If(then=then, otherwise=otherwise):
                both = without_out_dims(then), without_out_dims(otherwise)
                statement = replace(statement, then=both[0], otherwise=both[1])
        found.append(statement)
    return tuple(found)


def outcome(kernel: ir.Kernel, arrays: list[Any], dims: tuple[int, ...]) -> int | None:
    """The status that the oracle gives; None for an index that no code checks."""
    try:
        evaluate(kernel, arrays, dims)
    except KernelFault as fault:
        if fault.code == "INDEX_OUT_OF_RANGE":
            return None
        return next(row.number for row in STATUSES if row.name == fault.code)
    return 0


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("first", range(0, 120, 30))
def test_random_kernels_give_the_bits_of_the_oracle(first: int) -> None:
    kernels, calls = [], []
    for seed in range(first, first + 30):
        generator = Generator(seed)
        whole = generator.kernel()
        zeros = [ir.SetLocal(t, ir.Const(t.dtype, 0)) for t in generator.locals]
        body = (*zeros, *without_out_dims(whole.body))
        kernel = replace(whole, body=body, out_dims=0)
        arrays, dims = generator.arrays(), (generator.m, generator.n)
        right = [array.copy() for array in arrays]
        status = outcome(kernel, right, dims)
        if status is not None:
            kernels.append(kernel)
            calls.append((seed, arrays, right, dims, status))
    grid = PtxGrid(*kernels)
    assert len(calls) > 10
    for number, (seed, arrays, right, dims, status) in enumerate(calls):
        pitches = [
            array.shape[axis]
            for array, buffer in zip(arrays, kernels[number].buffers, strict=True)
            for axis, row in enumerate(buffer.axes)
            if row.broadcast
        ]
        assert grid.call(number, arrays, [*dims, *pitches]) == status, seed
        if status == 0:
            for found, wanted in zip(arrays, right, strict=True):
                np.testing.assert_array_equal(found, wanted, err_msg=str(seed))


@needs_ptxas
def test_an_assembler_takes_fused_kernels() -> None:
    found = source(*(row.lowered.kernel for _, row, _ in made(list(FUSED)))).encode()
    for use in ptxas.assemble(found, "sm_70"):
        assert use.spills == 0, use


def dense(m: int, k: int, n: int) -> tuple[Program, list[Any]]:
    text = """def @main(%x: Tensor[(?m, ?k), float32], %w: Tensor[(?n, ?k), float32], %b: Tensor[(?n), float32]) {
        tanh(nn.bias_add(nn.dense(%x, %w), %b)) }"""
    return program(text, floats(m, k), floats(n, k), floats(n))


def test_a_tile_of_a_product_lies_in_registers() -> None:
    """A step of 16 along the depth: 4 x 4 sums a thread, whose factors are loaded four at a time."""
    text = source(dense(5, 40, 7)[0].lowered.kernel)
    entry = next(part for part in text.split(".entry")[1:] if "ld.shared.v4" in part)
    assert entry.count("ld.shared.v4") == 2 * 16
    assert entry.count("fma.rn.f32") >= 256
    assert ".local" not in entry


@needs_ptxas
@pytest.mark.parametrize("arch", ptxas.ARCHS)
def test_products_need_few_registers(arch: str) -> None:
    """So that two groups of 256 threads fit a multiprocessor."""
    uses = ptxas.assemble(source(dense(5, 40, 7)[0].lowered.kernel).encode(), arch)
    assert all(use.registers <= 128 and use.spills == use.stack == 0 for use in uses), uses


@pytest.mark.slow
@needs_gcc
def test_products_of_all_sizes() -> None:
    row, _ = dense(5, 40, 7)
    grid = PtxGrid(row.lowered.kernel)
    for m, k, n in (
        (5, 7, 9),
        (64, 16, 64),
        (65, 17, 63),
        (130, 40, 70),
        (6, 1, 6),
        (0, 5, 7),
        (9, 0, 9),
    ):
        row, expected = dense(m, k, n)
        for found, right in zip(row.run(grid), expected, strict=True):
            assert agree(found, right, 1e-4, 1e-5), (m, k, n)
