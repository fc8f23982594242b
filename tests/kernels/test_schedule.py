"""Schedules: the same values in another order, for sizes around the tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nimblevm.kernels import llvm
from nimblevm.kernels.loop_ir import For
from nimblevm.kernels.lower import lower_primitive
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule import STACK, schedule
from nimblevm.relay.op import get
from nimblevm.relay.op.conv import ATTRS
from tests.kernels.fused import floats
from tests.kernels.native import Library, Program, agree, bind, parsed

SIZES = (0, 1, 5, 63, 64, 65, 130)


def check(text: str, calls: list[tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]]) -> None:
    """Compile once, compare every call: (arguments, expected)."""
    lowered = lower_primitive(parsed(text)[1])
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    library = Library(code)
    for args, expected in calls:
        found = Program(lowered, args, bind(lowered, args, [expected])).run(library)[0]
        assert agree(found, expected, 1e-4, 1e-4), [a.shape for a in args]


def test_sums_along_the_first_axis() -> None:
    calls = [
        ([x], x.sum(0, dtype="float32")) for n in SIZES for m in (0, 1, 7) for x in [floats(m, n)]
    ]
    check("def @main(%x: Tensor[(?m, ?n), float32]) { sum(%x, axis=[0]) }", calls)


@pytest.mark.parametrize("dtype", ["int8", "int64", "float64", "float16"])
def test_sums_along_the_middle_axis(dtype: str) -> None:
    rng = np.random.default_rng(1)
    calls = []
    for n in SIZES:
        x = rng.integers(-9, 10, (2, 6, n)).astype(dtype)
        calls.append(([x], x.sum(1, dtype=dtype)))
    check(f"def @main(%x: Tensor[(?m, ?k, ?n), {dtype}]) {{ sum(%x, axis=[1]) }}", calls)


def test_means_along_two_axes_with_what_is_computed_before_and_after() -> None:
    text = "def @main(%x: Tensor[(?m, ?k, ?n), float32]) { tanh(mean(exp(%x), axis=[0, 1])) }"
    calls = []
    for n in SIZES:
        x = floats(2, 3, n)
        calls.append(([x], np.tanh(np.exp(x).mean((0, 1), dtype="float64")).astype("float32")))
    check(text, calls)


def test_logic_and_extremes_along_the_first_axis() -> None:
    rng = np.random.default_rng(2)
    flags = [rng.integers(0, 4, (3, n)).astype("bool") for n in SIZES]
    check(
        "def @main(%x: Tensor[(?m, ?n), bool]) { all(%x, axis=[0]) }",
        [([x], np.asarray(x.all(0))) for x in flags],
    )
    values = [floats(3, n) for n in SIZES]
    values[-1][1, 3] = np.nan
    check(
        "def @main(%x: Tensor[(?m, ?n), float32]) { max(%x, axis=[0]) }",
        [([x], x.max(0)) for x in values],
    )


def test_products_with_a_row_major_right_operand() -> None:
    text = """def @main(%a: Tensor[(?b, ?m, ?k), float32], %w: Tensor[(?b, ?k, ?n), float32]) {
    nn.relu(nn.batch_matmul(%a, %w)) }"""
    calls = []
    for n in SIZES:
        for m, k in ((1, 4), (5, 33), (3, 0)):
            a, w = floats(2, m, k), floats(2, k, n)
            calls.append(([a, w], np.maximum(np.matmul(a, w), 0)))
    check(text, calls)


def test_static_sizes_leave_no_empty_loops() -> None:
    def loops(size: int) -> int:
        text = f"def @main(%x: Tensor[(6, {size}), float32]) {{ sum(%x, axis=[0]) }}"
        kernel = schedule(lower_primitive(parsed(text)[1]).kernel, ("avx2",))
        assert [b.name for b in kernel.buffers][-1] == STACK
        return sum(isinstance(s, For) for s in all_statements(kernel.body))

    assert loops(64) == 5
    assert loops(63) == 4
    assert loops(65) == 9


def test_what_has_no_sum_stays_as_it_is() -> None:
    kernel = lower_primitive(parsed("def @main(%x: Tensor[(?n), float32]) { tanh(%x) }")[1]).kernel
    assert schedule(kernel, ()).buffers == kernel.buffers


@pytest.mark.parametrize(
    "dtype", ["float32", "int32", pytest.param("float64", marks=pytest.mark.slow)]
)
def test_rows_that_share_a_row_major_operand(dtype: str) -> None:
    text = f"def @main(%a: Tensor[(?b, ?m, ?k), {dtype}], %c: Tensor[(?b, ?k, ?n), {dtype}])"
    calls = []
    rng = np.random.default_rng(3)
    for m, n in ((0, 3), (1, 16), (7, 15), (8, 17), (9, 64), (19, 33)):
        a, c = (rng.integers(-9, 10, s).astype(dtype) for s in ((2, m, 5), (2, 5, n)))
        calls.append(([a, c], np.matmul(a, c)))
    check(text + " { nn.batch_matmul(%a, %c) }", calls)


def test_rows_of_convolutions() -> None:
    """Channels around the rows that are taken at once; strides with and without phases."""
    text = (
        "def @main(%x: Tensor[(?n, ?c, ?h), float32], %w: Tensor[(?o, ?c, 3), float32])"
        " {{ nn.conv1d(%x, %w, strides=[{stride}], padding=[1, 1]) }}"
    )
    conv = get("nn.conv1d")
    for stride in (1, 2):
        attrs = ATTRS["nn.conv1d"](strides=(stride,), padding=(1,))
        calls = []
        for channels, size in ((1, 1), (3, 40), (8, 17), (13, 33)):
            x, w = floats(2, 4, size), floats(channels, 4, 3)
            calls.append(([x, w], conv.reference((x, w), attrs, None)))
        check(text.format(stride=stride), calls)
