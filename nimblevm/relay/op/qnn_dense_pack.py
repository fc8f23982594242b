"""qnn.contrib_dense_pack: qnn.dense with a weight in blocks of a columns and b turns of the depth.

    out = qnn.dense(data, w, ...)   with w[a i + r, b j + s] = weight[i, j, r, s]     int32, which wraps

data (d1, ..., dn, K), weight (U / a, K / b, a, b), each int8 or uint8; result (d1, ..., dn, U). input_zero_point and
input_scale are scalars; kernel_zero_point and kernel_scale may be vectors of the U columns; the scales are not read.
Attrs: weight_layout ("NC{a}n{b}c", as "NC32n4c", or "NC": the weight of qnn.dense), units (must equal U if given),
out_dtype (int32, also if it is empty). Blocks are laid out as rows again, of a constant weight at compile time.
Source: Relay's qnn dialect, where only some targets have kernels for it.
Differs from numpy: there is no such function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.op.common import ACCUMULATED, BYTES, Array, Attrs, tensor_of
from nimblevm.relay.op.dense import DenseAttrs
from nimblevm.relay.op.qnn_common import check_scalar
from nimblevm.relay.op.qnn_products import ARGS
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, get, register
from nimblevm.relay.types import TensorType, Type

PLAIN = "NC"


@dataclass(frozen=True, slots=True)
class QnnDensePackAttrs(Attrs):
    """weight_layout: "NC" or "NC{a}n{b}c". units: number of columns, or None. out_dtype: int32 or ""."""

    weight_layout: str = PLAIN
    units: int | None = None
    out_dtype: str = ""


def block_of(layout: str) -> tuple[int, int] | None:
    """Columns and turns of the depth of a block; (1, 1) of a plain weight, None for what is no layout."""
    if layout == PLAIN:
        return 1, 1
    found = re.fullmatch(r"NC([1-9][0-9]{0,8})n([1-9][0-9]{0,8})c", layout)
    return (int(found[1]), int(found[2])) if found else None


def dense_attrs() -> DenseAttrs:
    """Those of the product with the plain weight."""
    return DenseAttrs(None, "int32")


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: QnnDensePackAttrs) -> Type:
    data, weight = (tensor_of(ctx, arg_types, index, BYTES) for index in range(2))
    if attrs.out_dtype not in ("", "int32"):
        raise ctx.fail(f"out_dtype must be int32, not {attrs.out_dtype!r}")
    block = block_of(attrs.weight_layout)
    if block is None:
        raise ctx.fail(
            f'weight_layout must be "NC" or such as "NC32n4c", not {attrs.weight_layout!r}'
        )
    rank = 2 if attrs.weight_layout == PLAIN else 4
    if len(weight.shape) != rank:
        raise ctx.fail(
            f"weight must have rank {rank} in layout {attrs.weight_layout}, not {len(weight.shape)}",
            1,
        )
    if not data.shape:
        raise ctx.fail("data must have at least one axis, but it is a scalar", 0)
    for axis, size in zip((2, 3), block, strict=True):
        if rank == 4:
            ctx.require_dim(1, axis, size)
    columns, turns = block
    ctx.require_dim(0, len(data.shape) - 1, dims.mul(weight.shape[1], turns))
    if attrs.units is not None:
        if attrs.units % columns:
            raise ctx.fail(f"units must be a multiple of {columns}, not {attrs.units}")
        ctx.require_dim(1, 0, attrs.units // columns)
    units = dims.mul(weight.shape[0], columns)
    for index, dtype in ((2, "int32"), (4, "float32")):
        check_scalar(ctx, arg_types, index, dtype)
        given = tensor_of(ctx, arg_types, index + 1, (dtype,))
        if len(given.shape) > 1:
            raise ctx.fail(
                f"argument {index + 1} must be a scalar or a vector of the result's columns",
                index + 1,
            )
        if given.shape:
            ctx.require_dim(index + 1, 0, units)
    return TensorType((*data.shape[:-1], units), "int32")


def _reference(inputs: tuple[Array, ...], attrs: QnnDensePackAttrs, result: Type) -> Array:
    data, weight = inputs[:2]
    if weight.ndim == 4:
        rows, turns, columns, depth = weight.shape
        weight = weight.transpose(0, 2, 1, 3).reshape(rows * columns, turns * depth)
    if data.shape[-1] != weight.shape[1]:
        raise ShapeMismatch(
            f"qnn.contrib_dense_pack: data {data.shape} and weight {inputs[1].shape} differ in the input size"
        )
    found = get("qnn.dense").reference((data, weight, *inputs[2:]), dense_attrs(), result)
    return np.asarray(found)


register(
    Op(
        name="qnn.contrib_dense_pack",
        args=ARGS,
        attrs=QnnDensePackAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.TOTAL,
        dtypes=(BYTES, BYTES, ("int32",), ("int32",), ("float32",), ("float32",)),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
