"""Cases of quantized tensors: scales and zero points as scalars and as vectors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from nimblevm.relay.op import (
    batch_matmul,
    dense,
    qnn_binary,
    qnn_dense_pack,
    qnn_pool,
    qnn_quantize,
    qnn_simulated,
    qnn_softmax,
    qnn_unary,
)
from nimblevm.relay.op.qnn_common import COMPUTE_DTYPES, QUANTIZED, ROUNDINGS, UNSET
from tests.relay.op.cases_windows import conv_case, pool_case
from tests.relay.op.draw import SIZES, Case, Source, array, flag, operands, pick, shape


def integers(source: Source, dims: tuple[int, ...], dtype: str) -> np.ndarray:
    """Anywhere in the range of bytes; of wider dtypes as sums of products are."""
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    info = np.iinfo(dtype)
    most = 2 ** pick(source, (7, 15, 24))
    return np.asarray(rng.integers(max(info.min, -most), min(info.max, most) + 1, dims)).astype(
        dtype
    )


def scale(source: Source, dims: tuple[int, ...] = ()) -> np.ndarray:
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    exponent = pick(source, (0, 0, -3, 3, -8))
    return np.asarray(2.0**exponent * rng.uniform(0.5, 2, dims)).astype("float32")


def zero_point(source: Source, dims: tuple[int, ...] = ()) -> np.ndarray:
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    made = np.asarray(rng.integers(-100, 100, dims)).astype("int32")
    return made if flag(source) else np.zeros_like(made)


def pair(source: Source, size: int | None) -> tuple[np.ndarray, np.ndarray]:
    """A scale and a zero point, each a scalar or, where there is an axis, perhaps of its size."""
    dims = [(size,) if size is not None and flag(source) else () for _ in range(2)]
    return scale(source, dims[0]), zero_point(source, dims[1])


def _axis(source: Source, dims: tuple[int, ...]) -> tuple[int, int | None]:
    """An axis and its size; of a scalar the default and None."""
    if not dims:
        return -1, None
    axis = source.integer(-len(dims), len(dims) - 1)
    return axis, dims[axis]


def _modes(source: Source) -> dict[str, str]:
    return {
        "rounding": pick(source, (UNSET, *ROUNDINGS)),
        "compute_dtype": pick(source, (UNSET, *COMPUTE_DTYPES)),
    }


def _quantize(source: Source, dtype: str) -> Case:
    dims = shape(source)
    axis, size = _axis(source, dims)
    attrs = qnn_quantize.QuantizeAttrs(pick(source, QUANTIZED), axis)
    return Case((array(source, dims, dtype), *pair(source, size)), attrs)


def _dequantize(source: Source, dtype: str) -> Case:
    dims = shape(source)
    axis, size = _axis(source, dims)
    attrs = qnn_quantize.DequantizeAttrs(axis, "float32")
    return Case((integers(source, dims, dtype), *pair(source, size)), attrs)


def _requantize(source: Source, dtype: str) -> Case:
    dims = shape(source)
    axis, size = _axis(source, dims)
    attrs = qnn_quantize.RequantizeAttrs(axis, **_modes(source), out_dtype=pick(source, QUANTIZED))
    data = array(source, dims, dtype) if flag(source) else integers(source, dims, dtype)
    return Case((data, *pair(source, size), *pair(source, size)), attrs)


def _binary(source: Source, dtype: str) -> Case:
    shapes = operands(source, 2)
    lhs, rhs = reversed(shapes) if flag(source) else shapes
    (lhs_axis, lhs_size), (rhs_axis, rhs_size) = _axis(source, lhs), _axis(source, rhs)
    attrs = qnn_binary.BroadcastAttrs(lhs_axis, rhs_axis, **_modes(source))
    tensors = (integers(source, lhs, dtype), integers(source, rhs, dtype))
    scales = (*pair(source, lhs_size), *pair(source, rhs_size), *pair(source, None))
    return Case((*tensors, *scales), attrs)


def _concatenate(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    axis = source.integer(-len(dims), len(dims) - 1)
    parts, scales, zeros = [], [], []
    for _ in range(source.integer(1, 3)):
        size = list(dims)
        size[axis] = pick(source, SIZES)
        parts.append(integers(source, tuple(size), dtype))
        scales.append(scale(source))
        zeros.append(zero_point(source))
    attrs = qnn_binary.ConcatenateAttrs(axis, **_modes(source))
    if flag(source):
        return Case((tuple(parts), tuple(scales), tuple(zeros), scales[0], zeros[0]), attrs)
    return Case((tuple(parts), tuple(scales), tuple(zeros), *pair(source, None)), attrs)


def _unary(source: Source, dtype: str, attrs: Any = None) -> Case:
    data = integers(source, shape(source), dtype)
    return Case((data, *pair(source, None), *pair(source, None)), attrs)


def _leaky_relu(source: Source, dtype: str) -> Case:
    alpha = pick(source, (0.01, 0.5, 0.0, -0.3, 1.0, 1.7))
    return _unary(source, dtype, qnn_unary.LeakyReluAttrs(alpha, **_modes(source)))


def _softmax(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    axis = source.integer(-len(dims), len(dims) - 1)
    attrs = qnn_softmax.SoftmaxAttrs(axis, **_modes(source))
    return Case((integers(source, dims, dtype), *pair(source, None), *pair(source, None)), attrs)


def _avg_pool2d(source: Source, dtype: str) -> Case:
    plain = pool_case(source, dtype, "nn.avg_pool2d")
    names = {field: getattr(plain.attrs, field) for field in plain.attrs.keys()}  # noqa: SIM118
    attrs = qnn_pool.AvgPool2DAttrs(**names, **_modes(source))
    data = integers(source, plain.inputs[0].shape, dtype)
    return Case((data, *pair(source, None), *pair(source, None)), attrs)


def _simulated(source: Source, dtype: str) -> Case:
    dims = shape(source)
    axis, size = _axis(source, dims)
    code = np.asarray(source.integer(0, 3), "int32")
    attrs = qnn_simulated.SimulatedAttrs(axis)
    return Case((array(source, dims, dtype), code, *pair(source, size)), attrs)


def _with_parameters(
    source: Source, tensors: tuple[np.ndarray, ...], channels: int | None, attrs: Any
) -> Case:
    """Zero points of both operands, then scales; those of the weight perhaps by channel."""
    data_scale, data_zero = pair(source, None)
    weight_scale, weight_zero = pair(source, channels)
    return Case((*tensors, data_zero, weight_zero, data_scale, weight_scale), attrs)


def _dense(source: Source, dtype: str) -> Case:
    depth, units = pick(source, (0, 1, 3, 7, 33)), pick(source, (0, 1, 4, 17))
    data = integers(source, (*shape(source, 0, 2), depth), dtype)
    weight = integers(source, (units, depth), pick(source, ("int8", "uint8")))
    attrs = dense.DenseAttrs(units if flag(source) else None, pick(source, ("", "int32")))
    return _with_parameters(source, (data, weight), units, attrs)


def _dense_pack(source: Source, dtype: str) -> Case:
    columns, turns = pick(source, ((1, 1), (2, 4), (32, 4), (3, 1)))
    rows, depth = pick(source, (0, 1, 2)), pick(source, (0, 1, 3))
    data = integers(source, (*shape(source, 0, 2), depth * turns), dtype)
    plain = columns == turns == 1 and flag(source)
    dims = (rows, depth) if plain else (rows, depth, columns, turns)
    weight = integers(source, dims, pick(source, ("int8", "uint8")))
    layout = "NC" if plain else f"NC{columns}n{turns}c"
    units = rows * columns
    attrs = qnn_dense_pack.QnnDensePackAttrs(layout, units if flag(source) else None, "int32")
    return _with_parameters(source, (data, weight), units, attrs)


def _batch_matmul(source: Source, dtype: str) -> Case:
    m, k, n, batch = (pick(source, SIZES) for _ in range(4))
    ta, tb = flag(source), flag(source)
    first, second = pick(source, ((batch, batch), (1, batch), (batch, 1)))
    x = integers(source, (first, k, m) if ta else (first, m, k), dtype)
    other = pick(source, ("int8", "uint8"))
    y = integers(source, (second, n, k) if tb else (second, k, n), other)
    return _with_parameters(source, (x, y), None, batch_matmul.BatchMatmulAttrs("", ta, tb))


def _conv(source: Source, dtype: str, name: str) -> Case:
    plain = conv_case(source, dtype, name)
    data, weight = plain.inputs
    tensors = (
        integers(source, data.shape, dtype),
        integers(source, weight.shape, pick(source, ("int8", "uint8"))),
    )
    attrs = plain.attrs
    channels = weight.shape[attrs.kernel_layout.index("O")]
    if name.endswith("transpose"):
        channels *= attrs.groups
    names = {field: getattr(attrs, field) for field in attrs.keys()}  # noqa: SIM118
    return _with_parameters(
        source, tensors, channels, type(attrs)(**{**names, "out_dtype": "int32"})
    )


CASES: dict[str, Callable[[Source, str], Case]] = {
    "qnn.quantize": _quantize, "qnn.dequantize": _dequantize, "qnn.requantize": _requantize, "qnn.add": _binary,
    "qnn.subtract": _binary, "qnn.mul": _binary, "qnn.concatenate": _concatenate, "qnn.leaky_relu": _leaky_relu,
    "qnn.softmax": _softmax, "qnn.avg_pool2d": _avg_pool2d,
    "qnn.simulated_quantize": _simulated, "qnn.simulated_dequantize": _simulated, "qnn.dense": _dense,
    "qnn.batch_matmul": _batch_matmul, "qnn.contrib_dense_pack": _dense_pack,
    **{f"qnn.{name}": functools.partial(_conv, name=f"nn.{name}") for name in ("conv2d", "conv2d_transpose")},
    **{f"qnn.{name}": _unary for name in qnn_unary.NAMES},
}  # fmt: skip
