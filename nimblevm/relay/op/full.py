"""zeros, ones, full, zeros_like, ones_like: tensors of one value.

    zeros(shape, dtype), ones(shape, dtype)      out[i] = 0 or 1
    full(fill_value, shape, dtype)               out[i] = fill_value, a rank-0 tensor, converted as `cast` does
    zeros_like(data), ones_like(data)            out[i] = 0 or 1, data's shape and dtype

Attrs of the first three: shape (sizes, which may be dim expressions of dims known there), dtype ("" in
full: fill_value's). Source: Relay's _tensor.py and _transform.py.
Differs from numpy: dtype is not float64 by default; full's value is a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import DimOverflow, Unsupported
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import ALL, Array, Attrs, dtype_name, set_axes, shape_attr, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import DimExpr, TensorType, Type


@dataclass(frozen=True, slots=True)
class InitOpAttrs(Attrs):
    """shape: sizes of the result. dtype: its dtype; "" is allowed in full only."""

    shape: tuple[Dim, ...] = ()
    dtype: str = ""

    def __post_init__(self) -> None:
        set_axes(self, "shape")
        Attrs.__post_init__(self)


def concrete_shape(op: str, shape: tuple[Dim, ...]) -> tuple[int, ...]:
    """A shape attribute whose dim expressions have been replaced by their values."""
    sizes = tuple(d for d in shape if not isinstance(d, DimExpr))
    if len(sizes) != len(shape):
        raise Unsupported(f"{op}: the reference needs a shape without unknown dims, got {shape}")
    if any(size < 0 for size in sizes):
        raise DimOverflow(f"{op}: a size of {sizes} is negative")
    return sizes


def _init_relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: InitOpAttrs) -> Type:
    if attrs.dtype not in ALL:
        raise ctx.fail(f"dtype must be one of {', '.join(ALL)}, not {attrs.dtype!r}")
    return TensorType(shape_attr(ctx, attrs.shape), attrs.dtype)


def _full_relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: InitOpAttrs) -> Type:
    value = tensor_of(ctx, arg_types, 0)
    if value.shape:
        raise ctx.fail(f"fill_value must be a scalar, not of rank {len(value.shape)}", 0)
    dtype = attrs.dtype or value.dtype
    if dtype not in ALL:
        raise ctx.fail(f"dtype must be one of {', '.join(ALL)}, not {dtype!r}")
    return TensorType(shape_attr(ctx, attrs.shape), dtype)


def _like_relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    return tensor_of(ctx, arg_types, 0)


def _init_reference(
    name: str, value: int
) -> Callable[[tuple[Array, ...], InitOpAttrs, Type], Array]:
    def reference(inputs: tuple[Array, ...], attrs: InitOpAttrs, result: Type) -> Array:
        return np.full(concrete_shape(name, attrs.shape), value, attrs.dtype)

    return reference


def _like_reference(value: int) -> Callable[[tuple[Array, ...], Any, Type], Array]:
    def reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
        return np.full(inputs[0].shape, value, inputs[0].dtype)

    return reference


def _full_reference(inputs: tuple[Array, ...], attrs: InitOpAttrs, result: Type) -> Array:
    (value,) = inputs
    dtype = attrs.dtype or dtype_name(value)
    return np.full(concrete_shape("full", attrs.shape), convert(value, dtype), dtype)


for _name, _value in (("zeros", 0), ("ones", 1)):
    register(
        Op(
            name=_name,
            args=(),
            attrs=InitOpAttrs,
            relation=_init_relation,
            reference=_init_reference(_name, _value),
            pattern=OpPattern.ELEMWISE,
            effect=Effect.TOTAL,
            dtypes=(ALL,),
            doc=__doc__,
        )
    )
    register(
        Op(
            name=f"{_name}_like",
            args=("data",),
            relation=_like_relation,
            reference=_like_reference(_value),
            pattern=OpPattern.ELEMWISE,
            effect=Effect.TOTAL,
            dtypes=(ALL,),
            doc=__doc__,
        )
    )

register(
    Op(
        name="full",
        args=("fill_value",),
        attrs=InitOpAttrs,
        relation=_full_relation,
        reference=_full_reference,
        pattern=OpPattern.BROADCAST,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
