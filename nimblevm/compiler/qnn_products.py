"""Quantized products and convolutions as products of bytes and sums.

    sum (x - zx)(w - zw)  =  sum x w  -  zw * sum x  -  zx * sum (w - zw)

The first sum is the product of bytes with int32 sums that nn.dense and nn.conv2d have kernels for; the others vanish
where a zero point is 0, and the last one is a constant vector where weights and zero points are. int32 wraps, so that
the equation holds whatever overflows. Padding of a convolution is written out where it is not with zeros, so that all
windows have the same weights; for a transposed one, whose sums have different numbers of terms, the last sum is a
convolution of ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nimblevm.compiler.qnn_terms import Terms, is_zero
from nimblevm.relay.ir import Constant, Expr, is_known
from nimblevm.relay.op.qnn_common import shifted
from nimblevm.relay.op.qnn_dense_pack import dense_attrs
from nimblevm.relay.op.qnn_products import ROWS as RECORDS
from nimblevm.relay.op.qnn_products import channel_axis, plain_attrs
from nimblevm.relay.op.windows import padding_pairs


def _less(t: Terms, total: Expr, zero_point: Expr, terms: Expr) -> Expr:
    """total - zero_point * terms"""
    return t("subtract", total, t("multiply", terms, zero_point))


def _weight_sums(
    t: Terms, weight: Expr, zero_point: Expr, axes: tuple[int, ...], keepdims: bool = False
) -> Expr:
    """Sums of weight - zero_point, int32: a constant of constants, however large they are."""
    if is_known(weight) and is_known(zero_point):
        plain = shifted(weight.data, zero_point.data)
        return Constant(np.asarray(plain.sum(axes, "int32", keepdims=keepdims)), span=t.call.span)
    return t("sum", t.shifted(weight, zero_point), axis=axes, keepdims=keepdims)


def _named(attrs: Any) -> dict[str, Any]:
    return {f.name: getattr(attrs, f.name) for f in dataclasses.fields(attrs)}


def _dense(t: Terms) -> Expr:
    return _product(t, t.args[1], plain_attrs(t.attrs))


def _dense_pack(t: Terms) -> Expr:
    weight = t.args[1]
    if t.rank(weight) == 4:
        rows = t("transpose", weight, axes=(0, 2, 1, 3))
        weight = t("reshape", rows, newshape=(-3, -3))  # axes two by two
    return _product(t, weight, dense_attrs())


def _product(t: Terms, weight: Expr, attrs: Any) -> Expr:
    """A dense product with a weight (U, K) in the place of the call's."""
    data, _, data_zero, weight_zero = t.args[:4]
    total = t("nn.dense", data, weight, **_named(attrs))
    if not is_zero(weight_zero):
        rows = t("sum", t.cast(data, "int32"), axis=(-1,), keepdims=True)
        total = _less(t, total, weight_zero, rows)
    if not is_zero(data_zero):
        columns = _weight_sums(t, weight, t.along(weight_zero, 2, 0), (1,))
        total = _less(t, total, data_zero, columns)
    return total


def _batch_matmul(t: Terms) -> Expr:
    x, y, x_zero, y_zero = t.args[:4]
    attrs = plain_attrs(t.attrs)
    total = t("nn.batch_matmul", x, y, **_named(attrs))
    if not is_zero(y_zero):
        rows = t("sum", t.cast(x, "int32"), axis=(1 if attrs.transpose_a else 2,), keepdims=True)
        if attrs.transpose_a:
            rows = t("transpose", rows, axes=(0, 2, 1))
        total = _less(t, total, y_zero, rows)
    if not is_zero(x_zero):
        depth = 2 if attrs.transpose_b else 1
        columns = _weight_sums(t, y, y_zero, (depth,), keepdims=True)
        if attrs.transpose_b:
            columns = t("transpose", columns, axes=(0, 2, 1))
        total = _less(t, total, x_zero, columns)
    return total


def _along_channels(t: Terms, vector: Expr) -> Expr:
    """A vector of channels, or a scalar, for the result of a convolution."""
    layout = t.attrs.out_layout or t.attrs.data_layout
    return t.along(vector, len(layout), layout.index("C"))


def _conv2d(t: Terms) -> Expr:
    data, weight, data_zero, weight_zero = t.args[:4]
    attrs = plain_attrs(t.attrs)
    pairs = padding_pairs(attrs.padding, 2)
    if any(map(any, pairs)) and not is_zero(data_zero):
        pads = {"N": (0, 0), "C": (0, 0), "H": pairs[0], "W": pairs[1]}
        width = tuple(pads[letter] for letter in attrs.data_layout)
        data = t("nn.pad", data, data_zero, pad_width=width)
        attrs = dataclasses.replace(attrs, padding=(0, 0))
    total = t("nn.conv2d", data, weight, **_named(attrs))
    channels = channel_axis(RECORDS["qnn.conv2d"], attrs)
    if not is_zero(weight_zero):
        sums = _window_sums(t, data, weight, attrs, channels)
        total = _less(t, total, _along_channels(t, weight_zero), sums)
    if not is_zero(data_zero):
        others = tuple(axis for axis in range(4) if axis != channels)
        kernels = _weight_sums(t, weight, t.along(weight_zero, 4, channels), others)
        total = _less(t, total, data_zero, _along_channels(t, kernels))
    return total


def _window_sums(t: Terms, data: Expr, weight: Expr, attrs: Any, channels: int) -> Expr:
    """Sums of data over each window. Without groups all channels have the same ones."""
    size = t.type(weight).shape[channels]
    if attrs.groups == 1 and isinstance(size, int) and size > 0:
        begin, end = (0,), (1,)
        weight = t("strided_slice", weight, begin=begin, end=end, axes=(channels,))
    ones = t("ones_like", weight)
    return t("nn.conv2d", data, ones, **_named(dataclasses.replace(attrs, channels=None)))


def _conv2d_transpose(t: Terms) -> Expr:
    data, weight, data_zero, weight_zero = t.args[:4]
    attrs = plain_attrs(t.attrs)
    along = _along_channels(t, weight_zero)

    def product(inputs: Expr) -> Expr:
        """The convolution with weight - weight_zero."""
        total = t("nn.conv2d_transpose", inputs, weight, **_named(attrs))
        if is_zero(weight_zero):
            return total
        ones = t("ones_like", weight)
        return _less(t, total, along, t("nn.conv2d_transpose", inputs, ones, **_named(attrs)))

    total = product(data)
    return total if is_zero(data_zero) else _less(t, total, data_zero, product(_ones(t, data)))


def _ones(t: Terms, data: Expr) -> Expr:
    """Ones for data: for one image where that is known to be enough."""
    type_, batch = t.type(data), t.attrs.data_layout.index("N")
    sizes = [1 if axis == batch else size for axis, size in enumerate(type_.shape)]
    if all(isinstance(size, int) for size in sizes):
        return t("ones", shape=tuple(sizes), dtype=type_.dtype)
    return t("ones_like", data)


PRODUCTS: Mapping[str, Callable[[Terms], Expr]] = {
    "qnn.dense": _dense,
    "qnn.contrib_dense_pack": _dense_pack,
    "qnn.batch_matmul": _batch_matmul,
    "qnn.conv2d": _conv2d,
    "qnn.conv2d_transpose": _conv2d_transpose,
}

__all__ = ["PRODUCTS"]
