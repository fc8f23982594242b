"""Products by a BLAS library and by our own kernels, in docs/performance.md."""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import nimblevm as nvm
from nimblevm import relay
from nimblevm.devices import blas

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(blas.find_library() is None, reason="scipy-openblas32 is not installed"),
]


@pytest.mark.parametrize("rows", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
@pytest.mark.parametrize(("depth", "units"), [(300, 512), (768, 768), (768, 3072)])
@pytest.mark.parametrize("external", ["", "blas"])
def test_dense(
    benchmark: BenchmarkFixture, external: str, depth: int, units: int, rows: int
) -> None:
    mod = relay.parse(f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, {depth}), float32], %w: Tensor[({units}, {depth}), float32], %b: Tensor[({units}), float32]) {{
  nn.relu(nn.dense(%x, %w) + %b)
}}""")
    params = {"w": np.ones((units, depth), np.float32), "b": np.ones(units, np.float32)}
    exe = nvm.compile(mod, params, external=external or ())
    vm, x = nvm.VirtualMachine(exe), np.ones((rows, depth), np.float32)
    benchmark(vm.run, x)
