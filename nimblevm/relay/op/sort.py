"""sort(data, axis=-1, is_ascend=1) and argsort(data, axis=-1, is_ascend=1, dtype="int32"): one axis in order.

    sort      out[.., r, ..] = data[.., p[r], ..]      argsort   out[.., r, ..] = p[r]
    p: the places of the axis in ascending order (NaN last), or descending (NaN first) with is_ascend 0

Both orders are stable: equal elements keep their order, and all NaNs are equal, as -0 and 0 are. data: rank >= 1,
any dtype (false < true). Result: data's shape; sort its dtype, argsort dtype (int32 or int64). Attrs: axis,
is_ascend, dtype (argsort). Source: Relay's _algorithm.py.
Differs from numpy: positions are int32 by default; descending order exists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import ALL, Array, Attrs, axis_index, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type

INDEX_DTYPES = ("int32", "int64")


@dataclass(frozen=True, slots=True)
class SortAttrs(Attrs):
    """axis: which axis, negative from the end. is_ascend: ascending, else descending. dtype: means nothing here,
    but TVM writes it."""

    axis: int = -1
    is_ascend: bool = True
    dtype: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_ascend", bool(self.is_ascend))
        if self.dtype == "void":
            object.__setattr__(self, "dtype", "")


@dataclass(frozen=True, slots=True)
class ArgsortAttrs(SortAttrs):
    """axis, is_ascend: as SortAttrs. dtype: of the positions, int32 or int64."""

    dtype: str = "int32"


def check_index_dtype(ctx: TypeContext, dtype: object) -> str:
    """A dtype attribute of positions, or a located error."""
    if dtype not in INDEX_DTYPES:
        raise ctx.fail(f"dtype must be int32 or int64, not {dtype!r}")
    return str(dtype)


def order(data: Array, axis: int, is_ascend: bool) -> Array:
    """The places along an axis in stable order; NaN last ascending, first descending."""
    if is_ascend:
        return np.argsort(data, axis=axis, kind="stable")
    # Backwards in, backwards out: descending, and equals keep their order.
    backwards = np.argsort(np.flip(data, axis), axis=axis, kind="stable")
    return np.asarray(data.shape[axis] - 1 - np.flip(backwards, axis))


def _sort_relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SortAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    axis_index(ctx, attrs.axis, len(data.shape))
    return data


def _argsort_relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ArgsortAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    axis_index(ctx, attrs.axis, len(data.shape))
    return TensorType(data.shape, check_index_dtype(ctx, attrs.dtype))


def _sort_reference(inputs: tuple[Array, ...], attrs: SortAttrs, result: Type) -> Array:
    (data,) = inputs
    return np.take_along_axis(data, order(data, attrs.axis, attrs.is_ascend), attrs.axis)


def _argsort_reference(inputs: tuple[Array, ...], attrs: ArgsortAttrs, result: Type) -> Array:
    return order(inputs[0], attrs.axis, attrs.is_ascend).astype(attrs.dtype)


for _name, _attrs, _relation, _reference in (
    ("sort", SortAttrs, _sort_relation, _sort_reference),
    ("argsort", ArgsortAttrs, _argsort_relation, _argsort_reference),
):
    register(
        Op(
            name=_name,
            args=("data",),
            attrs=_attrs,
            relation=_relation,
            reference=_reference,
            pattern=OpPattern.OPAQUE,
            effect=Effect.TOTAL,
            dtypes=(ALL,),
            doc=__doc__,
        )
    )
