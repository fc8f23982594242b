"""Products and convolutions of quantized tensors: int32 sums of what the operands stand for, but for their scales.

    qnn.dense(data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale)
        out = nn.dense(data - input_zero_point, weight - kernel_zero_point)              in int32, which wraps
    qnn.conv2d, qnn.conv2d_transpose    the same with nn.conv2d, nn.conv2d_transpose; a convolution's padding is
        input_zero_point (as a number of data's dtype, where it should be), which stands for the real 0
    qnn.batch_matmul(x, y, x_zero_point, y_zero_point, x_scale, y_scale)    the same with nn.batch_matmul

The result stands for real numbers with the zero point 0 and the scale input_scale * kernel_scale, which qnn.requantize
or qnn.dequantize brings elsewhere; the scales are not read here. data and weight: int8 or uint8, each its own. Zero
points (int32) and scales (float32) are scalars; kernel_zero_point and kernel_scale may be vectors of the result's
channels (of dense the units). Attrs: those of the operator in nn; out_dtype is int32, also if it is empty. The Python
function batch_matmul takes y as (B, N, K), as TVM's does: transpose_b. Source: Relay's qnn dialect.
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.batch_matmul import BatchMatmulAttrs
from nimblevm.relay.op.common import ACCUMULATED, BYTES, Array, require_same, tensor_of
from nimblevm.relay.op.conv import ATTRS
from nimblevm.relay.op.dense import DenseAttrs
from nimblevm.relay.op.qnn_common import check_scalar, shifted
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, get, register
from nimblevm.relay.op.windows import padding_pairs
from nimblevm.relay.types import TensorType, Type

ARGS = ("data", "weight", "input_zero_point", "kernel_zero_point", "input_scale", "kernel_scale")


@dataclass(frozen=True, slots=True)
class Row:
    """One operator: its name, that of the product of plain numbers, its attributes and arguments.

    by_channel  kernel_zero_point and kernel_scale may be vectors
    """

    name: str
    plain: str
    attrs: type
    args: tuple[str, ...] = ARGS
    by_channel: bool = True


TABLE = (
    Row("qnn.dense", "nn.dense", DenseAttrs),
    Row("qnn.conv2d", "nn.conv2d", ATTRS["nn.conv2d"]),
    Row("qnn.conv2d_transpose", "nn.conv2d_transpose", ATTRS["nn.conv2d_transpose"]),
    Row(
        "qnn.batch_matmul", "nn.batch_matmul", BatchMatmulAttrs,
        ("x", "y", "x_zero_point", "y_zero_point", "x_scale", "y_scale"), by_channel=False,
    ),
)  # fmt: skip
ROWS = {row.name: row for row in TABLE}


def plain_attrs(attrs: Any) -> Any:
    """The attributes of the product of plain numbers."""
    return dataclasses.replace(attrs, out_dtype="int32")


def channel_axis(row: Row, attrs: Any) -> int:
    """The axis of the weight that holds the result's channels (of one group, for a transposed convolution)."""
    return int(attrs.kernel_layout.index("O")) if "conv" in row.name else 0


def _relation(row: Row) -> Callable[[TypeContext, tuple[Type, ...], Any], Type]:
    def relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
        for index in range(2):
            tensor_of(ctx, arg_types, index, BYTES)
        if attrs.out_dtype not in ("", "int32"):
            raise ctx.fail(f"out_dtype must be int32, not {attrs.out_dtype!r}")
        result = get(row.plain).relation(ctx, arg_types[:2], plain_attrs(attrs))
        for index, dtype in ((2, "int32"), (4, "float32")):
            check_scalar(ctx, arg_types, index, dtype)
            _check_channels(ctx, row, arg_types, index + 1, dtype, attrs)
        return result

    return relation


def _check_channels(
    ctx: TypeContext, row: Row, arg_types: tuple[Type, ...], index: int, dtype: str, attrs: Any
) -> None:
    found = tensor_of(ctx, arg_types, index, (dtype,))
    if not found.shape:
        return
    weight = arg_types[1]
    if not row.by_channel or len(found.shape) > 1 or not isinstance(weight, TensorType):
        allowed = " or a vector of the result's channels" if row.by_channel else ""
        raise ctx.fail(f"argument {index} must be a scalar{allowed}", index)
    axis = channel_axis(row, attrs)
    groups = attrs.groups if row.plain.endswith("transpose") else 1
    if groups == 1:
        require_same(ctx, (1, axis, weight.shape[axis]), (index, 0, found.shape[0]))
    else:
        size: Dim = dims.mul(weight.shape[axis], groups)
        ctx.require_dim(index, 0, size)


def _zero_points(row: Row, attrs: Any, weight: Array, zero_point: Array) -> Array:
    """kernel_zero_point, shaped to be broadcast with the weight."""
    if zero_point.ndim == 0:
        return zero_point
    axis, rank = channel_axis(row, attrs), weight.ndim
    if not row.plain.endswith("transpose") or attrs.groups == 1:
        return zero_point.reshape(-1, *(1,) * (rank - axis - 1))
    # Channel g * O + o belongs to the inputs of group g.
    inputs = attrs.kernel_layout.index("I")
    each = np.repeat(zero_point.reshape(attrs.groups, -1), weight.shape[inputs] // attrs.groups, 0)
    shape = [1] * rank
    shape[inputs], shape[axis] = each.shape
    return (each if inputs < axis else each.T).reshape(shape)


def _padded(data: Array, zero_point: Array, attrs: Any) -> tuple[Array, Any]:
    """Data with its padding written out."""
    height, width = padding_pairs(attrs.padding, 2)
    pairs = {"H": height, "W": width}
    value = zero_point.astype(data.dtype)
    with_pads = np.pad(
        data, [pairs.get(c, (0, 0)) for c in attrs.data_layout], constant_values=value
    )
    return with_pads, dataclasses.replace(attrs, padding=(0, 0))


def _reference(row: Row) -> Callable[[tuple[Array, ...], Any, Type], Array]:
    def reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
        data, weight, data_zero, weight_zero = inputs[:4]
        attrs = plain_attrs(attrs)
        if row.name == "qnn.conv2d":
            data, attrs = _padded(data, data_zero, attrs)
        operands = (
            shifted(data, data_zero),
            shifted(weight, _zero_points(row, attrs, weight, weight_zero)),
        )
        found: Array = get(row.plain).reference(operands, attrs, result)
        return found

    return reference


for _row in TABLE:
    register(
        Op(
            name=_row.name,
            args=_row.args,
            attrs=_row.attrs,
            relation=_relation(_row),
            reference=_reference(_row),
            pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
            effect=Effect.TOTAL,
            dtypes=(BYTES, BYTES, ("int32",), ("int32",), ("float32",), ("float32",)),
            doc=__doc__ or "",
            tolerance=ACCUMULATED,
        )
    )
