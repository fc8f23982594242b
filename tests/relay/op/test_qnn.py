"""Quantized tensors against Python's own integers and floats, on every path: the oracle, constants and values.

The records' references share their arithmetic with the compiler's constants, so that what is expected here is written
another way: with Python's unbounded integers, math.frexp and fractions.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.canonicalize_qnn import canonicalize_qnn
from nimblevm.errors import InvalidInput, RelayTypeError, ShapeMismatch
from nimblevm.relay import ir
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.op import get
from tests.relay.op.test_records import compute

SCALES = [0.5, 1.0, 0.1, 3.7, 1e-3, 0.75, 2.0**-20, 123.0]
Value = Any


def f32(value: float) -> np.ndarray:
    return np.asarray(value, "float32")


def i32(value: Any) -> np.ndarray:
    return np.asarray(value, "int32")


def every_path(build: Any, *values: np.ndarray) -> np.ndarray:
    """What `build(*operands)` gives: of constants, of values, of values of unknown sizes; all agree. So does what the
    pass makes of it, an operator at a time, as runtimes run it that do not fuse.
    """
    found = []
    dims = [[relay.Any() for _ in v.shape] for v in values]
    for known in (True, False):
        for native in (True, False):
            params = [
                relay.var(f"p{i}", shape=v.shape if known else d, dtype=v.dtype.name)
                for i, (v, d) in enumerate(zip(values, dims, strict=True))
            ]
            # The first operand is a value, the others are constants if `known`.
            rest = [ir.Constant(v) for v in values[1:]] if known else params[1:]
            used = params[:1] if known else params
            function = ir.Function(used, build(params[0], *rest))
            with nvm.VirtualMachine(nvm.compile(function, native=native)) as vm:
                found.append(vm.run(*values[: len(used)]).numpy())
    mod = relay.infer_type(relay.IRModule.from_expr(ir.Function(params, build(*params))))
    found.append(np.asarray(evaluate(mod, values)))
    found.append(np.asarray(evaluate(canonicalize_qnn(mod, PassContext()), values)))
    for other in found[1:]:
        assert other.dtype == found[0].dtype
        np.testing.assert_array_equal(other, found[0])
    return found[0]


# --- the factor between two scales ----------------------------------------------------------------------


def multiplied(value: int, scale: float, out_scale: float, rounding: str) -> int:
    """TVM's fixed point: a multiplier of 31 bits by frexp, a shift, and one rounding."""
    significand, exponent = math.frexp(float(np.float32(scale)) / float(np.float32(out_scale)))
    multiplier = math.floor(significand * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, exponent = multiplier // 2, exponent + 1
    exact = Fraction(value * multiplier) * Fraction(2) ** (exponent - 31)
    if rounding == "UPWARD" or exact >= 0:
        return math.floor(exact + Fraction(1, 2))
    return -math.floor(-exact + Fraction(1, 2))


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("out_dtype", ["int8", "uint8", "int16", "int32"])
def test_requantize_is_exact(rounding: str, out_dtype: str) -> None:
    rng = np.random.default_rng(1)
    data = np.concatenate(
        [rng.integers(-(2**31), 2**31, 20), rng.integers(-600, 600, 80), [0, 1, -1, 2**31 - 1, -(2**31)]]
    ).astype("int32")  # fmt: skip
    info = np.iinfo(out_dtype)
    for scale, out_scale in itertools.product(SCALES[:6], SCALES[:4]):
        expected = [
            min(max(multiplied(int(v), scale, out_scale, rounding) + 3, info.min), info.max)
            for v in data
        ]
        attrs = relay.op.qnn_quantize.RequantizeAttrs(-1, rounding, "int64", out_dtype)
        found = compute(
            "qnn.requantize", data, f32(scale), i32(0), f32(out_scale), i32(3), attrs=attrs
        )
        assert found.tolist() == expected, (scale, out_scale)


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
def test_halves_are_rounded_as_said(rounding: str) -> None:
    data = i32([-5, -3, -1, 1, 3, 5])
    found = every_path(
        lambda x, s, z, t, y: relay.qnn.requantize(x, s, z, t, y, rounding=rounding),
        data, f32(0.5), i32(0), f32(1), i32(0),
    )  # fmt: skip
    expected = [-2, -1, 0, 1, 2, 3] if rounding == "UPWARD" else [-3, -2, -1, 1, 2, 3]
    assert found.tolist() == expected


@pytest.mark.parametrize("compute_dtype", ["int64", "float32", "float64"])
@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
def test_requantize_along_an_axis(rounding: str, compute_dtype: str) -> None:
    rng = np.random.default_rng(2)
    data = rng.integers(-3000, 3000, (2, 3, 4)).astype("int32")
    scale = rng.uniform(0.01, 0.2, 3).astype("float32")
    zero = rng.integers(-5, 5, 3).astype("int32")
    found = every_path(
        lambda x, s, z, t, y: relay.qnn.requantize(x, s, z, t, y, 1, rounding, compute_dtype, "uint8"),
        data, scale, zero, f32(0.7), i32(128),
    )  # fmt: skip
    for place in np.ndindex(*data.shape):
        channel = place[1]
        value = multiplied(
            int(data[place]) - int(zero[channel]), float(scale[channel]), 0.7, rounding
        )
        assert abs(int(found[place]) - min(max(value + 128, 0), 255)) <= (compute_dtype != "int64")


@pytest.mark.parametrize(
    ("scale", "out_scale"),
    [(0, 1), (1, 0), (0, 0), (-1, 1), (math.nan, 1), (1, math.inf), (math.inf, 1), (1e-38, 1e38), (3e38, 1e-38)],
)  # fmt: skip
def test_scales_that_are_none_have_one_result(scale: float, out_scale: float) -> None:
    for rounding in ("UPWARD", "TONEAREST"):
        every_path(
            lambda x, s, z, t, y, rounding=rounding: relay.qnn.requantize(x, s, z, t, y, rounding=rounding),
            i32([-(2**31), -7, -1, 0, 1, 7, 2**31 - 1]), f32(scale), i32(0), f32(out_scale), i32(1),
        )  # fmt: skip


def test_large_factors_saturate() -> None:
    data = i32([-(2**31), -1, 0, 1, 2**31 - 1])
    for dtype in ("int8", "int32"):
        found = every_path(
            lambda x, s, z, t, y, dtype=dtype: relay.qnn.requantize(x, s, z, t, y, out_dtype=dtype),
            data, f32(1e30), i32(0), f32(1e-8), i32(0),
        )  # fmt: skip
        info = np.iinfo(dtype)
        assert found[[0, 2, 4]].tolist() == [info.min, 0, info.max]


# --- real numbers ---------------------------------------------------------------------------------------


def test_quantize_rounds_away_and_saturates() -> None:
    data = np.asarray([0.25, -0.25, 0.75, 63.4, 500, -500, np.inf, -np.inf, np.nan, 0], "float32")
    for dtype in ("int8", "uint8"):
        found = every_path(
            lambda x, s, z, dtype=dtype: relay.qnn.quantize(x, s, z, out_dtype=dtype), data, f32(0.5), i32(0),
        )  # fmt: skip
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        assert found.tolist() == [1, max(-1, low), 2, min(127, high), high, low, high, low, 0, 0]


def test_there_and_back_along_an_axis() -> None:
    rng = np.random.default_rng(3)
    data = rng.normal(0, 2, (3, 4, 2)).astype("float32")
    scale, zero = rng.uniform(0.05, 0.1, 4).astype("float32"), i32([0, 3, -7, 1])
    found = every_path(
        lambda x, s, z: relay.qnn.dequantize(relay.qnn.quantize(x, s, z, 1), s, z, 1),
        data,
        scale,
        zero,
    )
    inside = (np.abs(data / scale.reshape(4, 1)) < 120).all()
    assert inside
    assert (np.abs(found - data) <= scale.reshape(4, 1) / 2 + 1e-6).all()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)])
def test_scalars_and_empty_tensors(shape: tuple[int, ...]) -> None:
    data = np.full(shape, 1.3, "float32")
    found = every_path(
        lambda x, s, z: relay.qnn.dequantize(relay.qnn.quantize(x, s, z), s, z),
        data,
        f32(0.1),
        i32(4),
    )
    np.testing.assert_allclose(found, data, atol=1e-6)


@pytest.mark.parametrize("code", ["disable", "int8", "uint8", "int32"])
def test_simulated_is_what_quantize_does(code: str) -> None:
    data = np.asarray([0.3, -7.7, 2.5, 1e9, -1e9], "float32")
    found = every_path(
        lambda x, s, z: relay.qnn.simulated_quantize(x, s, z, out_dtype=code),
        data,
        f32(0.1),
        i32(2),
    )
    back = every_path(
        lambda x, s, z: relay.qnn.simulated_dequantize(x, s, z, in_dtype=code),
        found,
        f32(0.1),
        i32(2),
    )
    if code == "disable":
        assert found.tolist() == back.tolist() == data.tolist()
        return
    attrs = relay.op.qnn_quantize.QuantizeAttrs(code)
    real = compute("qnn.quantize", data, f32(0.1), i32(2), attrs=attrs)
    np.testing.assert_allclose(found, real.astype("float32"))
    np.testing.assert_allclose(back, (real.astype("float32") - 2) * np.float32(0.1))


def test_the_dtype_of_a_simulation_may_be_a_value() -> None:
    data, code = relay.var("x", shape=(relay.Any(),)), relay.var("code", shape=(), dtype="int32")
    function = ir.Function([data, code], relay.qnn.simulated_quantize(data, 0.5, 0, out_dtype=code))
    with nvm.VirtualMachine(nvm.compile(function)) as vm:
        for number, expected in ((0, 200.3), (1, 127), (2, 255), (3, 401), (9, 200.3)):
            found = vm.run(np.asarray([200.3], "float32"), np.int32(number)).numpy()
            np.testing.assert_allclose(found, [expected], rtol=1e-6)


# --- arithmetic -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", ["add", "subtract", "mul"])
def test_arithmetic_is_that_of_the_real_numbers(name: str, dtype: str) -> None:
    rng = np.random.default_rng(4)
    info = np.iinfo(dtype)
    lhs, rhs = (rng.integers(info.min, info.max + 1, d).astype(dtype) for d in ((3, 1, 4), (2, 4)))
    given = (f32(0.1), i32(3), f32(0.05), i32(-2), f32(0.2), i32(11))
    found = every_path(lambda x, y, *p: getattr(relay.qnn, name)(x, y, *p), lhs, rhs, *given)
    real = [(q.astype(float) - z) * s for q, s, z in ((lhs, 0.1, 3), (rhs, 0.05, -2))]
    value = {"add": np.add, "subtract": np.subtract, "mul": np.multiply}[name](*real)
    expected = np.clip(value / 0.2 + 11, info.min, info.max)
    assert found.dtype == dtype
    # One rounding for a product, one for each side of a sum.
    assert np.abs(found - expected).max() <= (0.5001 if name == "mul" else 1.0001)


def test_add_rounds_each_side_as_tvm_does() -> None:
    lhs = np.arange(-128, 128, dtype="int8")
    given = (0.3, 4, 0.7, -9, 0.45, 6)
    found = compute(
        "qnn.add", lhs, lhs[::-1].copy(), *(f32(v) if i % 2 == 0 else i32(v) for i, v in enumerate(given)),
        attrs=relay.op.qnn_binary.BroadcastAttrs(),
    )  # fmt: skip
    for value, other, result in zip(lhs.tolist(), lhs[::-1].tolist(), found.tolist(), strict=True):
        first = multiplied(value - 4, 0.3, 0.45, "UPWARD") + 6
        second = multiplied(other + 9, 0.7, 0.45, "UPWARD") + 6
        assert result == min(max(first + second - 6, -128), 127)


def test_scales_of_both_sides_along_axes() -> None:
    rng = np.random.default_rng(5)
    lhs, rhs = (rng.integers(-128, 128, d).astype("int8") for d in ((2, 3), (2, 3)))
    left, right = rng.uniform(0.1, 1, 2).astype("float32"), rng.uniform(0.1, 1, 3).astype("float32")
    found = every_path(
        lambda x, y, s, z, t, w, u, v: relay.qnn.mul(x, y, s, z, t, w, u, v, 0, 1),
        lhs, rhs, left, i32(1), right, i32([1, 2, 3]), f32(40), i32(0),
    )  # fmt: skip
    expected = (lhs - 1.0) * left[:, None] * (rhs - [1.0, 2.0, 3.0]) * right / 40
    assert np.abs(found - np.clip(expected, -128, 127)).max() <= 0.5001


def test_scalars_are_along_no_axis() -> None:
    """Whatever axis is said of them, as in TVM."""
    a = np.asarray([10, -20, 100], "int8")
    q = relay.qnn
    for name, build in {
        "add": lambda x, axis: q.add(x, x, 0.5, 0, 0.5, 0, 1.0, 1, axis, axis),
        "dequantize": lambda x, axis: q.dequantize(x, 0.5, 1, axis=axis),
        "quantize": lambda x, axis: q.quantize(relay.cast(x, "float32"), 2.0, 1, axis, "int8"),
        "requantize": lambda x, axis: q.requantize(x, 0.5, 0, 0.25, 0, axis, out_dtype="int8"),
    }.items():
        usual = every_path(lambda x, build=build: build(x, -1), a)
        for axis in (1, -2, 7):
            found = every_path(lambda x, build=build, axis=axis: build(x, axis), a)
            np.testing.assert_array_equal(found, usual, err_msg=name)


def test_concatenate_brings_fields_to_one_scale() -> None:
    a, b = np.asarray([[10, -20]], "int8"), np.asarray([[7, 127]], "int8")
    found = every_path(
        lambda x, y: relay.qnn.concatenate((x, y), (0.5, 0.25), (0, 2), 0.25, 2, axis=0), a, b
    )
    assert found.tolist() == [[22, -38], [7, 127]]


# --- products -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("zero", "weight_zero"), [(0, 0), (5, 0), (0, -3), (7, 9)])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_dense_and_batch_matmul(dtypes: tuple[str, str], zero: int, weight_zero: int) -> None:
    rng = np.random.default_rng(6)
    ranges = [np.iinfo(d) for d in dtypes]
    data, weight = (
        rng.integers(r.min, r.max + 1, d).astype(t)
        for r, d, t in zip(ranges, ((3, 40), (7, 40)), dtypes, strict=True)
    )
    exact = (data.astype("int64") - zero) @ (weight.astype("int64") - weight_zero).T
    given = (i32(zero), i32(weight_zero), f32(0.1), f32(0.2))
    found = every_path(
        lambda x, w, a, b, s, t: relay.qnn.dense(x, w, a, b, s, t, units=None), data, weight, *given
    )
    assert found.dtype == "int32"
    np.testing.assert_array_equal(found, exact)
    found = every_path(
        lambda x, w, *p: relay.qnn.batch_matmul(x, w, *p), data[None], weight[None], *given
    )
    np.testing.assert_array_equal(found, exact[None])


@pytest.mark.parametrize(("layout", "columns", "turns"), [("NC", 1, 1), ("NC32n4c", 32, 4), ("NC2n1c", 2, 1)])  # fmt: skip
@pytest.mark.parametrize("zeros", [0, [3]])
def test_weights_in_blocks(layout: str, columns: int, turns: int, zeros: Any) -> None:
    rng = np.random.default_rng(14)
    data = rng.integers(0, 256, (2, 3, 12)).astype("uint8")
    weight = rng.integers(-128, 128, (64, 12)).astype("int8")
    weight_zero = i32(np.repeat(zeros, 64) if zeros else zeros)
    exact = (data.astype("int64") - 7) @ (weight.astype("int64") - 3 * bool(zeros)).T
    blocks = weight
    if layout != "NC":
        blocks = weight.reshape(64 // columns, columns, 12 // turns, turns).transpose(0, 2, 1, 3)
    found = every_path(
        lambda x, w, a, b, s, t: relay.qnn.contrib_dense_pack(x, w, a, b, s, t, layout, 64),
        data, np.ascontiguousarray(blocks), i32(7), weight_zero, f32(0.1), f32(0.2),
    )  # fmt: skip
    assert found.dtype == "int32"
    np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize(
    ("layout", "shape", "units", "message"),
    [
        ("NC32n", (2, 3, 32, 4), None, 'weight_layout must be "NC" or such as "NC32n4c"'),
        ("NC0n4c", (2, 3, 32, 4), None, "weight_layout"),
        ("NC32n4c", (2, 12), None, "weight must have rank 4"),
        ("NC32n4c", (2, 3, 16, 4), None, "axis 2 of argument weight"),
        ("NC32n4c", (2, 4, 32, 4), None, "axis 2 of argument data"),
        ("NC32n4c", (2, 3, 32, 4), 33, "units must be a multiple of 32"),
        ("NC32n4c", (2, 3, 32, 4), 32, "axis 0 of argument weight"),
    ],
)
def test_blocks_that_do_not_fit(
    layout: str, shape: tuple[int, ...], units: int | None, message: str
) -> None:
    x = relay.var("x", shape=(2, 3, 12), dtype="uint8")
    w = relay.var("w", shape=shape, dtype="int8")
    call = relay.qnn.contrib_dense_pack(x, w, 0, 0, 1.0, 1.0, layout, units)
    with pytest.raises(RelayTypeError, match=message):
        relay.infer_type(relay.IRModule.from_expr(ir.Function([x, w], call)))


def test_zero_points_of_units() -> None:
    rng = np.random.default_rng(7)
    data = rng.integers(0, 256, (2, 5, 9)).astype("uint8")
    weight = rng.integers(-128, 128, (4, 9)).astype("int8")
    zeros, scales = i32([1, -2, 3, 0]), rng.uniform(0.1, 1, 4).astype("float32")
    found = every_path(
        lambda x, w, a, b, s, t: relay.qnn.dense(x, w, a, b, s, t, 4), data, weight, i32(128), zeros, f32(1), scales,
    )  # fmt: skip
    expected = (data.astype("int64") - 128) @ (weight.astype("int64") - zeros[:, None]).T
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [8, 300])
def test_sums_of_constant_weights_are_constants(size: int) -> None:
    """However large the weights are, and as int32 they are larger still."""
    weight = np.random.default_rng(10).integers(-128, 128, (size, size)).astype("int8")
    x = relay.var("x", shape=(relay.Any(), size), dtype="uint8")
    image = relay.var("image", shape=(1, size, relay.Any(), 3), dtype="uint8")
    dense = relay.qnn.dense(x, weight, 9, 0, 1.0, 1.0, size)
    kernel = weight.reshape(size, size, 1, 1)
    conv = relay.qnn.conv2d(image, kernel, 9, 0, 1.0, 1.0, (1, 1), size)
    exe = nvm.compile(ir.Function([x, image], ir.Tuple([dense, conv])), native=False)
    assert "sum" not in exe.disassemble()


def slow_convolution(data: np.ndarray, weight: np.ndarray, stride: int, groups: int) -> np.ndarray:
    """NCHW by four loops, of integers that are shifted and padded already."""
    channels, inputs, height, width = weight.shape
    rows = (data.shape[2] - height) // stride + 1
    columns = (data.shape[3] - width) // stride + 1
    out = np.zeros((data.shape[0], channels, rows, columns), "int64")
    for o, y, x in np.ndindex(channels, rows, columns):
        first = o // (channels // groups) * inputs
        window = data[:, first : first + inputs, y * stride :, x * stride :][:, :, :height, :width]
        out[:, o, y, x] = (window * weight[o]).sum((1, 2, 3))
    return out


@pytest.mark.parametrize(("zero", "weight_zero"), [(0, 0), (5, 0), (0, -3), (7, 9)])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_conv2d(layout: str, groups: int, zero: int, weight_zero: int) -> None:
    rng = np.random.default_rng(8)
    data = rng.integers(0, 256, (2, 4, 6, 5)).astype("uint8")
    weight = rng.integers(-128, 128, (8, 4 // groups, 3, 2)).astype("int8")
    whole = np.pad(data.astype("int64") - zero, ((0, 0), (0, 0), (1, 1), (2, 0)))
    expected = slow_convolution(whole, weight.astype("int64") - weight_zero, 2, groups)
    moved = data.transpose([0, *("NCHW".index(c) for c in layout[1:])])
    found = every_path(
        lambda x, w, a, b, s, t: relay.qnn.conv2d(
            x, w, a, b, s, t, kernel_size=(3, 2), channels=8, strides=2, padding=(1, 2, 1, 0), groups=groups, data_layout=layout,
        ),
        np.ascontiguousarray(moved), weight, i32(zero), i32(weight_zero), f32(1), f32(1),
    )  # fmt: skip
    np.testing.assert_array_equal(found.transpose([layout.index(c) for c in "NCHW"]), expected)


@pytest.mark.parametrize(("zero", "weight_zero"), [(0, 0), (5, 0), (0, -3), (7, 9)])
def test_conv2d_transpose(zero: int, weight_zero: int) -> None:
    rng = np.random.default_rng(9)
    data = rng.integers(0, 256, (2, 3, 3, 4)).astype("uint8")
    weight = rng.integers(-128, 128, (3, 2, 3, 3)).astype("int8")
    x, w = data.astype("int64") - zero, weight.astype("int64") - weight_zero
    whole = np.zeros((2, 2, 7, 9), "int64")
    for n, i, y, column in np.ndindex(*x.shape):
        whole[n, :, 2 * y : 2 * y + 3, 2 * column : 2 * column + 3] += x[n, i, y, column] * w[i]
    found = every_path(
        lambda x, w, a, b, s, t: relay.qnn.conv2d_transpose(x, w, a, b, s, t, strides=2, padding=1),
        data, weight, i32(zero), i32(weight_zero), f32(1), f32(1),
    )  # fmt: skip
    np.testing.assert_array_equal(found, whole[:, :, 1:-1, 1:-1])


# --- functions ------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, Any] = {
    "tanh": math.tanh, "exp": math.exp, "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "rsqrt": lambda x: 1 / math.sqrt(x) if x > 0 else math.inf if x == 0 else math.nan, "erf": math.erf, "abs": abs,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "hardswish": lambda x: x * min(max(x + 3, 0), 6) / 6,
    "log": lambda x: math.log(x) if x > 0 else -math.inf if x == 0 else math.nan,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_every_byte(name: str, dtype: str) -> None:
    data = np.arange(256, dtype="uint8").view(dtype)
    given = (f32(0.05), i32(7), f32(0.02), i32(-3))
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    expected = []
    for value in data.tolist():
        real = FUNCTIONS[name]((value - 7) * float(np.float32(0.05)))
        place = 0 if math.isnan(real) else real / float(np.float32(0.02)) - 3
        expected.append(min(max(place, low), high) if not math.isnan(real) else 0)
    operands = [
        relay.var(f"p{i}", shape=v.shape, dtype=v.dtype.name) for i, v in enumerate((data, *given))
    ]
    for rest in (operands[1:], [ir.Constant(v) for v in given]):
        used = operands if rest == operands[1:] else operands[:1]
        function = ir.Function(used, getattr(relay.qnn, name)(operands[0], *rest))
        with nvm.VirtualMachine(nvm.compile(function)) as vm:
            found = vm.run(*(data, *given)[: len(used)]).numpy()
        assert found.dtype == dtype
        assert np.abs(found - np.asarray(expected)).max() <= 0.51


def test_constant_parameters_make_a_table() -> None:
    x = relay.var("x", shape=(relay.Any(), 3), dtype="uint8")
    exe = nvm.compile(ir.Function([x], relay.qnn.sigmoid(x, 0.1, 128, 1 / 256, 0)))
    assert "take" in exe.disassemble()
    assert "exp" not in exe.disassemble()


@pytest.mark.parametrize("alpha", [0.01, 0.5, 0.0, -0.25, 1.0])
def test_leaky_relu(alpha: float) -> None:
    data = np.arange(-128, 128, dtype="int8")
    found = every_path(
        lambda x, s, z, t, y: relay.qnn.leaky_relu(x, alpha, s, z, t, y),
        data,
        f32(0.1),
        i32(5),
        f32(0.2),
        i32(-20),
    )
    real = (data.astype(float) - 5) * 0.1
    expected = np.where(real < 0, alpha * real, real) / 0.2 - 20
    assert np.abs(found - np.clip(expected, -128, 127)).max() <= 1.51


# --- the language ---------------------------------------------------------------------------------------


def test_text_is_tvm_s() -> None:
    text = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), int8]) {
  %0 = qnn.quantize(%x, 0.02f, 128, out_dtype="uint8", axis=1);
  %1 = qnn.conv2d(%0, %w, 128, 0, 0.02f, 0.1f, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3], out_dtype="int32");
  %2 = qnn.requantize(%1, 0.002f, 0, 0.05f, 0, axis=1, rounding="TONEAREST", out_dtype="int8");
  %3 = qnn.concatenate((%2, %2), (0.05f, 0.05f), (0, 0), 0.1f, 3, axis=1);
  qnn.dequantize(%3, 0.1f, 3)
}
"""
    mod = relay.parse(text)
    again = relay.parse(mod.astext())
    assert relay.structural_equal(mod, again)
    assert str(mod["main"].ret_type) == "Tensor[(?n, 8, 8, 8), float32]"


def test_config_says_how_to_round() -> None:
    q, x = relay.qnn, relay.var("x", shape=(2,), dtype="int8")
    assert q.requantize(x, 1.0, 0, 2.0, 0).attrs.rounding == "None"
    assert q.current_requantize_config().rounding == "UPWARD"
    with q.requantize_config(rounding="TONEAREST"):
        with q.requantize_config(compute_dtype="float32") as inner:
            assert q.current_requantize_config() is inner
            attrs = q.requantize(x, 1.0, 0, 2.0, 0).attrs
            assert (attrs.rounding, attrs.compute_dtype) == ("TONEAREST", "float32")
        assert q.add(x, x, 1.0, 0, 1.0, 0, 2.0, 0).attrs.rounding == "TONEAREST"
        assert q.requantize(x, 1.0, 0, 2.0, 0, rounding="UPWARD").attrs.rounding == "UPWARD"
    assert q.add(x, x, 1.0, 0, 1.0, 0, 2.0, 0).attrs.rounding == "None"
    for wrong in ({"rounding": "UP"}, {"compute_dtype": "int8"}, {"round": "UPWARD"}):
        with pytest.raises(InvalidInput):
            q.requantize_config(**wrong)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda q, x: q.quantize(x, 1.0, 0), "argument 0 must be one of float16, float32"),
        (lambda q, x: q.requantize(x, x, 0, 1.0, 0), "argument 1 must be one of float32"),
        (lambda q, x: q.requantize(x, 1.0, 0, 1.0, 0, rounding="UP"), "rounding must be one of UPWARD, TONEAREST"),
        (lambda q, x: q.requantize(x, 1.0, 0, 1.0, 0, out_dtype="int64"), "out_dtype must be one of int8"),
        (lambda q, x: q.dequantize(x, np.ones((3,), "float32"), 0), "expected 3, got 4|expected 4, got 3"),
        (lambda q, x: q.dequantize(x, np.ones((4,), "float32"), 0, axis=2), "axis 2 is out of range for rank 2"),
        (lambda q, x: q.dense(x, x, 0, 0, 1.0, 1.0, None, out_dtype="int16"), "out_dtype must be int32"),
        (lambda q, x: q.tanh(x, np.ones((4,), "float32"), 0, 1.0, 0), "argument 1 must be a scalar"),
        (lambda q, x: q.leaky_relu(x, float("nan"), 1.0, 0, 1.0, 0), "alpha must be a number"),
        (lambda q, x: q.concatenate((x, x), (1.0,), (0, 0), 1.0, 0, 0), "argument 1 must be a tuple of 2 scalars"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(build: Any, message: str) -> None:
    x = relay.var("x", shape=(2, 4), dtype="int8")
    with pytest.raises(RelayTypeError, match=message):
        relay.infer_type(relay.IRModule.from_expr(ir.Function([x], build(relay.qnn, x))))


def test_a_vector_of_another_length_is_an_error_of_the_run() -> None:
    x = relay.var("x", shape=(2, relay.Any()), dtype="int8")
    scale = relay.var("s", shape=(relay.Any(),))
    function = ir.Function([x, scale], relay.qnn.dequantize(x, scale, 0))
    with nvm.VirtualMachine(nvm.compile(function)) as vm:
        assert vm.run(np.ones((2, 3), "int8"), np.ones((3,), "float32")).shape == (2, 3)
        with pytest.raises(ShapeMismatch, match=r"qnn\.dequantize"):
            vm.run(np.ones((2, 3), "int8"), np.ones((1,), "float32"))


def test_every_operator_of_the_dialect_is_built() -> None:
    names = {
        name.removeprefix("qnn.")
        for name in (op.name for op in relay.op.all_ops())
        if name.startswith("qnn.")
    }
    functions = set(relay.qnn.__all__) - {"current_requantize_config", "requantize_config"}
    assert functions == names
    assert get("qnn.add").args[:2] == ("lhs", "rhs")


# --- along an axis, and of windows ------------------------------------------------------------------------


def integer_softmax(row: list[int], scale: float, out_scale: float, out_zero: int) -> list[int]:
    """The paper's algorithm with Python's integers, whose shifts round down."""
    unit = max(1, math.floor(1 / scale + 0.5))
    powers = []
    for x in (value - max(row) for value in row):
        y = x + (x >> 1) - (x >> 4)
        q, back = divmod(-y, unit)
        powers.append(math.floor(Fraction((-back >> 1) + unit) * Fraction(2) ** (8 - q)))
    share = 2**30 // sum(powers)
    parts = [share * power >> 23 for power in powers]
    return [multiplied(part, 1 / 128, out_scale, "UPWARD") + out_zero for part in parts]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("scale", [2.0**-7, 2.0**-4, 0.1, 0.5, 3.0, 2.0**-20])
def test_softmax_is_the_paper_s(scale: float, dtype: str) -> None:
    rng = np.random.default_rng(11)
    info = np.iinfo(dtype)
    data = rng.integers(info.min, info.max + 1, (3, 2, 9)).astype(dtype)
    data[0] = info.max
    data[1, 0, :2] = info.min, info.max
    given = (f32(scale), i32(5), f32(1 / 100), i32(-20))
    for axis in (-1, 0):
        found = every_path(
            lambda x, s, z, t, y, axis=axis: relay.qnn.softmax(x, s, z, t, y, axis), data, *given
        )
        rows = np.moveaxis(data, axis, -1)
        exact = np.apply_along_axis(
            lambda row: integer_softmax(row.tolist(), scale, float(np.float32(1 / 100)), -20), -1, rows.astype("int64")
        )  # fmt: skip
        expected = np.moveaxis(np.clip(exact, info.min, info.max), -1, axis)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("scale", [0.02, 0.05, 0.1])
def test_softmax_is_near_that_of_real_numbers(scale: float) -> None:
    data = np.random.default_rng(12).integers(-128, 128, (50, 20)).astype("int8")
    found = every_path(
        lambda x, *p: relay.qnn.softmax(x, *p), data, f32(scale), i32(3), f32(1 / 256), i32(-128)
    )
    powers = np.exp((data.astype(float) - data.max(1, keepdims=True)) * scale)
    real = powers / powers.sum(1, keepdims=True)
    assert np.abs((found + 128.0) / 256 - real).max() <= 0.04


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 1e-38])
@pytest.mark.parametrize("shape", [(4,), (0,), (2, 0), (0, 3)])
def test_softmax_of_any_scale_and_size(scale: float, shape: tuple[int, ...]) -> None:
    data = np.full(shape, 7, "int8")
    given = (f32(scale), i32(0), f32(1 / 128), i32(0))
    every_path(lambda x, *p: relay.qnn.softmax(x, *p), data, *given)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("same", [True, False])
def test_avg_pool2d(same: bool, layout: str) -> None:
    rng = np.random.default_rng(13)
    data = rng.integers(0, 256, (2, 7, 6, 3)).astype("uint8")
    scale, zero, out_scale, out_zero = (0.1, 20, 0.1, 20) if same else (0.1, 20, 0.15, -3)
    whole = [
        int(v) if same else multiplied(int(v) - zero, scale, out_scale, "UPWARD") + out_zero
        for v in data.ravel()
    ]
    moved = np.asarray(whole).reshape(data.shape)
    expected = np.zeros((2, 3, 3, 3), "int64")
    for n, y, x, c in np.ndindex(*expected.shape):
        sums = int(moved[n, 2 * y : 2 * y + 3, 2 * x : 2 * x + 2, c].sum())
        expected[n, y, x, c] = int(Fraction(sums, 6))  # towards zero
    given = (f32(scale), i32(zero), f32(out_scale), i32(out_zero))
    order = [0, *("NHWC".index(letter) for letter in layout[1:])]
    found = every_path(
        lambda x, s, z, t, y: relay.qnn.avg_pool2d(
            x, s, z, t, y, (3, 2), (2, 2), 0, 1, layout=layout
        ),
        np.ascontiguousarray(data.transpose(order)),
        *given,
    )
    back = found.transpose([layout.index(letter) for letter in "NHWC"])
    np.testing.assert_array_equal(back, np.clip(expected, 0, 255))


def test_padding_of_avg_pool2d_is_the_number_zero() -> None:
    data = np.full((1, 2, 2, 1), 40, "int8")
    for counted, corner in ((True, 10), (False, 40)):
        found = every_path(
            lambda x, counted=counted: relay.qnn.avg_pool2d(x, 0.5, 8, 0.5, 8, (2, 2), (1, 1), (1, 1), (1, 1), False, counted),
            data,
        )  # fmt: skip
        assert found[0, :, :, 0].tolist()[0][0] == corner
        assert found[0, 1, 1, 0] == 40
