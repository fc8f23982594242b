"""Every workload on devices gives what it gives on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from tests.bytecode.models import models
from tests.devices.backend import needs_opencl

MODELS = models()
FAST = ("lstm",)


@needs_opencl
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in MODELS],
)
def test_opencl_agrees_with_the_cpu(name: str) -> None:
    model = MODELS[name]
    expected = model.run(nvm.compile(model.module(), params=model.params))
    exe = nvm.compile(model.module(), params=model.params, device="opencl")
    found = model.run(nvm.load(exe.to_bytes()))
    for got, wanted in zip(found, expected, strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)
