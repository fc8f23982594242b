"""Integer forms of products, convolutions, means, and of functions of one tensor.

Products of bytes are int32 sums, whose scale is data's times weight's. Means are of widened numbers, so that what a
division cuts off means nothing and padding is the real 0.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeGuard

import numpy as np

from nimblevm import dtypes
from nimblevm.compiler.affine import (
    MOST,
    AffineType,
    Form,
    Known,
    Quantized,
    Refused,
    Site,
    bits_of,
)
from nimblevm.compiler.integer_sums import common, joined
from nimblevm.relay import dims
from nimblevm.relay.ir import Expr, is_known
from nimblevm.relay.op.common import BYTES
from nimblevm.relay.op.qnn_common import fixed_point
from nimblevm.relay.op.qnn_products import ROWS, channel_axis
from nimblevm.relay.op.windows import padding_pairs, per_axis

EXACT = 2.0**-12
"""A number that is so near to one of a quantized tensor, in steps, counts as that."""

UNKNOWN = 15
PARTIAL = ("sqrt", "rsqrt", "log")
"""Functions that have no value somewhere, which is the number 0 of a dtype."""

# --- products ---------------------------------------------------------------------------------------


def product(s: Site) -> Quantized:
    """nn.dense, nn.conv2d, nn.conv2d_transpose, nn.batch_matmul."""
    row = next(row for row in ROWS.values() if row.plain == s.name)
    data, weight = s.operand(0), s.operand(1)
    for form in (data, weight):
        if form.type.dtype not in BYTES:
            raise Refused(
                f"it multiplies {form.type.dtype}; quantize its operands to int8 or uint8"
            )
    if not data.type.is_scalar:
        raise Refused("the scales of its first operand are along an axis")
    attrs = s.attrs
    if not weight.type.is_scalar:
        if not row.by_channel or weight.type.axis != channel_axis(row, attrs):
            raise Refused(
                "the scales of its weight are along an axis that is not the result's channels"
            )
        if getattr(attrs, "groups", 1) != 1 and row.plain.endswith("transpose"):
            raise Refused("the scales of its weight are along the channels of one group")
    given = (data.type.zero_point, weight.type.zero_point, data.type.scale, weight.type.scale)
    named = {f.name: getattr(attrs, f.name) for f in dataclasses.fields(attrs)}
    value = s.result(row.name, data.value, weight.value, *given, **{**named, "out_dtype": "int32"})
    scale = s("multiply", data.type.scale, weight.type.scale)
    return Quantized(
        value, s.plain_type(scale, _channels(s, row.plain)), _bits(s, data, weight), fine=True
    )


def _channels(s: Site, plain: str) -> int:
    """The axis of the result's channels."""
    if "conv" not in plain:
        return len(s.shape) - 1
    return int((s.attrs.out_layout or s.attrs.data_layout).index("C"))


def _bits(s: Site, data: Quantized, weight: Quantized) -> int:
    """Of sums of at most so many products as the weight has elements for one channel."""
    shape = weight.shape
    if "kernel_layout" in s.attrs.keys():  # noqa: SIM118
        out = s.attrs.kernel_layout.index("O")
        shape = shape[:out] + shape[out + 1 :]
    elif s.name == "nn.dense":
        shape = shape[1:]
    else:
        shape = (data.shape[1 if s.attrs.transpose_a else 2],)
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) < len(shape):
        return MOST
    bits = data.bits + weight.bits + max(math.prod(sizes) - 1, 0).bit_length()
    return min(MOST, bits)


# --- means and sums over axes -----------------------------------------------------------------------


def pooled_mean(s: Site) -> Quantized:
    """nn.avg_pool2d and its kin."""
    form = s.operand()
    layout = s.attrs.layout
    if not form.type.is_scalar and (
        s.attrs.out_layout not in ("", layout) or layout.index("C") != form.type.axis
    ):
        form = s.flat(form)
    form = s.wide(form)
    return form.like(s.again([form.value], "int32"))


def _reduced(s: Site, form: Quantized, commutes: bool = False) -> tuple[Quantized, set[int], int]:
    """(form, the axes that are reduced, where its scales are in the result)"""
    rank = len(form.shape)
    named = {axis % rank for axis in s.attrs.axis} if s.attrs.axis else set(range(rank))
    axes = set(range(rank)) - named if s.attrs.axis and s.attrs.exclude else named
    if not form.type.is_scalar and form.type.axis in axes:
        form = s.flat(form, commutes)
    before = sum(axis < form.type.axis for axis in axes)
    return form, axes, form.type.axis - (0 if s.attrs.keepdims else before)


def mean(s: Site) -> Quantized:
    """mean over axes; of none 0. In int64, so that sums do not wrap."""
    form, axes, place = _reduced(s, s.operand())
    form = s.wide(form)
    data = s.cast(form.value, "int64")
    if all(dims.at_least(form.shape[axis], 1) for axis in axes):
        value = s.again([data], "int64")
    else:
        over = {"axis": tuple(sorted(axes)), "keepdims": s.attrs.keepdims}
        count = s("sum", s("ones_like", data), **over)
        value = s.result("divide", s("sum", data, **over), s("maximum", count, s.number(1)))
    type_ = dataclasses.replace(form.type, axis=place)
    return form.like(s.result("cast", value, dtype="int32"), type_)


def sum_over(s: Site) -> Quantized:
    """sum over axes, exact as long as it fits 32 bits; sizes that the run decides count as UNKNOWN bits together."""
    form, axes, place = _reduced(s, s.operand())
    sizes = [form.shape[axis] for axis in axes]
    known = [size for size in sizes if isinstance(size, int)]
    bits = form.bits + max(math.prod(known) - 1, 0).bit_length()
    if len(known) < len(sizes):
        bits += UNKNOWN
    if bits > MOST:
        raise Refused("its sum needs more than 31 bits; quantize its operand before")
    form = s.plain(form)
    type_ = dataclasses.replace(form.type, axis=place)
    return Quantized(s.again([form.value], "int32"), type_, bits, form.fine)


def greatest(s: Site) -> Quantized:
    """max and min over axes."""
    form, _, place = _reduced(s, s.operand(), commutes=True)
    type_ = dataclasses.replace(form.type, axis=place)
    return form.like(s.again([form.value], type_.dtype), type_)


def pooled_maximum(s: Site) -> Quantized:
    """nn.max_pool2d and its kin."""
    form = s.operand()
    layout = s.attrs.layout
    if s.attrs.out_layout not in ("", layout) or layout.index("C") != form.type.axis:
        form = s.flat(form, commutes=True)
    if _has_empty_windows(s.attrs):
        if s.wanted is None:
            raise Refused("a window of nothing but padding has no greatest number")
        form = s.moved(form, s.wanted)
    return form.like(s.again([form.value], form.type.dtype))


def _has_empty_windows(attrs: Any) -> bool:
    """Whether a window may hold nothing but padding, whose greatest element is the dtype's least."""
    if "pool_size" not in attrs.keys():  # noqa: SIM118
        return False
    count = len(attrs.layout) - 2
    sizes, dilations = per_axis(attrs.pool_size, count), per_axis(attrs.dilation, count)
    pads = padding_pairs(attrs.padding, count)
    reaches = [(size - 1) * dilation + 1 for size, dilation in zip(sizes, dilations, strict=True)]
    # A dilated window may have its elements on both sides of data, or one of ceil_mode all of them behind it.
    return attrs.ceil_mode or any(
        max(pair) >= reach or (any(pair) and dilation > 1)
        for pair, reach, dilation in zip(pads, reaches, dilations, strict=True)
    )


# --- functions of one tensor ------------------------------------------------------------------------


def relu(s: Site) -> Quantized:
    """nn.relu: the zero point at least."""
    form = s.operand()
    zero_point = s.cast(form.type.zero_point, form.type.dtype)
    least = s.along(zero_point, len(form.shape), form.type.axis)
    return form.like(s.result("maximum", form.value, least))


def leaky_relu(s: Site) -> Quantized:
    """nn.leaky_relu, widened."""
    alpha = s.attrs.alpha
    if not abs(alpha) <= 1:
        raise Refused("its alpha is more than 1")
    form = s.wide(s.operand())
    multiplier, shift = fixed_point(alpha)
    small = s("fixed_point_multiply", form.value, multiplier=multiplier, shift=shift)
    below = s("less", form.value, s.number(0, "int32"))
    return form.like(s.result("where", below, small, form.value))


def absolute(s: Site) -> Quantized:
    """abs: qnn.abs where it may be, else of the number without its zero point."""
    if s.wanted is not None and s.operand().type.dtype in BYTES and s.operand().type.is_scalar:
        return function(s)
    form = s.plain(s.operand())
    return form.like(s.again([form.value], "int32"))


def function(s: Site) -> Quantized:
    """exp, tanh and kin, of bytes: tables. The wanted type is the result's, up to its dtype."""
    form, to = s.operand(), s.wanted
    if to is None:
        raise Refused("what reads it does not say in which type the result is; quantize it")
    if form.type.dtype not in BYTES or not form.type.is_scalar:
        raise Refused("it takes int8 or uint8 of one scale; quantize its operand")
    if to.dtype not in BYTES:
        raise Refused(f"its result is {to.dtype}, not int8 or uint8")
    own, name = to, s.name
    if to.dtype != form.type.dtype:
        if name in PARTIAL:
            raise Refused("its operand and its result have two dtypes")
        away = s.number(128 if form.type.dtype == "uint8" else -128, "int32")
        own = AffineType(to.scale, s("add", to.zero_point, away), form.type.dtype)
    given = (form.type.scale, form.type.zero_point, own.scale, own.zero_point)
    named = {"axis": s.attrs.axis} if name == "nn.softmax" else {}
    value = s.result(f"qnn.{name.removeprefix('nn.')}", form.value, *given, **named)
    return Quantized(value, own, bits_of(own.dtype, own.zero_point))


# --- numbers among quantized ones -------------------------------------------------------------------


def _place(form: Quantized, number: float) -> float | None:
    """Where a real number lies among the integers; None where only the run knows."""
    scale, zero_point = form.type.scale, form.type.zero_point
    if not form.type.is_scalar or not is_known(scale) or not is_known(zero_point):
        return None
    return number / float(scale.data) + int(zero_point.data)


def clip(s: Site) -> Quantized:
    """clip. In its operand's type if the bounds are numbers of that."""
    form = s.operand()
    info = np.iinfo(dtypes.dtype(form.type.dtype).numpy)
    bounds = (s.attrs.a_min, s.attrs.a_max)
    low, high = (_place(form, bound) for bound in bounds)
    # A bound beyond the dtype's own bounds nothing.
    low = info.min if low is not None and low <= info.min else low
    high = info.max if high is not None and high >= info.max else high
    if _is_number(low, info) and _is_number(high, info):
        named = {"a_min": float(round(low)), "a_max": float(round(high))}
        return form.like(s.result("clip", form.value, **named))
    # Bounds that are infinite bound nothing.
    kept = [
        (name, b)
        for name, b in zip(("maximum", "minimum"), bounds, strict=True)
        if math.isfinite(b)
    ]
    sides = joined(s, [form, *(Known(s.number(bound, "float32")) for _, bound in kept)])
    value = sides[0].value
    for (name, _), side in zip(kept, sides[1:], strict=True):
        value = s.result(name, value, side.value)
    return sides[0].like(value)


def _is_number(place: float | None, info: Any) -> TypeGuard[float]:
    """Whether a place is known, and a number of a dtype."""
    if place is None or not info.min <= place <= info.max:
        return False
    return abs(place - round(place)) <= EXACT


def pad(s: Site) -> Quantized:
    """nn.pad. In its operand's type if the value is a number of that."""
    data, value = _padding(s, s.operand(), s.forms[1])
    return data.like(s.again([data.value, value], data.type.dtype))


def _padding(s: Site, data: Quantized, value: Form) -> tuple[Quantized, Expr]:
    """Data and the number that it is padded with."""
    reads = s.attrs.pad_mode == "constant"
    if not reads or (isinstance(value, Known) and float(value.data) == 0):
        data = s.flat(data, commutes=True)
        return data, s.cast(data.type.zero_point, data.type.dtype)
    if isinstance(value, Known) and data.type.dtype != "int32":
        place = _place(data, float(value.data))
        if _is_number(place, np.iinfo(dtypes.dtype(data.type.dtype).numpy)):
            return data, s.number(round(place), data.type.dtype)
    if s.wanted is not None or (isinstance(value, Quantized) and value.type.same(data.type)):
        data, of = joined(s, [s.flat(data, commutes=True), value])
    else:
        data, of = common(s, [data, value], flat=True)
    return dataclasses.replace(data, bits=max(data.bits, of.bits)), of.value


__all__ = [
    "absolute", "clip", "function", "greatest", "leaky_relu", "mean", "pad", "pooled_maximum", "pooled_mean", "product",
    "relu", "sum_over",
]  # fmt: skip
