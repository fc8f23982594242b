"""topk(data, k=1, axis=-1, ret_type="both", is_ascend=False, dtype="int32"): the first k elements in order.

    p: the places of the axis in stable order (op/sort.py), descending unless is_ascend
    values out[.., r, ..] = data[.., p[r], ..],   indices out[.., r, ..] = p[r],   r in [0, k)

dyn.topk(data, k) is the same with k as a tensor of one number. data: rank >= 1, any dtype. Result: data's shape with
k at the axis: "both" gives the tuple (values, indices), "values" and "indices" one of them; indices are of dtype
(int32 or int64). k < 1 means the whole axis. Attrs: k, axis, ret_type, is_ascend, dtype. Errors: ShapeMismatch for
a k greater than the axis. Source: Relay's topk and dyn.topk.
Differs from numpy: numpy has no topk; NaN is the greatest, so that it comes first unless is_ascend.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import ALL, NUMERIC, Array, Attrs, axis_index, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.sort import check_index_dtype, order
from nimblevm.relay.types import DimExpr, TensorType, TupleType, Type

RET_TYPES = ("both", "values", "indices")


@dataclass(frozen=True, slots=True)
class DynTopkAttrs(Attrs):
    """axis: which. ret_type: both, values or indices. is_ascend: least first. dtype: of the indices."""

    axis: int = -1
    ret_type: str = "both"
    is_ascend: bool = False
    dtype: str = "int32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_ascend", bool(self.is_ascend))


@dataclass(frozen=True, slots=True)
class TopkAttrs(Attrs):
    """k: how many (passes also write a dim). axis, ret_type, is_ascend, dtype: as DynTopkAttrs."""

    k: Dim = 1
    axis: int = -1
    ret_type: str = "both"
    is_ascend: bool = False
    dtype: str = "int32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_ascend", bool(self.is_ascend))


def _result(
    ctx: TypeContext, data: TensorType, size: Dim, attrs: TopkAttrs | DynTopkAttrs, axis: int
) -> Type:
    if attrs.ret_type not in RET_TYPES:
        raise ctx.fail(f"ret_type must be one of {', '.join(RET_TYPES)}, not {attrs.ret_type!r}")
    shape = (*data.shape[:axis], size, *data.shape[axis + 1 :])
    values = TensorType(shape, data.dtype)
    indices = TensorType(shape, check_index_dtype(ctx, attrs.dtype))
    if attrs.ret_type == "both":
        return TupleType((values, indices))
    return values if attrs.ret_type == "values" else indices


def _limited(ctx: TypeContext, data: TensorType, k: int, axis: int) -> Dim:
    """The size of the result for a known k: at most the axis, whole for k < 1."""
    size = data.shape[axis]
    if k < 1:
        return size
    if isinstance(size, int):
        if k > size:
            raise ctx.fail(f"k is {k}, but axis {axis} has size {size}", 0)
    else:
        ctx.require_dim(0, axis, dims.max_(size, k))
    return k


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: TopkAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    k = attrs.k
    if isinstance(k, DimExpr):
        return _result(ctx, data, k, attrs, axis)  # the kernel compares
    if not isinstance(k, int) or isinstance(k, bool):
        raise ctx.fail(f"k must be an integer, not {k!r}")
    return _result(ctx, data, _limited(ctx, data, k, axis), attrs, axis)


def _dyn_relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DynTopkAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    k = tensor_of(ctx, arg_types, 1, NUMERIC)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    if len(k.shape) > 1:
        raise ctx.fail(f"k must be a scalar or have shape (1,), not {k!r}", 1)
    if k.shape:
        ctx.require_dim(1, 0, 1)
    known = ctx.constant(1)
    if known is None:
        return _result(ctx, data, ctx.fresh_dim(), attrs, axis)
    size = _limited(ctx, data, int(convert(known.reshape(()), "int64")), axis)
    return _result(ctx, data, size, attrs, axis)


def _top(data: Array, k: int, attrs: TopkAttrs | DynTopkAttrs) -> Array | tuple[Array, ...]:
    size = data.shape[attrs.axis]
    if k > size:
        raise ShapeMismatch(f"topk: k is {k}, but the axis has size {size}")
    places = order(data, attrs.axis, attrs.is_ascend)
    first = np.take(places, np.arange(k if k >= 1 else size), axis=attrs.axis)
    values, indices = np.take_along_axis(data, first, attrs.axis), first.astype(attrs.dtype)
    if attrs.ret_type == "both":
        return values, indices
    return values if attrs.ret_type == "values" else indices


def _reference(
    inputs: tuple[Array, ...], attrs: TopkAttrs, result: Type
) -> Array | tuple[Array, ...]:
    if isinstance(attrs.k, DimExpr):
        raise ShapeMismatch(f"topk: the reference needs a number for k, got {attrs.k!r}")
    return _top(inputs[0], attrs.k, attrs)


def _dyn_reference(
    inputs: tuple[Array, ...], attrs: DynTopkAttrs, result: Type
) -> Array | tuple[Array, ...]:
    return _top(inputs[0], int(convert(inputs[1].reshape(()), "int64")), attrs)


register(
    Op(
        name="topk",
        args=("data",),
        attrs=TopkAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=lambda types, attrs: (
            Effect.MAY_FAIL if isinstance(attrs.k, DimExpr) else Effect.TOTAL
        ),
        dtypes=(ALL,),
        doc=__doc__,
    )
)
register(
    Op(
        name="dyn.topk",
        args=("data", "k"),
        attrs=DynTopkAttrs,
        relation=_dyn_relation,
        reference=_dyn_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(ALL, NUMERIC),
        doc=__doc__,
        shape_values=(1,),
    )
)
