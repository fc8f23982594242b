"""Convolutions, pools, products and resizing: sizes as expressions, located errors, numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import RelayTypeError, ShapeMismatch
from nimblevm.relay import nn
from nimblevm.relay.op import einsum
from nimblevm.relay.op.registry import get
from tests.relay.op.draw import Case

HEADER = '#[version = "0.0.5"]\n'


def inferred(text: str) -> relay.Type:
    """The type of the result of @main."""
    found = relay.infer_type(relay.parse(HEADER + text)).function("main").body.checked_type
    assert found is not None
    return found


def compute(name: str, *inputs: Any, **attrs: Any) -> np.ndarray[Any, Any]:
    """An operator's reference, its relation asked first."""
    op = get(name)
    assert op.attrs is not None
    made = op.attrs(**attrs)
    return np.asarray(op.reference(inputs, made, Case(inputs, made).infer(op)))


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ("padding=[1, 1]", "(?n, 8, ?h, ?w)"),
        ("padding=[1, 1], strides=[2, 2]", "(?n, 8, (floordiv(?h - 1, 2) + 1), (floordiv(?w - 1, 2) + 1))"),
        ("padding=[0, 1, 2, 3]", "(?n, 8, ?h, ?w + 2)"),
        ("padding=[2], dilation=[2, 2]", "(?n, 8, ?h, ?w)"),
    ],
)  # fmt: skip
def test_sizes_of_convolutions_are_expressions(attrs: str, expected: str) -> None:
    text = (
        "def @main(%x: Tensor[(?n, 4, ?h, ?w), float32], %w: Tensor[(8, 4, 3, 3), float32])"
        " -> Tensor[{expected}, float32] {{ nn.conv2d(%x, %w, {attrs}) }}"
    )
    inferred(text.format(attrs=attrs, expected=expected))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("nn.conv2d(%x, %w, padding=[1, 1, 1])", "padding must be 1 or 2 or 4 integers >= 0"),
        ("nn.conv2d(%x, %w, padding=[-1])", "padding must be"),
        ("nn.conv2d(%x, %w, strides=[0, 1])", "strides must be 2 integers >= 1"),
        ("nn.conv2d(%x, %w, groups=3)", "does not split into 3 groups"),
        ("nn.conv2d(%x, %w, groups=2)", "expected 2, got 4"),
        ("nn.conv2d(%x, %w, channels=5)", "5"),
        ("nn.conv2d(%x, %w, dilation=[4, 4])", "does not fit the padded axis"),
        ('nn.conv2d(%x, %w, data_layout="NCHWc")', "data_layout must have the letters NCHW"),
        ("nn.conv2d_transpose(%x, %w, output_padding=[1, 1])", "must be less than the strides"),
        ("nn.max_pool2d(%x, pool_size=[9, 9])", "does not fit the padded axis"),
        ("nn.avg_pool2d(%x, pool_size=[2, 2, 2])", "pool_size must be 2 integers"),
        ("nn.adaptive_avg_pool2d(%x, output_size=[0, 1])", "output_size must be 2 integers >= 1"),
        ('image.resize2d(%x, size=[2, 2], method="bilinear")', "method must be one of"),
        (
            'image.resize2d(%x, size=[2, 2], coordinate_transformation_mode="tf_crop_and_resize")',
            "needs a roi of 4 numbers",
        ),
        ("nn.upsampling(%x, scale_h=0f64)", "scale_h must be greater than 0"),
        ("nn.matmul(%x, %w)", "tensor_b must have rank 2"),
        ('einsum((%x, %w), equation="abcd,abc->a")', "does not fit rank 4"),
        ('einsum((%x, %w), equation="abcd->a")', "1 terms for 2 operands"),
    ],
)
def test_wrong_attributes_are_located_errors(call: str, message: str) -> None:
    text = (
        "def @main(%x: Tensor[(1, 4, 7, 7), float32], %w: Tensor[(4, 4, 3, 3), float32]) {\n  "
        + call
        + "\n}"
    )
    with pytest.raises(RelayTypeError, match=message) as caught:
        inferred(text)
    assert ":3:" in str(caught.value)


def test_an_image_too_small_is_an_error_of_the_run() -> None:
    text = (
        "def @main(%x: Tensor[(?n, 1, ?h, ?w), float32], %w: Tensor[(1, 1, 3, 3), float32])"
        " { nn.conv2d(%x, %w) }"
    )
    weight = np.ones((1, 1, 3, 3), "float32")
    for native in (True, False):
        with (
            nvm.compile(relay.parse(HEADER + text), native=native) as exe,
            nvm.VirtualMachine(exe) as vm,
        ):
            with pytest.raises(ShapeMismatch):
                vm.run(np.ones((1, 1, 2, 5), "float32"), weight)
            assert vm.run(np.ones((1, 1, 3, 5), "float32"), weight).shape == (1, 1, 1, 3)


def test_what_follows_a_convolution_is_in_its_kernel() -> None:
    x, w, b = (relay.var(n, shape=s) for n, s in (
        ("x", (relay.Any(), 3, relay.Any(), 9)), ("w", (5, 3, 3, 3)), ("b", (5,)),
    ))  # fmt: skip
    conv = nn.conv2d(x, w, strides=2, padding=1)
    body = nn.relu(nn.bias_add(conv, b))
    mod = relay.IRModule.from_expr(relay.Function([x, w, b], body))
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype("float32") for s in ((2, 3, 7, 9), (5, 3, 3, 3), (5,))]
    plain = compute("nn.conv2d", *args[:2], strides=(2, 2), padding=(1, 1))
    expected = np.maximum(plain + args[2][:, None, None], 0)
    with nvm.compile(mod) as exe, nvm.VirtualMachine(exe) as vm:
        np.testing.assert_allclose(np.asarray(vm.run(*args)), expected, rtol=1e-4, atol=1e-5)


def test_padding_is_never_the_greatest_and_not_counted() -> None:
    data = np.full((1, 1, 2), -5, "float32")
    assert compute("nn.max_pool1d", data, pool_size=(3,), padding=(1,)).tolist() == [[[-5, -5]]]
    names: dict[str, Any] = {"pool_size": (3,), "padding": (1,)}
    assert compute("nn.avg_pool1d", data, **names).tolist() == [[[-5, -5]]]
    found = compute("nn.avg_pool1d", data, count_include_pad=True, **names)
    np.testing.assert_allclose(found, [[[-10 / 3, -10 / 3]]], rtol=1e-6)


def test_ceil_mode_adds_the_window_that_reaches_beyond() -> None:
    data = np.arange(6, dtype="float32").reshape(1, 1, 6)
    names: dict[str, Any] = {"pool_size": (3,), "strides": (2,)}
    assert compute("nn.max_pool1d", data, **names).tolist() == [[[2, 4]]]
    assert compute("nn.max_pool1d", data, ceil_mode=True, **names).tolist() == [[[2, 4, 5]]]
    assert compute("nn.avg_pool1d", data, ceil_mode=True, **names).tolist() == [[[1, 3, 4.5]]]


def test_integer_means_are_exact_and_cut_towards_zero() -> None:
    data = np.full((1, 1, 3), -100, "int8")
    data[0, 0, 2] = -99
    assert compute("nn.avg_pool1d", data, pool_size=(3,)).tolist() == [[[-99]]]
    assert compute("nn.global_avg_pool1d", data).tolist() == [[[-99]]]


def test_adaptive_windows_overlap() -> None:
    data = np.arange(5, dtype="float32").reshape(1, 1, 5)
    assert compute("nn.adaptive_avg_pool1d", data, output_size=3).tolist() == [[[0.5, 2, 3.5]]]
    assert compute("nn.adaptive_max_pool1d", data, output_size=2).tolist() == [[[2, 4]]]


def test_places_of_resizing() -> None:
    data = np.asarray([[[0, 10]]], "float32")

    def run(size: int, mode: str, method: str = "linear", **more: Any) -> list[float]:
        found = compute(
            "image.resize1d", data, size=(size,), method=method, coordinate_transformation_mode=mode, **more
        )  # fmt: skip
        return found[0, 0].tolist()

    assert run(4, "half_pixel") == [0, 2.5, 7.5, 10]
    assert run(3, "align_corners") == [0, 5, 10]
    assert run(4, "asymmetric") == [0, 5, 10, 10]
    assert run(1, "pytorch_half_pixel") == [0]
    assert run(4, "asymmetric", "nearest_neighbor") == [0, 0, 10, 10]
    assert run(3, "align_corners", "nearest_neighbor") == [0, 10, 10]
    names: dict[str, Any] = {"roi": (0.0, 2.0), "extrapolation_value": -1.0}
    assert run(3, "tf_crop_and_resize", **names) == [0, 10, -1]
    assert compute("nn.upsampling", data[:, :, None], scale_w=1.5).shape == (1, 1, 1, 3)


def test_cubic_weights_sum_to_one() -> None:
    data = np.full((1, 1, 5), 3, "float32")
    for exclude in (0, 1):
        found = compute(
            "image.resize1d", data, size=(9,), method="cubic", cubic_exclude=exclude, cubic_alpha=-0.75
        )  # fmt: skip
        np.testing.assert_allclose(found, 3, rtol=1e-5)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("i->ii", "twice"),
        ("i->j", "in no operand"),
        ("...i->i", "ellipsis"),
        ("i?->i", "letters"),
        ("......", "letters"),
    ],
)
def test_equations_that_mean_nothing(equation: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        einsum.parse(equation)


def test_equations_without_a_result() -> None:
    assert einsum.parse("ij,jk").result == "ik"
    assert einsum.parse("ba").result == "ab"
    assert einsum.parse("...ii").result == "."


def test_unknown_sizes_under_an_ellipsis_are_checked() -> None:
    text = (
        "def @main(%a: Tensor[(?, 2), float32], %b: Tensor[(?, 2), float32])"
        ' { einsum((%a, %b), equation="...i,...i->...") }'
    )
    with nvm.compile(relay.parse(HEADER + text)) as exe, nvm.VirtualMachine(exe) as vm:
        three, one = np.ones((3, 2), "float32"), np.ones((1, 2), "float32")
        assert np.asarray(vm.run(three, one)).tolist() == [2, 2, 2]
        assert np.asarray(vm.run(one, three)).tolist() == [2, 2, 2]
        with pytest.raises(ShapeMismatch):
            vm.run(three, np.ones((2, 2), "float32"))


@pytest.mark.parametrize("is_multiply", [True, False])
@pytest.mark.parametrize(
    ("kernel", "most", "stride1", "stride2"), [(1, 1, 1, 1), (3, 4, 2, 2), (1, 0, 3, 1)]
)
def test_correlation_of_displaced_images(
    kernel: int, most: int, stride1: int, stride2: int, is_multiply: bool
) -> None:
    """Element by element as Relay defines it, with sizes that only the run knows."""
    rng = np.random.default_rng(13)
    first, second = rng.normal(size=(2, 2, 3, 7, 9)).astype("float32")
    sizes = (relay.DimVar("n"), 3, relay.DimVar("h"), relay.DimVar("w"))
    left_image, right_image = relay.var("a", shape=sizes), relay.var("b", shape=sizes)
    call = nn.correlation(
        left_image, right_image, kernel, most, stride1, stride2, (2, 1), is_multiply, "NCHW"
    )
    params = [left_image, right_image]
    with nvm.VirtualMachine(nvm.compile(relay.Function(params, call))) as vm:
        found = vm.run(first, second).numpy()
        with pytest.raises(nvm.NimbleError, match="w"):
            vm.run(first, second[..., :8].copy())
    p, q = (np.pad(v, ((0, 0), (0, 0), (2, 2), (1, 1))) for v in (first, second))
    border, reach = most + (kernel - 1) // 2, most // stride2
    rows, columns = ((size - 2 * border + stride1 - 1) // stride1 for size in p.shape[2:])
    across = 2 * reach + 1
    assert found.shape == (2, across**2, rows, columns)
    for n, d, y, x in np.ndindex(*found.shape):
        top, left = y * stride1 + most, x * stride1 + most
        down = top + (d // across - reach) * stride2
        right = left + (d % across - reach) * stride2
        a = p[n, :, top : top + kernel, left : left + kernel].astype("float64")
        b = q[n, :, down : down + kernel, right : right + kernel]
        wanted = (a * b if is_multiply else np.abs(a - b)).mean()
        np.testing.assert_allclose(found[n, d, y, x], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kernel_size": 2}, "kernel_size must be odd"),
        ({"layout": "NHWC"}, "layout must be NCHW"),
        ({"stride1": 0}, "stride1 must be 1 integers >= 1"),
        ({"max_displacement": 9}, "the window does not fit the padded axis"),
    ],
)
def test_correlation_refuses(changed: dict[str, Any], message: str) -> None:
    x = relay.var("x", shape=(1, 2, 8, 8))
    given = {
        "kernel_size": 1, "max_displacement": 1, "stride1": 1, "stride2": 1, "padding": 0, "is_multiply": True,
        "layout": "NCHW", **changed,
    }  # fmt: skip
    with pytest.raises(RelayTypeError, match=message):
        relay.infer_type(
            relay.IRModule.from_expr(relay.Function([x], nn.correlation(x, x, **given)))
        )
