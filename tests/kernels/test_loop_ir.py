"""Loop IR: serialized form, the C interpreter against the evaluator in Python, faults, hostile bytes."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from nimblevm.kernels.loop_ir_eval import KernelFault, evaluate
from nimblevm.kernels.loop_ir_form import deserialize, serialize, structural_hash
from tests.kernels.ir_harness import Loaded
from tests.kernels.ir_random import Generator


def _same(got: np.ndarray, expected: np.ndarray) -> bool:
    if got.dtype.kind == "f":
        nan = np.isnan(got) & np.isnan(expected)
        bits = got.view(f"u{got.itemsize}") == expected.view(f"u{got.itemsize}")
        return bool((nan | bits).all())
    return bool((got == expected).all())


def _compare(library: ctypes.CDLL, seed: int) -> str:
    generator = Generator(seed)
    kernel = generator.kernel()
    arrays = generator.arrays()
    expected = [array.copy() for array in arrays]
    dims = [generator.m, generator.n]
    status, out_dims = "OK", [0]
    try:
        out_dims = evaluate(kernel, expected, dims)
    except KernelFault as fault:
        status = fault.code
    outcome = Loaded(library, kernel).run(arrays, dims)
    if status != "OK":
        # several faults may be ahead, and a row meets them in another order
        assert outcome.status in ("INDEX_OUT_OF_RANGE", "DIVISION_BY_ZERO"), f"seed {seed}"
        return status
    assert (outcome.status, outcome.out_dims) == ("OK", out_dims), f"seed {seed}"
    for buffer, got, wanted in zip(kernel.buffers, arrays, expected, strict=True):
        assert _same(got, wanted), f"seed {seed}: {buffer.name} ({buffer.dtype})"
    return status


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_random_kernels_agree_bit_for_bit(library: ctypes.CDLL, first: int) -> None:
    seen = [_compare(library, seed) for seed in range(first, first + 20)]
    assert "OK" in seen


@pytest.mark.slow
def test_many_random_kernels_agree_bit_for_bit(library: ctypes.CDLL) -> None:
    seen = [_compare(library, seed) for seed in range(1000, 2000)]
    assert seen.count("OK") > 300


@pytest.mark.parametrize("seed", range(30))
def test_serialized_form_is_an_identity(seed: int) -> None:
    kernel = Generator(seed).kernel()
    data = serialize(kernel)
    again = deserialize(data, kernel)
    assert serialize(again) == data
    assert structural_hash(again) == structural_hash(kernel)
    assert len(data) % 8 == 0
