"""VTA's code generator on the simulator, without a VM: equal bit for bit to the operators' references."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimblevm import relay
from nimblevm.compiler.external import Region
from nimblevm.devices.vta import Stats
from nimblevm.devices.vta_isa import AluOp, Config, decode
from nimblevm.external.vta import backend, generate, tiles_of
from nimblevm.external.vta_layers import Step, layer_of
from nimblevm.external.vta_timing import cycles
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.infer_type import infer_expr
from nimblevm.relay.types import TensorType
from tests.external.vta_models import Build, conv2d, dense, expected, int8, region, requantized
from tests.external.vta_runner import Runner

SMALL = Config(log_uop_bytes=10, log_inp_bytes=9, log_wgt_bytes=13, log_acc_bytes=11)
"""256 micro-ops, 32 inputs, 32 weights, 32 accumulators."""


def run(region: Region, value: np.ndarray, config: Config) -> tuple[np.ndarray, list[Stats]]:
    """The result of a region for a value, whose leading dims may differ from the region's unknown ones."""
    blob = generate(region, config)
    assert blob is not None
    names = dict(zip(region.inputs[0].shape, value.shape, strict=True))

    def made(type_: TensorType) -> np.ndarray:
        return np.zeros([names.get(dim, dim) for dim in type_.shape], np.int8)

    operands = [value, *map(made, (*region.outputs, *blob.scratch))]
    return operands[1], Runner(blob.data, operands).run()


def zeros(type_: TensorType) -> np.ndarray:
    return np.zeros([d for d in type_.shape if isinstance(d, int)], np.int8)


def check(
    shape: tuple[int, ...], layers: list[Build], config: Config, seed: int, dynamic: bool = False
) -> list[Stats]:
    value = int8(np.random.default_rng(seed), *shape)
    declared: tuple[Dim, ...] = (DimVar("n"), *shape[1:]) if dynamic else shape
    got, stats = run(region(declared, *layers), value, config)
    assert np.array_equal(got, expected(value, *layers))
    return stats


sizes = st.sampled_from((1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 70))
configs = st.sampled_from(
    (Config(), SMALL, Config(0, 3, 3, 12, 10, 13, 12), Config(0, 5, 5, bytes_a_cycle=64))
)


@settings(max_examples=25, deadline=None)
@given(sizes | st.just(0), sizes, sizes, configs, st.booleans(), st.integers(0, 2**31))
def test_dense(m: int, k: int, n: int, config: Config, dynamic: bool, seed: int) -> None:
    generator = np.random.default_rng(seed)
    weight, bias = int8(generator, n, k), generator.integers(-(2**14), 2**14, n)
    check(
        (m, k),
        [lambda x: requantized(dense(x, weight), bias, -1, int(seed % 12))],
        config,
        seed,
        dynamic,
    )


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes of data and weight, and attributes."""
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)) | st.just((5, 5)))
    dilation = draw(st.sampled_from(((1, 1), (1, 1), (2, 1))))
    pads = draw(st.tuples(*[st.integers(0, 3)] * 4))
    least = [(kernel[i] - 1) * dilation[i] + 1 - pads[i] - pads[i + 2] for i in range(2)]
    size = [draw(st.integers(max(low, 1), max(low, 1) + 9)) for low in least]
    channels, out = draw(sizes), draw(sizes)
    layout = draw(st.sampled_from(("NCHW", "NHWC")))
    batch = draw(st.sampled_from((1, 1, 2, 3, 0)))
    data = (batch, channels, *size) if layout == "NCHW" else (batch, *size, channels)
    attrs: dict[str, Any] = {
        "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 2))), "padding": pads, "dilation": dilation,
        "data_layout": layout,
    }  # fmt: skip
    if draw(st.booleans()):
        return data, (*kernel, channels, out), attrs | {"kernel_layout": "HWIO"}
    return data, (out, channels, *kernel), attrs


@settings(max_examples=25, deadline=None)
@given(convolutions(), st.sampled_from((Config(), SMALL)), st.booleans(), st.integers(0, 2**31))
def test_conv2d(
    case: tuple[tuple[int, ...], tuple[int, ...], dict[str, object]],
    config: Config,
    dynamic: bool,
    seed: int,
) -> None:
    data, kernel, attrs = case
    generator = np.random.default_rng(seed)
    out = kernel[-1] if "kernel_layout" in attrs else kernel[0]
    weight, bias = int8(generator, *kernel), generator.integers(-(2**14), 2**14, out)
    axis = 1 if attrs["data_layout"] == "NCHW" else 3
    layers: list[Build] = [
        lambda x: requantized(conv2d(x, weight, **attrs), bias, axis, relu=bool(seed % 2))
    ]
    if region_fits(data, layers, config):
        check(data, layers, config, seed, dynamic)


def region_fits(shape: tuple[int, ...], layers: list[Build], config: Config) -> bool:
    """A window of many taps may be too large for the small scratchpads."""
    layer = layer_of(infer_expr(layers[0](relay.var("x", TensorType(shape, "int8")))))
    assert layer is not None
    fits = tiles_of(layer, config) is not None
    assert fits or config != Config()
    return fits


def test_a_chain_stays_in_blocks() -> None:
    """Two convolutions: one layout step in, one out; two dense layers of whole blocks: none."""
    generator = np.random.default_rng(1)
    first, second = int8(generator, 20, 3, 3, 3), int8(generator, 33, 20, 3, 3)
    bias = [generator.integers(-999, 999, n) for n in (20, 33)]
    layers: list[Build] = [
        lambda x: requantized(conv2d(x, first, padding=(1, 1)), bias[0], 1, relu=True),
        lambda x: requantized(conv2d(x, second, strides=(2, 2)), bias[1], 1),
    ]
    check((2, 3, 10, 9), layers, Config(), 2, dynamic=True)
    assert steps((2, 3, 10, 9), layers) == ["to blocks", "run", "run", "from blocks"]
    weights = [int8(generator, 32, 64), int8(generator, 16, 32)]
    pair: list[Build] = [
        lambda x: requantized(dense(x, weights[0]), np.zeros(32), -1),
        lambda x: requantized(dense(x, weights[1]), np.zeros(16), -1),
    ]
    assert steps((5, 64), pair) == ["run", "run"]
    check((5, 64), pair, Config(), 3)


def steps(shape: tuple[int, ...], layers: list[Build]) -> list[str]:
    blob = generate(region(shape, *layers), Config())
    assert blob is not None
    record = msgpack.unpackb(blob.data)
    return ["run" if s[0] else "to blocks" if s[-1] else "from blocks" for s in record["steps"]]


def test_layers_that_do_not_share_a_layout_are_separate() -> None:
    """A dense over the last axis of an image reads rows that a convolution does not leave in blocks of its own."""
    generator = np.random.default_rng(1)
    weight, second = int8(generator, 4, 3, 1, 1), int8(generator, 5, 8)
    layers: list[Build] = [
        lambda x: requantized(conv2d(x, weight), np.zeros(4), 1),
        lambda x: requantized(dense(x, second), np.zeros(5), -1),
    ]
    assert generate(region((1, 3, 8, 8), *layers), Config()) is None


WIDE = np.array([2**31 - 1, -(2**31), 1, -1, 40000], np.int32)
STEPS = {
    "nothing": lambda e: relay.cast(e, "int8"),
    "a bias that wraps": lambda e: relay.cast(relay.nn.bias_add(e, relay.const(WIDE), -1), "int8"),
    "add of a row": lambda e: relay.cast(relay.add(relay.const(WIDE.reshape(1, 5)), e), "int8"),
    "add of one number": lambda e: relay.cast(relay.add(e, relay.const(np.int32(100000))), "int8"),
    "shifts a channel": lambda e: relay.cast(
        relay.right_shift(e, relay.const(np.array([0, 1, 31, 32, 40], np.int32))), "int8"
    ),
    "wide bounds": lambda e: relay.cast(relay.right_shift(relay.clip(e, -99999, 70000), relay.const(np.int32(9))), "int8"),
    "bounds that cross": lambda e: relay.cast(relay.nn.relu(relay.clip(e, -9, -3)), "int8"),
    "bounds behind the cast": lambda e: relay.clip(relay.nn.relu(relay.cast(e, "int8")), 3, 100),
    "one bound behind the cast": lambda e: relay.maximum(relay.cast(relay.clip(e, -8, 90), "int8"), relay.const(np.int8(-5))),
    "many": lambda e: relay.cast(
        relay.minimum(relay.add(relay.nn.relu(relay.nn.bias_add(e, relay.const(WIDE), -1)), relay.const(np.int32(7))),
                      relay.const(np.int32(77))), "int8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_steps(name: str) -> None:
    """What may stand behind a product, at values where int32 wraps."""
    generator = np.random.default_rng(5)
    weight = int8(generator, 5, 40)
    check((6, 40), [lambda x: STEPS[name](dense(x, weight))], Config(), 7)


def test_bounds_are_made_one_pair() -> None:
    weight = np.ones((4, 4), np.int8)
    x = relay.var("x", TensorType((2, 4), "int8"))
    wide = relay.clip(relay.nn.relu(relay.clip(dense(x, weight), -100, 200)), -128, 127)
    layer = layer_of(infer_expr(relay.cast(wide, "int8")))
    assert layer is not None
    assert layer.steps == (Step(AluOp.MAX, 0), Step(AluOp.MIN, 127))


def refused(build: Build, *shape: int, dtype: str = "int8") -> bool:
    return layer_of(infer_expr(build(relay.var("x", TensorType(shape, dtype))))) is None


def test_what_is_no_layer() -> None:
    generator = np.random.default_rng(5)
    weight, image = int8(generator, 4, 4), int8(generator, 4, 4, 1, 1)
    assert refused(lambda x: dense(x, weight), 2, 4)  # int32 can't be stored
    assert refused(lambda x: relay.cast(dense(x, weight), "int16"), 2, 4)
    assert refused(
        lambda x: relay.cast(relay.nn.dense(x, relay.const(weight.astype(np.int32))), "int8"),
        2,
        4,
        dtype="int32",
    )
    assert refused(
        lambda x: relay.cast(relay.multiply(dense(x, weight), relay.const(np.int32(3))), "int8"),
        2,
        4,
    )
    assert refused(
        lambda x: relay.cast(relay.right_shift(relay.const(np.int32(3)), dense(x, weight)), "int8"),
        2,
        4,
    )
    assert refused(
        lambda x: relay.add(relay.cast(dense(x, weight), "int8"), relay.const(np.int8(3))), 2, 4
    )
    depthwise = int8(generator, 4, 1, 1, 1)
    assert refused(lambda x: relay.cast(conv2d(x, depthwise, groups=4), "int8"), 1, 4, 3, 3)
    assert refused(lambda x: relay.cast(conv2d(x, image, padding=(16, 16)), "int8"), 1, 4, 3, 3)
    bias = relay.const(np.arange(4, dtype=np.int32))
    assert refused(
        lambda x: relay.cast(relay.add(conv2d(x, image), bias), "int8"), 1, 4, 4, 4
    )  # along the width
    unknown = relay.var("w", TensorType((4, 4), "int8"))
    assert refused(
        lambda x: relay.cast(relay.nn.dense(x, unknown, out_dtype="int32"), "int8"), 2, 4
    )


def test_dense_of_other_ranks() -> None:
    """A vector is one row; leading dims are counted together."""
    generator = np.random.default_rng(5)
    weight = int8(generator, 9, 20)
    layer: Build = lambda x: requantized(dense(x, weight), np.zeros(9), -1)  # noqa: E731
    for shape in ((20,), (3, 2, 20), (2, 0, 20)):
        check(shape, [layer], Config(), 4)


def test_configurations_that_layers_are_not_cut_for() -> None:
    for config in (Config(log_batch=1), Config(log_block_in=5)):
        with pytest.raises(ValueError, match="codegen needs log_batch 0"):
            backend(config)


def test_loads_overlap_products() -> None:
    """Two buffers: a large dense is bound by its products, not by the sum of loads and products."""
    generator = np.random.default_rng(5)
    weight = int8(generator, 256, 512)
    layer: list[Build] = [lambda x: requantized(dense(x, weight), np.zeros(256), -1)]
    (stats,) = check((64, 512), layer, Config(), 4)
    work = stats.gemm_cycles + stats.alu_cycles
    assert stats.cycles < 1.15 * work < 0.8 * (work + stats.load_cycles)


def test_one_program_for_any_number_of_rows() -> None:
    """The body is a template of so many rows; what remains at the end are fewer."""
    generator = np.random.default_rng(5)
    weight = int8(generator, 17, 30)
    layer: Build = lambda x: requantized(dense(x, weight), np.arange(17), -1)  # noqa: E731
    program = region((DimVar("n"), 30), layer)
    for rows in (1, 2, 63, 64, 65, 129, 200):
        value = int8(generator, rows, 30)
        got, _ = run(program, value, Config())
        assert np.array_equal(got, expected(value, layer))


def test_equal_regions_give_equal_bytes() -> None:
    def blob() -> bytes:
        generator = np.random.default_rng(5)
        weight = int8(generator, 40, 20, 3, 3)
        layer: Build = lambda x: requantized(conv2d(x, weight), np.zeros(40), 1)  # noqa: E731
        made = generate(region((1, 20, 9, 9), layer), Config())
        assert made is not None
        return made.data

    assert blob() == blob()


@settings(max_examples=15, deadline=None)
@given(sizes, sizes, sizes, configs, st.integers(0, 2**31))
def test_the_timing_is_the_simulator_s(m: int, k: int, n: int, config: Config, seed: int) -> None:
    """The code generator times streams without running them, to choose tiles: to the cycle."""
    generator = np.random.default_rng(seed)
    weight, image = int8(generator, n, k), int8(generator, n, k, 3, 3)
    cases: list[tuple[tuple[int, ...], Build]] = [
        ((m, k), lambda x: requantized(dense(x, weight), np.arange(n), -1)),
        ((1, k, 6, 7), lambda x: requantized(conv2d(x, image, padding=(1, 1)), np.arange(n), 1)),
    ]
    for shape, layer in cases:
        if not region_fits(shape, [layer], config):
            continue
        blob = generate(region(shape, layer), config)
        assert blob is not None
        operands = [zeros(t) for t in (TensorType(shape, "int8"), *region(shape, layer).outputs)]
        runner = Runner(blob.data, [*operands, *map(zeros, blob.scratch)])
        (stats,) = runner.run()
        assert stats.cycles == cycles(decode(runner.streams[0]), config)
