"""The kernels written in C, through the registry, against numpy."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from nimblevm.kernels.c_kernels import BY_VARIANT, C_KERNELS, CKernel, COperand, emit_registry
from tests.kernels.ir_harness import ROOT, call_c_kernel

DTYPES = ("float32", "float64", "int32", "int64")
SHAPES = [(1, 1, 1), (3, 5, 4), (1, 1000, 1), (2, 1, 7), (0, 3, 2), (2, 3, 0)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("last", [0, 1])
def test_arg_reduce(
    library: ctypes.CDLL, name: str, dtype: str, shape: tuple[int, int, int], last: int
) -> None:
    values = np.random.default_rng(1).integers(-3, 4, shape).astype(dtype)
    out = np.full((shape[0], shape[2]), -1, np.int32)
    assert call_c_kernel(library, f"{name}_{dtype}", [values, out], [*shape, last]).status == "OK"
    if last:
        expected = shape[1] - 1 - getattr(np, name)(values[:, ::-1, :], axis=1)
    else:
        expected = getattr(np, name)(values, axis=1)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_nan_wins(library: ctypes.CDLL, name: str) -> None:
    values = np.array([[[1], [np.nan], [5], [np.nan], [-9]]], np.float32)
    out = np.zeros((1, 1), np.int32)
    for last in (0, 1):
        call_c_kernel(library, f"{name}_float32", [values, out], [1, 5, 1, last])
        assert out[0, 0] == 1


def test_an_empty_axis_is_an_error(library: ctypes.CDLL) -> None:
    out = np.zeros((2, 2), np.int32)
    outcome = call_c_kernel(
        library, "argmax_float32", [np.zeros((2, 0, 2), "f4"), out], [2, 0, 2, 0]
    )
    assert outcome.status == "INDEX_OUT_OF_RANGE"
    out = np.zeros((0, 2), np.int32)
    outcome = call_c_kernel(
        library, "argmax_float32", [np.zeros((0, 0, 2), "f4"), out], [0, 0, 2, 0]
    )
    assert outcome.status == "OK"


def test_unknown_names_are_not_found(library: ctypes.CDLL) -> None:
    for name in ("", "argmax", "argmax_float3", "argmax_float321", "zzz"):
        assert call_c_kernel(library, name, [], [0]).status == "FUNCTION_NOT_FOUND"


def test_every_variant_is_in_the_registry(library: ctypes.CDLL) -> None:
    for name in BY_VARIANT:
        row, _ = BY_VARIANT[name]
        arrays = [np.zeros((8,), np.int64) for _ in row.operands]
        dims = [0] * (len(row.dims) + len(row.attrs) + row.out_dims)
        if row.family == "vision":
            dims[2], dims[-1] = 6, 1  # fields of a box, of which some must exist
        if row.name == "argwhere":
            dims[1] = 1
        if row.name.startswith("stft"):
            dims[:] = [1] * len(dims)  # a frame, which exists
        if row.name == "proposal":
            dims[:] = [0, 2, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, *[0] * 16]  # an anchor
        if row.family == "sparse":
            dims[1] = 1
        assert call_c_kernel(library, name, arrays, dims).status == "OK", name


def test_rows_are_checked() -> None:
    with pytest.raises(ValueError, match="no dim 'k'"):
        CKernel("x", "f", ("int8",), (COperand("in", "T", ("k",)),), ("n",))
    assert {row.family for row in C_KERNELS} >= {"argreduce", "sort", "search", "unique", "vision"}


def test_the_committed_registry_is_what_the_table_gives() -> None:
    header = Path(ROOT, "native", "include", "generated", "nvm_c_kernels.h")
    assert header.read_text(encoding="utf-8") == emit_registry()
