"""relay.qnn: operators of quantized tensors, with TVM's argument order and defaults (there relay.qnn.op).

Scales and zero points are expressions or numbers of Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar, Token
from typing import Any

from nimblevm.errors import InvalidInput
from nimblevm.relay import ir, op
from nimblevm.relay.call import Operand, TupleWrapper, as_expr, call_op, constant, fields_of
from nimblevm.relay.nn_conv import Sizes
from nimblevm.relay.nn_conv import padding as pads
from nimblevm.relay.nn_conv import sizes as per_axis
from nimblevm.relay.op.qnn_common import COMPUTE_DTYPES, ROUNDINGS, UNSET

# --- how requantizing rounds ------------------------------------------------------------------------


class RequantizeConfig:
    """How calls that are built in its `with` requantize, where they say nothing of it themselves.

    rounding        "UPWARD" (a half goes up) or "TONEAREST" (half away from zero)
    compute_dtype   "int64" (a fraction of 31 bits), "float32" or "float64"
    """

    def __init__(self, rounding: str = "UPWARD", compute_dtype: str = "int64") -> None:
        for name, given, known in (
            ("rounding", rounding, ROUNDINGS),
            ("compute_dtype", compute_dtype, COMPUTE_DTYPES),
        ):
            if given not in known:
                raise InvalidInput(f"{name} must be one of {', '.join(known)}, not {given!r}")
        self.rounding = rounding
        self.compute_dtype = compute_dtype
        self._tokens: list[Token[RequantizeConfig | None]] = []

    def __enter__(self) -> RequantizeConfig:
        self._tokens.append(_CONFIG.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _CONFIG.reset(self._tokens.pop())

    def __repr__(self) -> str:
        return (
            f"requantize_config(rounding={self.rounding!r}, compute_dtype={self.compute_dtype!r})"
        )


_CONFIG: ContextVar[RequantizeConfig | None] = ContextVar("requantize_config", default=None)


def current_requantize_config() -> RequantizeConfig:
    """The innermost requantize_config that is entered, else the defaults."""
    return _CONFIG.get() or RequantizeConfig()


def requantize_config(**kwargs: Any) -> RequantizeConfig:
    """A context: `with requantize_config(rounding="TONEAREST"):`. What is not given is as outside."""
    outer = current_requantize_config()
    known = {"rounding": outer.rounding, "compute_dtype": outer.compute_dtype}
    for name in kwargs:
        if name not in known:
            raise InvalidInput(f"requantize_config takes {' and '.join(known)}, not {name!r}")
    return RequantizeConfig(**{**known, **kwargs})


def _modes(rounding: str = UNSET, compute_dtype: str = UNSET) -> tuple[str, str]:
    """What a call says, else the context; where there is none, too, the attributes keep their default."""
    config = _CONFIG.get()
    if config is None:
        return rounding, compute_dtype
    return (
        config.rounding if rounding == UNSET else rounding,
        config.compute_dtype if compute_dtype == UNSET else compute_dtype,
    )


# --- operands ---------------------------------------------------------------------------------------


def _scale(value: Operand) -> ir.Expr:
    return constant(value, "float32") if isinstance(value, int | float) else as_expr(value)


def _zero_point(value: Operand) -> ir.Expr:
    return constant(value, "int32") if isinstance(value, int | float) else as_expr(value)


def _pair(scale: Operand, zero_point: Operand) -> tuple[ir.Expr, ir.Expr]:
    return _scale(scale), _zero_point(zero_point)


# --- between real numbers and quantized ones --------------------------------------------------------


def requantize(
    data: Operand,
    input_scale: Operand,
    input_zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    axis: int = -1,
    rounding: str = UNSET,
    compute_dtype: str = UNSET,
    out_dtype: str = "int8",
) -> ir.Call:
    """A quantized tensor with another scale and zero point."""
    modes = _modes(rounding, compute_dtype)
    attrs = op.qnn_quantize.RequantizeAttrs(axis, *modes, out_dtype=out_dtype)
    given = (*_pair(input_scale, input_zero_point), *_pair(output_scale, output_zero_point))
    return call_op("qnn.requantize", data, *given, attrs=attrs)


def quantize(
    data: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    axis: int = -1,
    out_dtype: str = "int8",
) -> ir.Call:
    """Real numbers as a quantized tensor."""
    attrs = op.qnn_quantize.QuantizeAttrs(out_dtype, axis)
    return call_op("qnn.quantize", data, *_pair(output_scale, output_zero_point), attrs=attrs)


def dequantize(
    data: Operand,
    input_scale: Operand,
    input_zero_point: Operand,
    axis: int = -1,
    out_dtype: str = "float32",
) -> ir.Call:
    """The real numbers of a quantized tensor."""
    attrs = op.qnn_quantize.DequantizeAttrs(axis, out_dtype)
    return call_op("qnn.dequantize", data, *_pair(input_scale, input_zero_point), attrs=attrs)


def _code(dtype: Operand | str) -> Operand:
    if not isinstance(dtype, str):
        return _zero_point(dtype)
    codes = op.qnn_simulated.CODES
    if dtype not in codes:
        raise InvalidInput(f"the dtype must be one of {', '.join(codes)}, not {dtype!r}")
    return constant(codes[dtype], "int32")


def simulated_quantize(
    data: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    axis: int = -1,
    out_dtype: Operand | str = "int8",
) -> ir.Call:
    """quantize in floats; out_dtype is a name or an expression (0 disable, 1 int8, 2 uint8, 3 int32)."""
    attrs = op.qnn_simulated.SimulatedAttrs(axis)
    parameters = _pair(output_scale, output_zero_point)
    return call_op("qnn.simulated_quantize", data, _code(out_dtype), *parameters, attrs=attrs)


def simulated_dequantize(
    data: Operand,
    input_scale: Operand,
    input_zero_point: Operand,
    axis: int = -1,
    in_dtype: Operand | str = "int8",
) -> ir.Call:
    """dequantize in floats; in_dtype is a name or an expression (0 disable, 1 int8, 2 uint8, 3 int32)."""
    attrs = op.qnn_simulated.SimulatedAttrs(axis)
    parameters = _pair(input_scale, input_zero_point)
    return call_op("qnn.simulated_dequantize", data, _code(in_dtype), *parameters, attrs=attrs)


# --- layers -----------------------------------------------------------------------------------------


def dense(
    data: Operand,
    weight: Operand,
    input_zero_point: Operand,
    kernel_zero_point: Operand,
    input_scale: Operand,
    kernel_scale: Operand,
    units: int | None,
    out_dtype: str = "int32",
) -> ir.Call:
    """data times the transposed weight, int32 of the scale input_scale * kernel_scale."""
    attrs = op.dense.DenseAttrs(units, out_dtype)
    zeros = (_zero_point(input_zero_point), _zero_point(kernel_zero_point))
    scales = (_scale(input_scale), _scale(kernel_scale))
    return call_op("qnn.dense", data, weight, *zeros, *scales, attrs=attrs)


def contrib_dense_pack(
    data: Operand,
    weight: Operand,
    input_zero_point: Operand,
    kernel_zero_point: Operand,
    input_scale: Operand,
    kernel_scale: Operand,
    kernel_layout: str = "NC",
    units: int | None = None,
    out_dtype: str = "int32",
) -> ir.Call:
    """dense with a weight in blocks such as "NC32n4c"."""
    attrs = op.qnn_dense_pack.QnnDensePackAttrs(kernel_layout, units, out_dtype)
    zeros = (_zero_point(input_zero_point), _zero_point(kernel_zero_point))
    scales = (_scale(input_scale), _scale(kernel_scale))
    return call_op("qnn.contrib_dense_pack", data, weight, *zeros, *scales, attrs=attrs)


def batch_matmul(
    x: Operand,
    y: Operand,
    x_zero_point: Operand,
    y_zero_point: Operand,
    x_scale: Operand,
    y_scale: Operand,
    out_dtype: str = "int32",
) -> ir.Call:
    """x (B, M, K) times y (B, N, K), int32 of the scale x_scale * y_scale."""
    attrs = op.batch_matmul.BatchMatmulAttrs(out_dtype, transpose_b=True)
    zeros = (_zero_point(x_zero_point), _zero_point(y_zero_point))
    return call_op("qnn.batch_matmul", x, y, *zeros, _scale(x_scale), _scale(y_scale), attrs=attrs)


def conv2d(
    data: Operand,
    kernel: Operand,
    input_zero_point: Operand,
    kernel_zero_point: Operand,
    input_scale: Operand,
    kernel_scale: Operand,
    kernel_size: Sizes | None,
    channels: int | None,
    strides: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    dilation: Sizes = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "int32",
) -> ir.Call:
    """Sums of windows along two axes times a kernel, int32 of the scale input_scale * kernel_scale."""
    attrs = op.conv.ATTRS["nn.conv2d"](
        strides=per_axis(strides, 2), padding=pads(padding, 2), dilation=per_axis(dilation, 2), groups=groups,
        channels=channels, kernel_size=per_axis(kernel_size, 2), data_layout=data_layout,
        kernel_layout=kernel_layout, out_layout=out_layout, out_dtype=out_dtype,
    )  # fmt: skip
    zeros = (_zero_point(input_zero_point), _zero_point(kernel_zero_point))
    scales = (_scale(input_scale), _scale(kernel_scale))
    return call_op("qnn.conv2d", data, kernel, *zeros, *scales, attrs=attrs)


def conv2d_transpose(
    data: Operand,
    weight: Operand,
    input_zero_point: Operand,
    kernel_zero_point: Operand,
    input_scale: Operand,
    kernel_scale: Operand,
    strides: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    dilation: Sizes = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sizes | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Sizes = (0, 0),
    out_dtype: str = "int32",
) -> ir.Call:
    """Every element spreads the kernel over two axes; int32 of the scale input_scale * kernel_scale."""
    attrs = op.conv.ATTRS["nn.conv2d_transpose"](
        strides=per_axis(strides, 2), padding=pads(padding, 2), dilation=per_axis(dilation, 2), groups=groups,
        channels=channels, kernel_size=per_axis(kernel_size, 2), data_layout=data_layout,
        kernel_layout=kernel_layout, out_layout=out_layout, output_padding=per_axis(output_padding, 2),
        out_dtype=out_dtype,
    )  # fmt: skip
    zeros = (_zero_point(input_zero_point), _zero_point(kernel_zero_point))
    scales = (_scale(input_scale), _scale(kernel_scale))
    return call_op("qnn.conv2d_transpose", data, weight, *zeros, *scales, attrs=attrs)


# --- of two tensors, and of many --------------------------------------------------------------------


def _binary(
    name: str, tensors: tuple[Operand, Operand], *given: Operand, axes: tuple[int, int]
) -> ir.Call:
    attrs = op.qnn_binary.BroadcastAttrs(*axes, *_modes())
    pairs = (_pair(given[0], given[1]), _pair(given[2], given[3]), _pair(given[4], given[5]))
    return call_op(name, *tensors, *(e for pair in pairs for e in pair), attrs=attrs)


def add(
    lhs: Operand,
    rhs: Operand,
    lhs_scale: Operand,
    lhs_zero_point: Operand,
    rhs_scale: Operand,
    rhs_zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
) -> ir.Call:
    """The sum of quantized tensors that broadcast."""
    return _binary(
        "qnn.add", (lhs, rhs), lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point, output_scale, output_zero_point,
        axes=(lhs_axis, rhs_axis),
    )  # fmt: skip


def subtract(
    lhs: Operand,
    rhs: Operand,
    lhs_scale: Operand,
    lhs_zero_point: Operand,
    rhs_scale: Operand,
    rhs_zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
) -> ir.Call:
    """The difference of quantized tensors that broadcast."""
    return _binary(
        "qnn.subtract", (lhs, rhs), lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point, output_scale,
        output_zero_point, axes=(lhs_axis, rhs_axis),
    )  # fmt: skip


def mul(
    lhs: Operand,
    rhs: Operand,
    lhs_scale: Operand,
    lhs_zero_point: Operand,
    rhs_scale: Operand,
    rhs_zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
) -> ir.Call:
    """The product of quantized tensors that broadcast, element by element."""
    return _binary(
        "qnn.mul", (lhs, rhs), lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point, output_scale, output_zero_point,
        axes=(lhs_axis, rhs_axis),
    )  # fmt: skip


Many = ir.Expr | TupleWrapper | Sequence[Operand]


def concatenate(
    data: Many,
    input_scales: Many,
    input_zero_points: Many,
    output_scale: Operand,
    output_zero_point: Operand,
    axis: int,
) -> ir.Call:
    """Quantized tensors, each with a scale and a zero point, one after the other along an axis."""
    scales, zeros = (
        ir.Tuple(tuple(map(make, given))) if isinstance(given, Sequence) else as_expr(given)
        for make, given in ((_scale, input_scales), (_zero_point, input_zero_points))
    )
    attrs = op.qnn_binary.ConcatenateAttrs(axis, *_modes())
    given = _pair(output_scale, output_zero_point)
    return call_op("qnn.concatenate", fields_of(data), scales, zeros, *given, attrs=attrs)


# --- along an axis, and of windows ------------------------------------------------------------------


def softmax(
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    axis: int = -1,
) -> ir.Call:
    """Exponentials that sum to one along an axis, of a quantized tensor, in integers."""
    attrs = op.qnn_softmax.SoftmaxAttrs(axis, *_modes())
    given = (*_pair(scale, zero_point), *_pair(output_scale, output_zero_point))
    return call_op("qnn.softmax", x, *given, attrs=attrs)


def avg_pool2d(
    data: Operand,
    input_scale: Operand,
    input_zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    pool_size: Sizes,
    strides: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NHWC",
    out_layout: str = "",
) -> ir.Call:
    """The mean of each window along two axes, of a quantized tensor."""
    rounding, compute_dtype = _modes()
    attrs = op.qnn_pool.AvgPool2DAttrs(
        pool_size=per_axis(pool_size, 2), strides=per_axis(strides, 2), dilation=per_axis(dilation, 2),
        padding=pads(padding, 2), layout=layout, out_layout=out_layout, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, rounding=rounding, compute_dtype=compute_dtype,
    )  # fmt: skip
    given = (*_pair(input_scale, input_zero_point), *_pair(output_scale, output_zero_point))
    return call_op("qnn.avg_pool2d", data, *given, attrs=attrs)


# --- functions --------------------------------------------------------------------------------------


def leaky_relu(
    x: Operand,
    alpha: float,
    input_scale: Operand,
    input_zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
) -> ir.Call:
    """x, or alpha times x below 0."""
    attrs = op.qnn_unary.LeakyReluAttrs(alpha, *_modes())
    given = (*_pair(input_scale, input_zero_point), *_pair(output_scale, output_zero_point))
    return call_op("qnn.leaky_relu", x, *given, attrs=attrs)


def _function(name: str, x: Operand, *given: Operand) -> ir.Call:
    return call_op(name, x, *_pair(given[0], given[1]), *_pair(given[2], given[3]))


def tanh(
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
) -> ir.Call:
    """The hyperbolic tangent, of a quantized tensor."""
    return _function("qnn.tanh", x, scale, zero_point, output_scale, output_zero_point)


def exp(
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
) -> ir.Call:
    """e to the power of x, of a quantized tensor."""
    return _function("qnn.exp", x, scale, zero_point, output_scale, output_zero_point)


def sqrt(
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
) -> ir.Call:
    """The square root, of a quantized tensor."""
    return _function("qnn.sqrt", x, scale, zero_point, output_scale, output_zero_point)


def rsqrt(
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
) -> ir.Call:
    """1 by the square root, of a quantized tensor."""
    return _function("qnn.rsqrt", x, scale, zero_point, output_scale, output_zero_point)


def erf(
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
) -> ir.Call:
    """The error function, of a quantized tensor."""
    return _function("qnn.erf", x, scale, zero_point, output_scale, output_zero_point)


def abs(
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
) -> ir.Call:
    """The magnitude, of a quantized tensor."""
    return _function("qnn.abs", x, scale, zero_point, output_scale, output_zero_point)


def sigmoid(
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
) -> ir.Call:
    """1 / (1 + exp(-x)), of a quantized tensor."""
    return _function("qnn.sigmoid", x, scale, zero_point, output_scale, output_zero_point)


def hardswish(
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
) -> ir.Call:
    """x * min(max(x + 3, 0), 6) / 6, of a quantized tensor."""
    return _function("qnn.hardswish", x, scale, zero_point, output_scale, output_zero_point)


def log(
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
) -> ir.Call:
    """The natural logarithm, of a quantized tensor."""
    return _function("qnn.log", x, scale, zero_point, output_scale, output_zero_point)


__all__ = [
    "abs", "add", "avg_pool2d", "batch_matmul", "concatenate", "contrib_dense_pack", "conv2d", "conv2d_transpose",
    "current_requantize_config", "dense", "dequantize", "erf", "exp", "hardswish", "leaky_relu", "log", "mul",
    "quantize", "requantize", "requantize_config", "rsqrt", "sigmoid", "simulated_dequantize", "simulated_quantize",
    "softmax", "sqrt", "subtract", "tanh",
]  # fmt: skip
