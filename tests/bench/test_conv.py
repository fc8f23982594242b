"""The convolutions of resnet18 and its pools at batch 1, sizes of images unknown: GFLOP/s of floats, us of bytes, and ns
an output of pools.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.relay import nn
from tests.bench.measure import nanoseconds, record

pytestmark = pytest.mark.bench
ROUNDS = 30
# in-channels, size of the image, out-channels, kernel, stride
LAYERS = [
    (3, 224, 64, 7, 2), (64, 56, 64, 3, 1), (64, 56, 128, 3, 2), (64, 56, 128, 1, 2), (128, 28, 128, 3, 1),
    (128, 28, 256, 3, 2), (256, 14, 256, 3, 1), (256, 14, 512, 3, 2), (512, 7, 512, 3, 1),
]  # fmt: skip


def machine(params: list[relay.Var], body: relay.Expr) -> nvm.VirtualMachine:
    return nvm.VirtualMachine(nvm.compile(relay.IRModule.from_expr(relay.Function(params, body))))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("layer", LAYERS)
def test_convolution(benchmark: Any, layer: tuple[int, ...], layout: str) -> None:
    channels, size, outs, kernel, stride = layer
    n, h, w = (relay.Any() for _ in range(3))
    rng = np.random.default_rng(0)
    if layout == "NCHW":
        x = relay.var("x", shape=(n, channels, h, w))
        shape, weights = (1, channels, size, size), (outs, channels, kernel, kernel)
    else:
        x = relay.var("x", shape=(n, h, w, channels))
        shape, weights = (1, size, size, channels), (kernel, kernel, channels, outs)
    weight = relay.const(rng.standard_normal(weights).astype(np.float32))
    conv = nn.conv2d(
        x, weight, strides=stride, padding=kernel // 2, data_layout=layout,
        kernel_layout="OIHW" if layout == "NCHW" else "HWIO",
    )  # fmt: skip
    vm = machine([x], nn.relu(conv))
    data = rng.standard_normal(shape).astype(np.float32)
    took = nanoseconds(benchmark, lambda: vm.run(data), ROUNDS)
    out = (size - 1) // stride + 1
    flops = 2 * channels * outs * kernel * kernel * out * out
    name = f"conv {layout} {channels}->{outs} {kernel}x{kernel}/{stride} at {size}, GFLOP/s"
    record(benchmark, name, "vm", flops / took if took else 0.0, None)


@pytest.mark.parametrize("target", ["native", "x86-64-v4"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", ["float32", "int8", "uint8"])
@pytest.mark.parametrize(
    "layer", [*LAYERS, (256, 14, 256, 1, 1), (64, 7, 64, 1, 1), (8, 8, 8, 3, 1)]
)
def test_convolution_of_bytes(
    benchmark: Any, layer: tuple[int, ...], kind: str, layout: str, target: str
) -> None:
    """kind: of the data; the weight is int8, or float32 too."""
    channels, size, outs, kernel, stride = layer
    weight_type, out = (kind, kind) if kind == "float32" else ("int8", "int32")
    kernel_layout = "OIHW" if layout == "NCHW" else "HWIO"
    data: dict[str, Any] = {c: relay.Any() for c in "NHW"} | {"C": channels}
    sizes = {"N": 1, "C": channels, "H": size, "W": size}
    weights = {"O": outs, "I": channels, "H": kernel, "W": kernel}
    rng = np.random.default_rng(0)
    w = rng.integers(-128, 128, [weights[c] for c in kernel_layout]).astype(weight_type)
    x = relay.var("x", shape=tuple(data[c] for c in layout), dtype=kind)
    conv = nn.conv2d(
        x, relay.const(w), strides=stride, padding=kernel // 2, data_layout=layout, kernel_layout=kernel_layout,
        channels=outs, kernel_size=(kernel, kernel), out_dtype=out,
    )  # fmt: skip
    mod = relay.IRModule.from_expr(relay.Function([x], nn.relu(conv)))
    vm = nvm.VirtualMachine(nvm.compile(mod, target=target))
    image = rng.integers(0, 128, [sizes[c] for c in layout]).astype(kind)
    took = nanoseconds(benchmark, lambda: vm.run(image), ROUNDS)
    name = f"conv {layout} {channels}->{outs} {kernel}x{kernel}/{stride} at {size}, {kind}, {target}, us"
    record(benchmark, name, "vm", took / 1000, None)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pool(benchmark: Any, kind: str) -> None:
    x = relay.var("x", shape=(relay.Any(), 64, relay.Any(), relay.Any()))
    pool = nn.max_pool2d if kind == "max" else nn.avg_pool2d
    vm = machine([x], pool(x, (3, 3), (2, 2), padding=(1, 1)))
    data = np.random.default_rng(0).standard_normal((1, 64, 112, 112)).astype(np.float32)
    took = nanoseconds(benchmark, lambda: vm.run(data), ROUNDS)
    record(benchmark, f"{kind} pool 3x3/2, 64 at 112, an output", "vm", took / (64 * 56 * 56), None)
