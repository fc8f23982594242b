"""Kernels printed as OpenCL C, run on this machine's device (PoCL), against the operators' references."""

from __future__ import annotations

import pytest

from nimblevm.kernels.device_support import supports
from tests.kernels.opencl_runner import OnDevice, needs_opencl
from tests.kernels.test_compute import OPS, Sample, dtypes_of, samples

pytestmark = needs_opencl


def run(made: list[Sample]) -> None:
    on_device = [s for s in made if supports(s.program.lowered.kernel)]
    if on_device:
        runner = OnDevice(*(s.program.lowered for s in on_device))
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
