"""Builder functions of mathematics and statistics: TVM's names, argument order and defaults."""

from __future__ import annotations

from typing import Any as AnyValue

from nimblevm.relay import ir, op
from nimblevm.relay.builder import (
    Axes,
    add,
    exp,
    log,
    max,
    mean,
    ones,
    sqrt,
    squeeze,
    subtract,
    sum,
)
from nimblevm.relay.call import Operand, TupleWrapper, as_expr, call_op, fields_of, pair, plain


def log2(data: Operand) -> ir.Call:
    """Binary logarithm."""
    return call_op("log2", data)


def log10(data: Operand) -> ir.Call:
    """Decimal logarithm."""
    return call_op("log10", data)


def tan(data: Operand) -> ir.Call:
    """Tangent."""
    return call_op("tan", data)


def cos(data: Operand) -> ir.Call:
    """Cosine."""
    return call_op("cos", data)


def cosh(data: Operand) -> ir.Call:
    """Hyperbolic cosine."""
    return call_op("cosh", data)


def sin(data: Operand) -> ir.Call:
    """Sine."""
    return call_op("sin", data)


def sinh(data: Operand) -> ir.Call:
    """Hyperbolic sine."""
    return call_op("sinh", data)


def acos(data: Operand) -> ir.Call:
    """Arc cosine."""
    return call_op("acos", data)


def acosh(data: Operand) -> ir.Call:
    """Inverse hyperbolic cosine."""
    return call_op("acosh", data)


def asin(data: Operand) -> ir.Call:
    """Arc sine."""
    return call_op("asin", data)


def asinh(data: Operand) -> ir.Call:
    """Inverse hyperbolic sine."""
    return call_op("asinh", data)


def atan(data: Operand) -> ir.Call:
    """Arc tangent."""
    return call_op("atan", data)


def atanh(data: Operand) -> ir.Call:
    """Inverse hyperbolic tangent."""
    return call_op("atanh", data)


def erf(data: Operand) -> ir.Call:
    """The error function."""
    return call_op("erf", data)


def trunc(data: Operand) -> ir.Call:
    """data without its fraction."""
    return call_op("trunc", data)


def isnan(data: Operand) -> ir.Call:
    """Whether an element is NaN (bool)."""
    return call_op("isnan", data)


def isinf(data: Operand) -> ir.Call:
    """Whether an element is infinite (bool)."""
    return call_op("isinf", data)


def isfinite(data: Operand) -> ir.Call:
    """Whether an element is neither NaN nor infinite (bool)."""
    return call_op("isfinite", data)


def bitwise_not(data: Operand) -> ir.Call:
    """~data."""
    return call_op("bitwise_not", data)


def bitwise_and(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs & rhs, broadcast."""
    return call_op("bitwise_and", *pair(lhs, rhs))


def bitwise_or(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs | rhs, broadcast."""
    return call_op("bitwise_or", *pair(lhs, rhs))


def bitwise_xor(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs ^ rhs, broadcast."""
    return call_op("bitwise_xor", *pair(lhs, rhs))


def left_shift(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs << rhs, broadcast; the count is taken modulo the width."""
    return call_op("left_shift", *pair(lhs, rhs))


def right_shift(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs >> rhs, broadcast; the count is taken modulo the width."""
    return call_op("right_shift", *pair(lhs, rhs))


def cast_like(data: Operand, dtype_like: Operand) -> ir.Call:
    """Every element converted to the dtype of dtype_like."""
    return call_op("cast_like", data, dtype_like)


def reinterpret(data: Operand, dtype: str) -> ir.Call:
    """The bits of every element as another dtype of that width."""
    return call_op("reinterpret", data, attrs=op.cast.CastAttrs(dtype))


def ndarray_size(data: Operand, dtype: str = "int32") -> ir.Call:
    """The number of elements, rank 0."""
    return call_op("ndarray_size", data, attrs=op.shape_of.ShapeOfAttrs(dtype))


# --- statistics over axes ---------------------------------------------------------------------------


def _axes(axis: Axes) -> tuple[int, ...] | None:
    axis = plain(axis)
    if axis is None or isinstance(axis, int):
        return axis if axis is None else (axis,)
    return tuple(axis)


def _variance(
    data: ir.Expr, middle: ir.Expr, axis: Axes, keepdims: bool, exclude: bool, unbiased: bool
) -> ir.Call:
    attrs = op.variance.VarianceAttrs(_axes(axis), keepdims, exclude, unbiased)
    return call_op("variance", data, middle, attrs=attrs)


def variance(
    data: Operand,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: ir.Expr | None = None,
) -> ir.Call:
    """The mean square distance from the mean over axes; unbiased: divided by one less.

    with_mean: the mean if it is at hand, reduced axes kept with size 1.
    """
    data = as_expr(data)
    middle = mean(data, axis, keepdims=True, exclude=exclude) if with_mean is None else with_mean
    return _variance(data, middle, axis, keepdims, exclude, unbiased)


def std(
    data: Operand,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> ir.Call:
    """The square root of the variance."""
    return sqrt(variance(data, axis, keepdims, exclude, unbiased))


def mean_variance(
    data: Operand,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> TupleWrapper:
    """Mean and variance over axes."""
    data = as_expr(data)
    middle = mean(data, axis, keepdims=True, exclude=exclude)
    spread = _variance(data, middle, axis, keepdims, exclude, unbiased)
    if not keepdims:
        middle = mean(data, axis, keepdims, exclude)
    return TupleWrapper(ir.Tuple((middle, spread)), 2)


def mean_std(
    data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False
) -> TupleWrapper:
    """Mean and standard deviation over axes."""
    middle, spread = mean_variance(data, axis, keepdims, exclude)
    return TupleWrapper(ir.Tuple((middle, sqrt(spread))), 2)


def logsumexp(data: Operand, axis: Axes = None, keepdims: bool = False) -> ir.Call:
    """log(sum(exp(data))) over axes, without overflow; a row of -inf alone gives NaN, as in TVM."""
    data = as_expr(data)
    top = max(data, axis, keepdims=True)
    found = add(log(sum(exp(subtract(data, top)), axis, keepdims=True)), top)
    return found if keepdims else squeeze(found, axis)


def _scan(
    name: str, data: Operand, axis: int | None, dtype: str | None, exclusive: bool | None
) -> ir.Call:
    return call_op(name, data, attrs=op.scan.ScanopAttrs(axis, dtype or "", bool(exclusive)))


def cumsum(
    data: Operand, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> ir.Call:
    """Sums of all elements up to each one along an axis."""
    return _scan("cumsum", data, axis, dtype, exclusive)


def cumprod(
    data: Operand, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> ir.Call:
    """Products of all elements up to each one along an axis."""
    return _scan("cumprod", data, axis, dtype, exclusive)


def einsum(data: AnyValue, equation: str) -> ir.Call:
    """Sums of products by Einstein's convention; data is a tuple expression or a sequence of expressions."""
    return call_op("einsum", fields_of(data), attrs=op.einsum.EinsumAttrs(equation))


def fixed_point_multiply(data: Operand, multiplier: int, shift: int) -> ir.Call:
    """int32 data times multiplier * 2**(shift - 31), rounded."""
    attrs = op.fixed_point_multiply.FixedPointMultiplyAttrs(multiplier, shift)
    return call_op("fixed_point_multiply", data, attrs=attrs)


def stft(
    data: Operand,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Operand | None = None,
    normalized: bool = False,
    onesided: bool = True,
) -> ir.Call:
    """Fourier transforms of the frames of a signal; by default a fourth of a frame apart, with a window of ones."""
    attrs = op.fourier.StftAttrs(
        n_fft,
        n_fft // 4 if hop_length is None else hop_length,
        n_fft if win_length is None else win_length,
        normalized,
        onesided,
    )
    whole = ones((n_fft,), "int32") if window is None else window
    return call_op("stft", data, whole, attrs=attrs)


def dft(re_data: Operand, im_data: Operand, inverse: bool | None = False) -> TupleWrapper:
    """(real, imaginary) parts of the Fourier transform along the last axis; inverse=None means False."""
    attrs = op.fourier.DFTAttrs(bool(inverse))
    return TupleWrapper(call_op("dft", re_data, im_data, attrs=attrs), 2)


__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "cast_like", "cos", "cosh", "cumprod", "cumsum", "dft", "einsum", "erf",
    "isfinite", "isinf", "isnan", "left_shift", "log10", "log2", "logsumexp", "mean_std",
    "mean_variance", "ndarray_size", "reinterpret", "right_shift", "sin", "sinh", "std", "stft",
    "tan", "trunc", "variance",
]  # fmt: skip
