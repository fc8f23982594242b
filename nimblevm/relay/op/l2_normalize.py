"""nn.l2_normalize(data, eps, axis=None): divide by the Euclidean length over axes.

    out = data / sqrt(max(sum(data * data over axis), eps))

data: a float tensor; axis: None for all axes, or a tuple (negative counts from the end). Result: data's
shape and dtype. float16 is computed in float32. Attrs: eps, axis. Source: Relay's nn.l2_normalize.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    as_wide,
    axis_list,
    dtype_name,
    rounded,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type


@dataclass(frozen=True, slots=True)
class L2NormalizeAttrs(Attrs):
    """eps: the least square that is divided by. axis: the axes of the length, None for all."""

    eps: float
    axis: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        set_axes(self)
        Attrs.__post_init__(self)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: L2NormalizeAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    axis_list(ctx, attrs.axis or (), len(data.shape))
    return data


def _reference(inputs: tuple[Array, ...], attrs: L2NormalizeAttrs, result: Type) -> Array:
    (data,) = inputs
    wide = as_wide(data)
    with np.errstate(all="ignore"):
        square = np.sum(wide * wide, axis=attrs.axis or None, keepdims=True)
        return rounded(wide / np.sqrt(np.maximum(square, attrs.eps)), dtype_name(data))


register(
    Op(
        name="nn.l2_normalize",
        args=("data",),
        attrs=L2NormalizeAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS,),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
