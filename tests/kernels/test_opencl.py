"""Kernels printed as OpenCL C, run on this machine's device (PoCL), against the operators' references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nimblevm.dtypes import DTYPES
from nimblevm.kernels.device_support import DEVICE_CODE, supports
from nimblevm.kernels.loop_ir import (
    UNARY_INT,
    Axis,
    Binary,
    Buffer,
    Cast,
    Const,
    DimRef,
    For,
    Kernel,
    Load,
    LoopVar,
    Statement,
    Store,
    Unary,
    Value,
)
from nimblevm.kernels.loop_ir_eval import evaluate
from tests.devices.backend import OnBackend, Session, needs_opencl
from tests.kernels.ir_random import check_grid, grid_cases
from tests.kernels.test_compute import OPS, Sample, dtypes_of, samples

pytestmark = needs_opencl


def run(made: list[Sample]) -> None:
    on_device = [s for s in made if supports(s.program.lowered.kernel)]
    if on_device:
        with OnBackend("opencl", *(s.program.lowered.kernel for s in on_device)) as runner:
            for index, sample in enumerate(on_device):
                sample.check(runner, index)


def test_a_sample_of_operators() -> None:
    made: list[Sample] = []
    for number, op in enumerate(OPS[::24]):
        names = dtypes_of(op)
        made += samples(op, names[number % len(names)], 1, symbolic=number % 2 == 0)
    run(made)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_every_operator(op: str) -> None:
    run([
        s
        for number, dtype in enumerate(dtypes_of(op))
        for s in samples(op, dtype, 1, symbolic=number % 2 == 0)
    ])  # fmt: skip


def _same(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    if got.dtype.kind != "f":
        return bool((got == expected).all())
    nan = np.isnan(got) & np.isnan(expected)
    # min and max may give either zero
    return bool((nan | (got == expected)).all())


def compare_random(seeds: range) -> int:
    """Random kernels in one module; returns how many."""
    cases = grid_cases(seeds, locals_set=False)
    with OnBackend("opencl", *(case.kernel for case in cases)) as device:
        check_grid(cases, device.call)
    return len(cases)


def test_random_kernels() -> None:
    assert compare_random(range(8)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 500, 50))
def test_many_random_kernels(first: int) -> None:
    assert compare_random(range(first, first + 50)) > 10


INTEGERS = [row.name for row in DTYPES if row.is_integer]
FLOATS = [row.name for row in DTYPES if row.is_float]
INT_OPS = (
    "div",
    "mod",
    "floordiv",
    "floormod",
    "add",
    "sub",
    "mul",
    "min",
    "max",
    "and",
    "or",
    "xor",
    "shl",
    "shr",
)
FLOAT_OPS = ("mod", "floormod", "floordiv", "min", "max", "add", "mul", "div")
FLOAT_UNARY = ("floor", "ceil", "trunc", "round", "sign", "abs", "sqrt", "neg")


def _edges(dtype: str) -> np.ndarray[Any, Any]:
    if dtype in FLOATS:
        tiny = float(np.finfo(dtype).smallest_subnormal)
        most = float(np.finfo(dtype).max)
        row = [
            0.0,
            -0.0,
            0.5,
            -0.5,
            1.5,
            -2.5,
            3.0,
            300.7,
            -129.2,
            65000.0,
            2.0**31,
            -(2.0**63),
            tiny,
            7 * tiny,
            most,
        ]
        with np.errstate(over="ignore"):
            return np.array([*row, np.inf, -np.inf, np.nan, 2.0**64, 0.49999997], dtype)
    info = np.iinfo(dtype)
    row = [0, 1, 2, 3, 7, 100, info.max, info.max - 1, info.min, info.min + 1]
    row += [v for v in (-1, -2, -7, 2**31, 2**31 - 1, 2**32 + 5) if info.min <= v <= info.max]
    return np.array(row, dtype)


def _edge_kernel(dtype: str) -> Kernel:
    """out[k, i] = k-th operation of x[i] and y[i]; casts of x to every dtype."""
    axes = (Axis(DimRef("int64", 0)),)
    i = LoopVar("int64", "i")
    x, y = Load(dtype, 0, (i,)), Load(dtype, 1, (i,))
    values: list[Value] = [
        Binary(dtype, op, x, y) for op in (FLOAT_OPS if dtype in FLOATS else INT_OPS)
    ]
    values += [Unary(dtype, op, x) for op in (FLOAT_UNARY if dtype in FLOATS else UNARY_INT)]
    stores: list[Statement] = [
        Store(2, (Const("int64", k), i), value) for k, value in enumerate(values)
    ]
    buffers = [Buffer("x", dtype, "in", axes), Buffer("y", dtype, "in", axes)]
    buffers.append(Buffer("out", dtype, "out", (Axis(Const("int64", len(values))), *axes)))
    for row in DTYPES:
        stores.append(Store(len(buffers), (i,), Cast(row.name, x)))
        buffers.append(Buffer(f"as_{row.name}", row.name, "out", axes))
    body = (For(i, DimRef("int64", 0), tuple(stores), parallel=True),)
    return Kernel(f"edges_{dtype}", tuple(buffers), ("n",), body)


@pytest.mark.slow
def test_operations_on_the_edges_of_dtypes() -> None:
    """Wrapping, truncation, saturation, NaN and subnormal numbers; every value as the evaluator has it."""
    names = [*INTEGERS, *FLOATS]
    kernels = [_edge_kernel(dtype) for dtype in names]
    session = Session("opencl", DEVICE_CODE["opencl"](list(enumerate(kernels))))
    for number, kernel in enumerate(kernels):
        edges = _edges(names[number])
        pairs = [(a, b) for a in edges for b in edges if b != 0 or names[number] in FLOATS]
        n = len(pairs)
        arrays = [np.array([p[k] for p in pairs], names[number]) for k in (0, 1)]
        for buffer in kernel.buffers[2:]:
            shape = (
                (int(getattr(buffer.axes[0].size, "value", n)), n) if buffer.name == "out" else (n,)
            )
            arrays.append(np.zeros(shape, buffer.dtype))
        expected = [array.copy() for array in arrays]
        evaluate(kernel, expected, [n])
        assert session.run(number, arrays, [n], 1) == 0, session.message()
        for buffer, got, wanted in zip(kernel.buffers, arrays, expected, strict=True):
            wrong = [p for p in np.ndindex(got.shape) if not _same(got[p], wanted[p])]
            assert not wrong, (
                kernel.name,
                buffer.name,
                [(p, pairs[p[-1]], got[p], wanted[p]) for p in wrong[:5]],
            )
    session.close()
