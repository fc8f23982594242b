"""Attention in one kernel: the same values as the operators one by one, for sizes around blocks, squares and panels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from nimblevm.kernels import llvm
from nimblevm.kernels.loop_ir import PackPanels, PanelProduct
from nimblevm.kernels.lower import LoweredKernel, lower_primitive
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule import schedule
from tests.kernels import native
from tests.kernels.fused import floats
from tests.kernels.native import (
    Evaluated,
    Interpreted,
    Library,
    Program,
    Runner,
    agree,
    bind,
    oracle,
    parsed,
)

Array = np.ndarray[Any, Any]


def heads(batch: str, rows: str, size: int, width: int, dtype: str = "float32") -> str:
    """Three heads, with a scale and a mask over the keys."""
    literal = "0.5f" if dtype == "float32" else "0.5f64"

    def split(name: str, each: int) -> str:
        moved = f"transpose(reshape(%{name}, newshape=[0, 0, 3, {each}]), axes=[0, 2, 1, 3])"
        return f"let %{name}1 = reshape({moved}, newshape=[-3, 0, 0]);"

    return f"""def @main(%q: Tensor[({batch}, {rows}, {3 * size}), {dtype}],
      %k: Tensor[({batch}, ?n, {3 * size}), {dtype}], %v: Tensor[({batch}, ?n, {3 * width}), {dtype}],
      %mask: Tensor[({batch}, 1, 1, ?n), {dtype}]) {{
    {split("q", size)} {split("k", size)} {split("v", width)}
    let %s = reshape(nn.batch_matmul(%q1, %k1, transpose_b=True) * {literal}, newshape=[-4, -1, 3, -2]);
    let %p = reshape(nn.softmax(%s + %mask, axis=-1), newshape=[-3, -2]);
    reshape(transpose(reshape(nn.batch_matmul(%p, %v1), newshape=[-4, -1, 3, -2]), axes=[0, 2, 1, 3]),
            newshape=[0, 0, -3]) }}"""


def arguments(b: int, m: int, n: int, size: int, width: int, dtype: str = "float32") -> list[Array]:
    shapes = ((b, m, 3 * size), (b, n, 3 * size), (b, n, 3 * width), (b, 1, 1, n))
    return [floats(*s).astype(dtype) for s in shapes]


def blocked(lowered: LoweredKernel, rank: int = 3) -> bool:
    """Whether it is the kernel of attention.py: scores of a block of 12 rows."""
    shapes = [t.shape for t in lowered.scratch_types]
    return bool(shapes) and len(shapes[0]) == rank and shapes[0][-2] == 12


def machine(lowered: LoweredKernel) -> Runner:
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    return Library(code)


def check(
    text: str, calls: list[list[Array]], *runners: Callable[[LoweredKernel], Runner]
) -> LoweredKernel:
    """Compare every call with the oracle, on all runners (none are named: machine code)."""
    module, function = parsed(text)
    lowered = lower_primitive(function)
    made = [runner(lowered) for runner in runners or (machine,)]
    for args in calls:
        expected = oracle(module, *args)
        program = Program(lowered, args, bind(lowered, args, expected))
        for runner in made:
            for one, other in zip(program.run(runner), expected, strict=True):
                assert agree(one, other, 1e-5, 1e-5), [a.shape for a in args]
    return lowered


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_heads_with_a_mask(library: ctypes.CDLL, dtype: str) -> None:
    sizes = ((1, 1, 1), (2, 3, 17), (1, 5, 3), (1, 0, 3), (1, 5, 0), (0, 2, 2))
    calls = [arguments(*s, 4, 5, dtype) for s in sizes]
    interpreter = partial(Interpreted, library)
    text = heads("?b", "?m", 4, 5, dtype)
    assert blocked(check(text, calls, machine, Evaluated, interpreter))


@pytest.mark.parametrize(
    ("size", "width"),
    [(19, 33), (2, 1), *(pytest.param(*s, marks=pytest.mark.slow) for s in ((32, 32), (16, 7)))],
)
def test_sizes_around_tiles(size: int, width: int) -> None:
    pairs = ((4, 16), (12, 15), (13, 33), (6, 64), (25, 65), (24, 130), (5, 1), (7, 3), (14, 0))
    calls = [arguments(2, m, n, size, width) for m, n in pairs]
    lowered = check(heads("?b", "?m", size, width), calls)
    body = list(all_statements(schedule(lowered.kernel, ("avx512f", "avx512vl")).body))
    assert any(isinstance(s, PackPanels) for s in body)
    assert sum(isinstance(s, PanelProduct) for s in body) == (3 if width >= 16 else 1)


@pytest.mark.parametrize("rows", [1, pytest.param(3, marks=pytest.mark.slow), 4])
def test_a_fixed_number_of_rows(rows: int) -> None:
    calls = [arguments(1, rows, n, 8, 16) for n in (0, 1, 15, 16, 17, 100)]
    lowered = check(heads("1", str(rows), 8, 16), calls)
    assert blocked(lowered)
    assert len(lowered.scratch_types) == (2 if rows >= 4 else 1)


def test_a_causal_mask() -> None:
    text = """def @main(%q: Tensor[(2, ?m, 8), float32], %k: Tensor[(2, ?n, 8), float32],
      %v: Tensor[(2, ?n, 16), float32], %seen: Tensor[(?m, ?n), bool]) {
    let %s = nn.batch_matmul(%q, %k, transpose_b=True) / 3f;
    let %masked = where(expand_dims(%seen, axis=0), %s, -10000f);
    nn.batch_matmul(nn.softmax(%masked), %v) }"""
    calls = []
    for m, n in ((1, 5), (7, 7), (20, 23)):
        seen = np.tril(np.ones((m, n), bool), n - m)
        calls.append([floats(2, m, 8), floats(2, n, 8), floats(2, n, 16), seen])
    assert blocked(check(text, calls))


def test_one_tensor_for_queries_keys_and_values() -> None:
    text = """def @main(%x: Tensor[(?n, 24), float32]) {
    let %h = transpose(reshape(%x, newshape=[0, 3, 8]), axes=[1, 0, 2]);
    let %s = nn.batch_matmul(%h, %h, transpose_b=True);
    let %c = nn.batch_matmul(nn.softmax(%s + %s * 0.1f), %h);
    reshape(transpose(%c, axes=[1, 0, 2]), newshape=[0, -1]) }"""
    assert blocked(check(text, [[floats(n, 24)] for n in (0, 1, 5, 30)]))


def test_einsums_with_two_axes_of_the_batch() -> None:
    text = """def @main(%q: Tensor[(?b, ?m, 24), float32], %k: Tensor[(?b, ?n, 24), float32],
      %v: Tensor[(?b, ?n, 48), float32]) {
    let %q1 = reshape(%q, newshape=[0, 0, 3, 8]);
    let %s = einsum((%q1, reshape(%k, newshape=[0, 0, 3, 8])), equation="bihd,bjhd->bhij");
    let %p = nn.softmax(%s * 0.3f, axis=-1);
    let %c = einsum((%p, reshape(%v, newshape=[0, 0, 3, 16])), equation="bhij,bjhd->bihd");
    reshape(%c, newshape=[0, 0, -3]) }"""
    calls = [
        [floats(b, m, 24), floats(b, n, 24), floats(b, n, 48)]
        for b, m, n in ((1, 1, 5), (2, 13, 17), (0, 1, 1))
    ]
    assert blocked(check(text, calls), 4)


def test_keys_that_lie_across() -> None:
    text = """def @main(%q: Tensor[(2, ?m, 8), float32], %k: Tensor[(2, 8, ?n), float32],
      %v: Tensor[(1, ?n, 16), float32]) {
    nn.batch_matmul(nn.softmax(nn.batch_matmul(%q, %k)), %v) }"""
    calls = [
        [floats(2, m, 8), floats(2, 8, n), floats(1, n, 16)] for m, n in ((1, 4), (5, 9), (30, 40))
    ]
    assert blocked(check(text, calls))


def test_long_rows_ask_whether_to_go_on() -> None:
    module, function = parsed(heads("1", "?m", 4, 16))
    lowered = lower_primitive(function)
    args = arguments(1, 500, 3, 4, 16)
    program = Program(lowered, args, bind(lowered, args, oracle(module, *args)))
    native.polled[0] = 0
    program.run(machine(lowered))
    assert 3 * (500 // 12 // 8) <= native.polled[0] <= 100


def test_scores_that_are_not_numbers() -> None:
    text = heads("1", "?m", 8, 16)
    calls = []
    for value in (np.nan, -np.nan, np.inf, -np.inf):
        args = arguments(1, 5, 20, 8, 16)
        args[0][0, 2, 3] = value
        calls.append(args)
    hidden = arguments(1, 5, 20, 8, 16)
    hidden[3][:] = -np.inf
    check(text, [*calls, hidden])


@pytest.mark.parametrize("rows", [1, 5])
def test_values_near_the_greatest_float(rows: int) -> None:
    """Their sum is not one, their mean is."""
    args = arguments(1, rows, 20, 8, 16)
    args[2] = np.full_like(args[2], 3e38)
    assert blocked(check(heads("1", "?m", 8, 16), [args]))


@pytest.mark.parametrize(
    "body",
    [
        "let %s = nn.batch_matmul(%q, %k, transpose_b=True);"
        " nn.batch_matmul(nn.softmax(%s + transpose(%s, axes=[0, 2, 1])), %v)",
        "let %p = nn.softmax(nn.batch_matmul(%q, %k, transpose_b=True)); (nn.batch_matmul(%p, %v), %p)",
        "nn.batch_matmul(nn.softmax(nn.batch_matmul(%q, %k, transpose_b=True), axis=1), %v)",
        "nn.batch_matmul(nn.softmax(nn.batch_matmul(%q, %k, transpose_b=True)), %v, transpose_a=True)",
        "nn.batch_matmul(nn.softmax(exp(%q)), %v)",
        'let %s = einsum((%q, %k), equation="bij,bkj->bki");'
        ' einsum((nn.softmax(%s), %v), equation="bij,bjk->bik")',
        "let %s = take(nn.batch_matmul(%q, %k), 0, axis=0);"
        " nn.batch_matmul(expand_dims(nn.softmax(%s), axis=0), %v)",
    ],
)
def test_what_looks_like_it(library: ctypes.CDLL, body: str) -> None:
    text = f"""def @main(%q: Tensor[(2, ?n, ?n), float32], %k: Tensor[(2, ?n, ?n), float32],
      %v: Tensor[(2, ?n, 16), float32]) {{ {body} }}"""
    calls = [[floats(2, n, n), floats(2, n, n), floats(2, n, 16)] for n in (1, 5, 18)]
    assert not blocked(check(text, calls, partial(Interpreted, library)))
