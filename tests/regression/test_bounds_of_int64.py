"""Strides, ends and steps at the ends of int64 gave sizes that had wrapped, and with them reads outside of a tensor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import DimOverflow
from nimblevm.relay.interpreter import evaluate

LOW, HIGH = -(2**63), 2**63 - 1
X = np.arange(30, dtype="int32").reshape(5, 6)
ENDS = (LOW, -7, -1, 0, 3, HIGH)
DYNAMIC = """#[version = "0.0.5"]
def @main(%x: Tensor[(?, ?), int32], %b: Tensor[(2), int64], %e: Tensor[(2), int64], %s: Tensor[(2), int64]) {
  dyn.strided_slice(%x, %b, %e, %s) }
def @sized(%x: Tensor[(?, ?), int32], %b: Tensor[(2), int64], %e: Tensor[(2), int64], %s: Tensor[(2), int64]) {
  dyn.strided_slice(%x, %b, %e, %s, slice_mode="size") }"""
STATIC = """#[version = "0.0.5"]
def @main(%x: Tensor[(?, 6), int32]) {{ strided_slice(%x, begin=[{}i64], end=[{}i64], strides=[{}i64]) }}"""
ARANGE = """#[version = "0.0.5"]
def @main(%a: {0}, %b: {0}, %c: {0}) {{ arange(%a, %b, %c, dtype="{0}") }}"""


@pytest.mark.parametrize("native", [True, False])
def test_slices_with_bounds_of_the_run(native: bool) -> None:
    vm = nvm.VirtualMachine(nvm.compile(nvm.relay.parse(DYNAMIC), native=native))
    for begin, end in itertools.product(ENDS, ENDS):
        for stride in (LOW, -2, 1, HIGH):
            b, e, s = np.array([begin, 0]), np.array([end, 6]), np.array([stride, 1])
            np.testing.assert_array_equal(vm.run(X, b, e, s), X[begin:end:stride])
        if begin >= 0:
            stop = begin + end if end >= 0 else None
            np.testing.assert_array_equal(vm.invoke("sized", X, b, e, s), X[begin:stop])


@pytest.mark.parametrize("stride", [LOW, HIGH])
def test_slices_with_bounds_of_the_program(stride: int) -> None:
    for begin, end in ((-1, 0), (LOW, HIGH), (HIGH, LOW)):
        mod = nvm.relay.parse(STATIC.format(begin, end, stride))
        with nvm.VirtualMachine(nvm.compile(mod, native=False)) as vm:
            for n in (5, 1, 0):
                np.testing.assert_array_equal(vm.run(X[:n]), X[:n][begin:end:stride])


@pytest.mark.parametrize(
    ("dtype", "start", "stop", "step"),
    [
        ("int64", LOW // 2, HIGH // 2, HIGH),
        ("int64", HIGH, 0, LOW),
        ("int64", 0, LOW, LOW),
        ("int64", HIGH - 3, HIGH, 2),
        ("int64", 5, LOW, 2),
        ("int64", 0, HIGH, 1),
        ("int64", LOW, HIGH, HIGH),
        ("uint64", 0, 2**64 - 1, 2**63),
        ("uint64", 9, 2**63, 2**63),
        ("uint64", 2**64 - 5, 2**64 - 1, 2),
        ("uint64", 2**64 - 1, 0, 1),
        ("uint8", 255, 0, 1),
    ],
)
def test_arange(dtype: str, start: int, stop: int, step: int) -> None:
    mod = nvm.relay.parse(ARANGE.format(dtype))
    args = [np.array(n, dtype) for n in (start, stop, step)]
    vm = nvm.VirtualMachine(nvm.compile(mod, native=False))
    distance = (stop - start) * (1 if step > 0 else -1)
    if distance > HIGH or (distance == HIGH and step == 1):
        with pytest.raises(DimOverflow):
            vm.run(*args)
        with pytest.raises(DimOverflow):
            evaluate(mod, args)
        return
    found = vm.run(*args).numpy()
    np.testing.assert_array_equal(found, evaluate(mod, args))
    assert len(found) == max(0, -(-distance // abs(step)))
