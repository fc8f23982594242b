"""PTX of kernels: its text, what NVIDIA's assembler says of it, and what it computes, translated to C (fake_cuda)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np
import pytest

from nimblevm.errors import IndexOutOfRange
from nimblevm.kernels import llvm, ptx
from nimblevm.kernels import loop_ir as ir
from nimblevm.kernels.device_support import supports
from tests.devices.fake_cuda.driver import PtxGrid
from tests.kernels import ptxas
from tests.kernels.fused import FUSED, floats
from tests.kernels.ir_random import check_grid, grid_cases
from tests.kernels.native import Program, Runner, agree, program

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


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("first", range(0, 120, 30))
def test_random_kernels_give_the_bits_of_the_oracle(first: int) -> None:
    cases = grid_cases(range(first, first + 30), locals_set=True)
    assert len(cases) > 10
    check_grid(cases, PtxGrid(*(case.kernel for case in cases)).call)


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


SIZES = ((5, 7, 9), (64, 16, 64), (65, 17, 63), (130, 40, 70), (6, 1, 6), (0, 5, 7), (9, 0, 9))


def check_products(runner: Runner, sizes: Sequence[tuple[int, int, int]], tolerance: float) -> None:
    """dense with bias and tanh of (m, k, n) by one module."""
    for m, k, n in sizes:
        row, expected = dense(m, k, n)
        for found, right in zip(row.run(runner), expected, strict=True):
            assert agree(found, right, tolerance, tolerance / 10), (m, k, n)


@pytest.mark.slow
@needs_gcc
def test_products_of_all_sizes() -> None:
    check_products(PtxGrid(dense(5, 40, 7)[0].lowered.kernel), SIZES, 1e-4)
