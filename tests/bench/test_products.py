"""Products with constant weights and a bias by numbers of rows, products of bytes and of floats, and a step over 4 MiB
of weights by how they are stored.

The table's unit is ps a multiply-add (a core that does 118 GFLOP/s needs 17), us of a product of bytes, and us a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import lstm
from tests.bench.measure import nanoseconds, record

pytestmark = pytest.mark.bench
SIZES = [(300, 2048), (512, 2048), (384, 1536), (384, 384)]
ROWS = [1, 2, 6, 12, 26, 48, 128]
STEPS = 26


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("depth", "units"), SIZES)
@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
def test_product(benchmark: Any, depth: int, units: int, rows: int, target: str) -> None:
    text = f"""#[version = "0.0.5"]
    def @main(%x: Tensor[(?m, {depth}), float32], %w: Tensor[({units}, {depth}), float32],
              %b: Tensor[({units}), float32]) {{ nn.dense(%x, %w) + %b }}"""
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal((units, depth)), "b": rng.standard_normal(units)}
    exe = nvm.compile(
        nvm.relay.parse(text), {k: v.astype("float32") for k, v in params.items()}, target
    )
    vm = nvm.VirtualMachine(exe)
    x = np.ones((rows, depth), "float32")
    took = nanoseconds(benchmark, lambda: vm.run(x), 100)
    name = f"{rows} x {depth} times {depth} x {units}, {target}, ps a multiply-add"
    record(benchmark, name, "vm", 1000 * took / (rows * depth * units), None)
    if took:
        benchmark.extra_info["gflop_s"] = round(2 * rows * depth * units / took, 1)


@pytest.mark.parametrize("target", ["native", "x86-64-v4"])
@pytest.mark.parametrize("kind", ["float32", "int8", "uint8"])
@pytest.mark.parametrize(
    "size", [(64, 256, 256), (128, 768, 3072), (128, 3072, 768), (1, 768, 3072)]
)
def test_product_of_bytes(
    benchmark: Any, size: tuple[int, int, int], kind: str, target: str
) -> None:
    """kind: of the data; the weight is int8, or float32 too."""
    rows, depth, units = size
    weight, out = (kind, "") if kind == "float32" else ("int8", ', out_dtype="int32"')
    text = f"""#[version = "0.0.5"]
    def @main(%x: Tensor[({rows}, {depth}), {kind}], %w: Tensor[({units}, {depth}), {weight}]) {{
      nn.dense(%x, %w{out}) }}"""
    rng = np.random.default_rng(0)
    w = rng.integers(-128, 128, (units, depth)).astype(weight)
    vm = nvm.VirtualMachine(nvm.compile(nvm.relay.parse(text), {"w": w}, target))
    x = rng.integers(0, 128, (rows, depth)).astype(kind)
    took = nanoseconds(benchmark, lambda: vm.run(x), 100)
    name = f"{rows} x {depth} times {depth} x {units}, {kind}, {target}, us"
    record(benchmark, name, "vm", took / 1000, None)


@pytest.mark.parametrize("weights", ["float32", "float16", "bfloat16"])
def test_weights_of_16_bits(benchmark: Any, weights: str) -> None:
    mod = nvm.relay.parse(lstm.text(300, 512))
    params = lstm.params(300, 512)
    vm = nvm.VirtualMachine(nvm.compile(mod, params, weights=weights))
    x = np.random.default_rng(0).standard_normal((STEPS, 300)).astype("float32")
    difference = float(np.abs(vm.run(x).numpy() - lstm.reference(x, **params)).max())
    took = nanoseconds(benchmark, lambda: vm.run(x), 100)
    record(benchmark, f"LSTM 300->512, weights in {weights}, a step", "vm", took / STEPS, None)
    benchmark.extra_info["largest_difference"] = difference
