"""The operators of quantized tensors (qnn.*) as ones that have kernels.

Scales and zero points may be constants or values; what depends on constants alone is computed here, by the operators'
references: integers, and quotients of float64, which have one right result. relay/op/qnn_common.py has the arithmetic.
compiler/qnn_products.py has dense, convolutions and batch_matmul.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from nimblevm import dtypes
from nimblevm.compiler.qnn_products import PRODUCTS
from nimblevm.compiler.qnn_terms import Terms, equal_known, is_zero, same_scale
from nimblevm.relay.ir import Call, Constant, Expr, Tuple, TupleGetItem, is_known
from nimblevm.relay.op import qnn_pool, qnn_simulated, qnn_softmax, qnn_unary
from nimblevm.relay.op.qnn_common import FRACTION, LEAST, MOST, factor, fixed_point
from nimblevm.relay.types import TupleType

Parameters = tuple[Expr, Expr]
"""A scale and a zero point, shaped to be broadcast with their tensor."""


def _parameters(t: Terms, data: Expr, given: tuple[Expr, ...], axis: int) -> Parameters:
    scale, zero_point = (t.along(v, t.rank(data), axis) for v in given)
    return scale, zero_point


# --- from one scale to another ----------------------------------------------------------------------


def _factor(t: Terms, scale: Expr, out_scale: Expr) -> tuple[Expr, Expr]:
    """(m, e) of qnn_common.factor, int64."""
    if is_known(scale) and is_known(out_scale):
        known = factor(scale.data, out_scale.data)
        return Constant(known[0]), Constant(known[1])
    quotient = t("divide", t.cast(scale, "float64"), t.cast(out_scale, "float64"))
    # The bits of a NaN are not the same everywhere.
    positive = t("greater", quotient, t.number(0, "float64"))
    bits = t("where", positive, t("reinterpret", quotient, dtype="int64"), t.number(0))
    low = t("bitwise_and", bits, t.number(2**52 - 1))
    mantissa = t("bitwise_or", low, t.number(2**52))
    rounded = t("right_shift", t("add", mantissa, t.number(2**21)), t.number(22))
    carry = t("right_shift", rounded, t.number(FRACTION))
    high = t("subtract", t("right_shift", bits, t.number(52)), t.number(1022))
    exponent = t("add", high, carry)
    small = t("less", exponent, t.number(LEAST))
    fraction = t("where", small, t.number(0), t("right_shift", rounded, carry))
    bounded = t("minimum", t("maximum", exponent, t.number(LEAST)), t.number(MOST))
    return fraction, bounded


def _rescaled(t: Terms, data: Expr, scale: Expr, out_scale: Expr) -> Expr:
    """int32 `data` of one scale as numbers of another one, rounded: int64."""
    nearest = getattr(t.attrs, "rounding", "") == "TONEAREST"
    compute = getattr(t.attrs, "compute_dtype", "")
    if compute in ("float32", "float64"):
        ratio = t("divide", t.cast(scale, "float64"), t.cast(out_scale, "float64"))
        value = t("multiply", t.cast(data, compute), t.cast(ratio, compute))
        if nearest:
            whole = t("round", value)
        else:
            whole = t("floor", t("add", value, t.number(0.5, compute)))
        return t.cast(t.cast(whole, "int32"), "int64")
    wide = t.cast(data, "int64")
    if same_scale(scale, out_scale):
        return wide
    fraction, exponent = _factor(t, scale, out_scale)
    right = t("subtract", t.number(FRACTION), exponent)
    half = t("left_shift", t.number(1), t("subtract", right, t.number(1)))
    product = t("add", t("multiply", wide, fraction), half)
    if nearest:
        product = t("add", product, t("right_shift", wide, t.number(63)))  # -1 below 0
    return t("right_shift", product, right)


def _moved(t: Terms, data: Expr, parameters: Parameters, out_scale: Expr) -> Expr:
    """A quantized tensor with another scale and the zero point 0, int64."""
    scale, zero_point = parameters
    return _rescaled(t, t.shifted(data, zero_point), scale, out_scale)


def _placed(t: Terms, value: Expr, zero_point: Expr, dtype: str) -> Expr:
    """int64 numbers around a zero point, saturated."""
    if not is_zero(zero_point):
        value = t("add", value, t.cast(zero_point, "int64"))
    return _saturated(t, value, dtype)


def _saturated(t: Terms, value: Expr, dtype: str) -> Expr:
    info = np.iinfo(dtypes.dtype(dtype).numpy)
    return t.cast(t("clip", value, a_min=float(info.min), a_max=float(info.max)), dtype)


def _requantize(t: Terms) -> Expr:
    data, axis = t.args[0], t.attrs.axis
    given = _parameters(t, data, t.args[1:3], axis)
    scale, zero_point = _parameters(t, data, t.args[3:], axis)
    return _placed(t, _moved(t, data, given, scale), zero_point, t.attrs.out_dtype)


# --- real numbers -----------------------------------------------------------------------------------


def _quantized(t: Terms, data: Expr, parameters: Parameters, dtype: str) -> Expr:
    scale, zero_point = parameters
    value = t("divide", t.cast(data, "float32"), scale)
    if not is_zero(zero_point):
        value = t("add", value, t.cast(zero_point, "float32"))
    return t.cast(t("round", value), dtype)


def _dequantized(t: Terms, data: Expr, parameters: Parameters) -> Expr:
    scale, zero_point = parameters
    return t("multiply", t.cast(t.shifted(data, zero_point), "float32"), scale)


def _quantize(t: Terms) -> Expr:
    parameters = _parameters(t, t.args[0], t.args[1:], t.attrs.axis)
    return _quantized(t, t.args[0], parameters, t.attrs.out_dtype)


def _dequantize(t: Terms) -> Expr:
    parameters = _parameters(t, t.args[0], t.args[1:], t.attrs.axis)
    return t.cast(_dequantized(t, t.args[0], parameters), t.attrs.out_dtype)


def _limit(t: Terms, side: int) -> Expr:
    """The least (0) or greatest (1) number of the dtype that a code means."""
    first, second, third = (t.number(qnn_simulated.limits(c)[side], "float32") for c in (1, 2, 3))
    is_first, is_second = (t("equal", t.args[1], t.number(c, "int32")) for c in (1, 2))
    return t("where", is_first, first, t("where", is_second, second, third))


def _if_coded(t: Terms, value: Expr) -> Expr:
    """`value`, or data where the code means no dtype."""
    code = t.args[1]
    low, high = (
        t("greater", code, t.number(0, "int32")),
        t("less", code, t.number(4, "int32")),
    )
    return t("where", t("logical_and", low, high), value, t.args[0])


def _simulated_quantize(t: Terms) -> Expr:
    data = t.args[0]
    scale, zero_point = _parameters(t, data, t.args[2:], t.attrs.axis)
    value = t("round", t("divide", data, scale))
    value = t("add", value, t.cast(zero_point, "float32"))
    bounded = t("maximum", t("minimum", value, _limit(t, 1)), _limit(t, 0))
    return _if_coded(t, bounded)


def _simulated_dequantize(t: Terms) -> Expr:
    data = t.args[0]
    scale, zero_point = _parameters(t, data, t.args[2:], t.attrs.axis)
    value = t("subtract", data, t.cast(zero_point, "float32"))
    return _if_coded(t, t("multiply", value, scale))


# --- of two tensors, and of many --------------------------------------------------------------------


def _operands(t: Terms) -> tuple[tuple[Expr, Parameters], tuple[Expr, Parameters]]:
    lhs, rhs = t.args[:2]
    return (
        (lhs, _parameters(t, lhs, t.args[2:4], t.attrs.lhs_axis)),
        (rhs, _parameters(t, rhs, t.args[4:6], t.attrs.rhs_axis)),
    )


def _sum(t: Terms, name: str) -> Expr:
    scale, zero_point = t.args[6:]
    lhs, rhs = (_moved(t, *side, scale) for side in _operands(t))
    return _placed(t, t(name, lhs, rhs), zero_point, t.dtype(t.args[0]))


def _mul(t: Terms) -> Expr:
    (lhs, (lhs_scale, lhs_zero)), (rhs, (rhs_scale, rhs_zero)) = _operands(t)
    product = t("multiply", t.shifted(lhs, lhs_zero), t.shifted(rhs, rhs_zero))
    scale = t("multiply", lhs_scale, rhs_scale)
    return _placed(t, _rescaled(t, product, scale, t.args[6]), t.args[7], t.dtype(t.args[0]))


def _concatenate(t: Terms) -> Expr:
    data, scales, zeros, scale, zero_point = t.args
    dtype = t.dtype(_fields(t, data)[0])
    parts = [
        q
        if same_scale(s, scale) and equal_known(z, zero_point)
        else _placed(t, _moved(t, q, (s, z), scale), zero_point, dtype)
        for q, s, z in zip(*(_fields(t, e) for e in (data, scales, zeros)), strict=True)
    ]
    return t("concatenate", t.tuple(parts), axis=t.attrs.axis)


def _fields(t: Terms, value: Expr) -> tuple[Expr, ...]:
    if isinstance(value, Tuple):
        return value.fields
    type_ = value.checked_type
    fields = type_.fields if isinstance(type_, TupleType) else ()
    return tuple(TupleGetItem(value, i, checked_type=f) for i, f in enumerate(fields))


# --- functions --------------------------------------------------------------------------------------


def _function(t: Terms, name: str) -> Expr:
    """By a table where the parameters are constants, else for each element."""
    data, parameters = t.args[0], t.args[1:]
    dtype = t.dtype(data)
    if all(is_known(p) for p in parameters):
        arrays = tuple(p.data for p in parameters if is_known(p))
        every = np.arange(256, dtype="uint8").view(dtype)
        table = Constant(qnn_unary.mapped(name, every, arrays))
        return t("take", table, t("reinterpret", data, dtype="uint8"), axis=0)
    value = t.cast(_dequantized(t, data, (parameters[0], parameters[1])), "float64")
    if name == "hardswish":
        gate = t("clip", t("add", value, t.number(3, "float64")), a_min=0.0, a_max=6.0)
        value = t("divide", t("multiply", value, gate), t.number(6, "float64"))
    else:
        value = t(name, value)
    value = t.cast(value, "float32")
    return _quantized(t, value, (parameters[2], parameters[3]), dtype)


def _leaky_relu(t: Terms) -> Expr:
    data, scale, zero_point, out_scale, out_zero_point = t.args
    q = _placed(t, _moved(t, data, (scale, zero_point), out_scale), out_zero_point, "int32")
    alpha = t.attrs.alpha
    parts = []
    for value, number in ((q, alpha), (out_zero_point, 1 - alpha)):
        multiplier, shift = fixed_point(number)
        parts.append(t("fixed_point_multiply", value, multiplier=multiplier, shift=shift))
    below = t("less", t.cast(data, "int32"), zero_point)
    return _saturated(t, t("where", below, t("add", *parts), q), t.dtype(data))


def _softmax(t: Terms) -> Expr:
    """In int64; the zero point of data changes nothing. Divisors are 1 and more."""
    data, scale, _, out_scale, out_zero_point = t.args
    shape = t.type(data).shape
    if 0 in shape:  # max would refuse it
        return data
    axes = {"axis": (t.attrs.axis,), "keepdims": True}
    inverse = t.cast(t("round", t("divide", t.number(1, "float32"), scale)), "int32")
    unit = t("maximum", inverse, t.number(1, "int32"))
    wide = t.cast(data, "int32")
    whole = wide
    if not isinstance(shape[t.attrs.axis], int):  # of no elements max is an error, softmax is not
        place = t.attrs.axis % len(shape)
        width = tuple([(0, int(axis == place)) for axis in range(len(shape))])
        whole = t("nn.pad", wide, t.number(-(2**31), "int32"), pad_width=width)
    x = t("subtract", wide, t("max", whole, **axes))
    half, little = (t("right_shift", x, t.number(bits, "int32")) for bits in (1, 4))
    y = t("subtract", t("add", x, half), little)
    q = t("divide", t("negative", y), unit)
    rest = t("right_shift", t("add", y, t("multiply", q, unit)), t.number(1, "int32"))
    line, power = t.cast(t("add", rest, unit), "int64"), t.cast(q, "int64")
    over = t("subtract", t.number(qnn_softmax.BITS), power)
    under = t("subtract", power, t.number(qnn_softmax.BITS))
    raised = t("left_shift", line, t("maximum", over, t.number(0)))
    powers = t("right_shift", raised, t("minimum", t("maximum", under, t.number(0)), t.number(63)))
    total = t("maximum", t("sum", powers, **axes), t.number(1))  # 0 of an empty axis
    share = t("divide", t.number(1 << qnn_softmax.WHOLE), total)
    kept = t.number(qnn_softmax.WHOLE - qnn_softmax.KEPT)
    parts = t.cast(t("right_shift", t("multiply", share, powers), kept), "int32")
    one = t.number(2.0**-qnn_softmax.KEPT, "float32")
    return _placed(t, _rescaled(t, parts, one, out_scale), out_zero_point, t.dtype(data))


def _avg_pool2d(t: Terms) -> Expr:
    data, scale, zero_point, out_scale, out_zero_point = t.args
    moved = _moved(t, data, (scale, zero_point), out_scale)
    attrs = qnn_pool.plain_attrs(t.attrs)
    named = {name: getattr(attrs, name) for name in attrs.keys()}  # noqa: SIM118
    mean = t(qnn_pool.PLAIN, _placed(t, moved, out_zero_point, "int32"), **named)
    return _saturated(t, mean, t.dtype(data))


LOWERINGS: Mapping[str, Callable[[Terms], Expr]] = {
    "qnn.quantize": _quantize,
    "qnn.dequantize": _dequantize,
    "qnn.requantize": _requantize,
    "qnn.simulated_quantize": _simulated_quantize,
    "qnn.simulated_dequantize": _simulated_dequantize,
    "qnn.add": lambda t: _sum(t, "add"),
    "qnn.subtract": lambda t: _sum(t, "subtract"),
    "qnn.mul": _mul,
    "qnn.concatenate": _concatenate,
    "qnn.leaky_relu": _leaky_relu,
    "qnn.softmax": _softmax,
    "qnn.avg_pool2d": _avg_pool2d,
    **{f"qnn.{name}": lambda t, name=name: _function(t, name) for name in qnn_unary.NAMES},  # type: ignore[misc]
    **PRODUCTS,
}
"""What each operator becomes."""


def lower_qnn(call: Call, name: str) -> Expr:
    """The call by operators that have kernels, of the call's type."""
    terms = Terms(call)
    return terms.finished(LOWERINGS[name](terms))


__all__ = ["LOWERINGS", "lower_qnn"]
