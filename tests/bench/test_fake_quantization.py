"""Fake-quantized networks as they are, and what FakeQuantizationToInteger makes of them: ms a call, one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.relay import nn, qnn
from nimblevm.relay.ir import Expr, Function
from nimblevm.tvm.relay import transform
from tests.bench.measure import nanoseconds, record

pytestmark = pytest.mark.bench
ROUNDS = 100
Rng = np.random.Generator


def weight(rng: Rng, *shape: int) -> Expr:
    """int8 with a scale for each output channel."""
    value = rng.integers(-127, 128, shape).astype("int8")
    scale = rng.uniform(0.001, 0.003, shape[0]).astype("float32")
    return qnn.dequantize(relay.const(value), relay.const(scale), 0, axis=0)


def again(body: Expr, scale: float) -> Expr:
    return qnn.dequantize(qnn.quantize(body, scale, 0, out_dtype="uint8"), scale, 0)


def bias(rng: Rng, size: int) -> Expr:
    return relay.const(rng.normal(0, 1, size).astype("float32"))


def perceptron(rng: Rng) -> tuple[Function, tuple[int, ...]]:
    shape = (64, 1024)
    x = relay.var("x", shape=shape, dtype="uint8")
    body: Expr = qnn.dequantize(x, 0.02, 128)
    for _ in range(3):
        rows = nn.bias_add(nn.dense(body, weight(rng, 1024, 1024)), bias(rng, 1024))
        body = again(nn.relu(rows), 0.02)
    return Function((x,), qnn.quantize(nn.dense(body, weight(rng, 10, 1024)), 0.1, 0)), shape


def convolutions(rng: Rng) -> tuple[Function, tuple[int, ...]]:
    shape = (1, 32, 56, 56)
    x = relay.var("x", shape=shape, dtype="uint8")
    body: Expr = qnn.dequantize(x, 0.02, 0)
    for _ in range(3):
        conv = nn.conv2d(
            body, weight(rng, 32, 32, 3, 3), padding=1, channels=32, kernel_size=(3, 3)
        )
        body = again(relay.clip(nn.bias_add(conv, bias(rng, 32)), 0.0, 6.0), 6 / 255)
    return Function((x,), qnn.quantize(nn.global_avg_pool2d(body), 0.02, 0)), shape


@pytest.mark.parametrize("kind", ["floats", "integers"])
@pytest.mark.parametrize("network", [perceptron, convolutions])
def test_network(
    benchmark: Any, network: Callable[[Rng], tuple[Function, tuple[int, ...]]], kind: str
) -> None:
    rng = np.random.default_rng(0)
    function, shape = network(rng)
    mod = relay.infer_type(relay.IRModule.from_expr(function))
    if kind == "integers":
        mod = transform.FakeQuantizationToInteger(hard_fail=True)(mod)
    vm = nvm.VirtualMachine(nvm.compile(mod), threads=1)
    data = rng.integers(0, 256, shape).astype("uint8")
    took = nanoseconds(benchmark, lambda: vm.run(data), ROUNDS)
    record(benchmark, f"fake-quantized {network.__name__}, {kind}, ms", "vm", took / 1e6, None)
