"""Kernels printed as OpenCL C, run on this machine's device (PoCL), against the operators' references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nimblevm.kernels.device_support import DEVICE_CODE, supports
from nimblevm.kernels.loop_ir import For, If, Kernel, SetDim, Statement
from nimblevm.kernels.loop_ir_eval import KernelFault, evaluate
from tests.devices.backend import OnBackend, Session, needs_opencl
from tests.kernels.ir_random import Generator
from tests.kernels.test_compute import OPS, Sample, dtypes_of, samples

pytestmark = needs_opencl


def run(made: list[Sample]) -> None:
    on_device = [s for s in made if supports(s.program.lowered.kernel)]
    if on_device:
        with OnBackend("opencl", *(s.program.lowered for s in on_device)) as runner:
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


def _without_dims(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    found: list[Statement] = []
    for statement in body:
        match statement:
            case SetDim():
                continue
            case For(body=inside):
                found.append(replace(statement, body=_without_dims(inside)))
            case If(then=then, otherwise=otherwise):
                parts = (_without_dims(then), _without_dims(otherwise))
                found.append(replace(statement, then=parts[0], otherwise=parts[1]))
            case _:
                found.append(statement)
    return tuple(found)


def _same(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    if got.dtype.kind != "f":
        return bool((got == expected).all())
    nan = np.isnan(got) & np.isnan(expected)
    # min and max may give either zero
    return bool((nan | (got == expected)).all())


def compare_random(seeds: range) -> int:
    """Random kernels that do not fault, in one module; returns how many."""
    kernels: list[Kernel] = []
    calls: list[tuple[int, list[int], list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]] = []
    for seed in seeds:
        made = Generator(seed)
        kernel = made.kernel()
        kernel = replace(kernel, body=_without_dims(kernel.body), out_dims=0)
        arrays = made.arrays()
        expected = [array.copy() for array in arrays]
        dims = [made.m, made.n]
        try:
            evaluate(kernel, expected, dims)
        except KernelFault:
            continue
        pitches = [
            size
            for buffer, array in zip(kernel.buffers, arrays, strict=True)
            for axis, size in zip(buffer.axes, array.shape, strict=True)
            if axis.broadcast
        ]
        kernels.append(kernel)
        calls.append((seed, [*dims, *pitches], arrays, expected))
    session = Session("opencl", DEVICE_CODE["opencl"](list(enumerate(kernels))))
    for number, (seed, dims, arrays, expected) in enumerate(calls):
        assert session.run(number, arrays, dims, 2) == 0, session.message()
        for buffer, got, wanted in zip(kernels[number].buffers, arrays, expected, strict=True):
            assert _same(got, wanted), (seed, buffer, got, wanted)
    session.close()
    return len(kernels)


def test_random_kernels() -> None:
    assert compare_random(range(8)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 500, 50))
def test_many_random_kernels(first: int) -> None:
    assert compare_random(range(first, first + 50)) > 10
