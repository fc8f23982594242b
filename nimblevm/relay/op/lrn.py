"""nn.lrn(data, size=5, axis=1, bias=2, alpha=1e-5, beta=0.75): local response normalization.

    out[.., c, ..] = data[.., c, ..] / (bias + alpha / size * s) ** beta      c along axis
    s = sum of data[.., k, ..] ** 2 over c - size div 2 <= k <= c + size div 2 that lie in data

data: a float tensor of rank >= 1. Result: data's type. float16 is computed in float32. Attrs: size (odd), axis
(negative counts from the end), bias, alpha, beta. Source: Relay's nn.lrn.
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
    axis_index,
    dtype_name,
    rounded,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type


@dataclass(frozen=True, slots=True)
class LRNAttrs(Attrs):
    """size: elements of a window. axis: along which. bias, alpha, beta: of the formula."""

    size: int = 5
    axis: int = 1
    bias: float = 2.0
    alpha: float = 1e-5
    beta: float = 0.75


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: LRNAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    axis_index(ctx, attrs.axis, len(data.shape))
    if not 1 <= attrs.size < 2**31 or attrs.size % 2 == 0:
        raise ctx.fail(f"size must be an odd integer >= 1, not {attrs.size}")
    return data


def _reference(inputs: tuple[Array, ...], attrs: LRNAttrs, result: Type) -> Array:
    (data,) = inputs
    rows = np.moveaxis(as_wide(data), attrs.axis, -1)
    half, count = attrs.size // 2, rows.shape[-1]
    total = np.zeros_like(rows)
    with np.errstate(all="ignore"):
        for c in range(count):
            near = rows[..., max(c - half, 0) : c + half + 1]
            total[..., c] = np.sum(near * near, axis=-1)
        out = rows / (attrs.bias + attrs.alpha / attrs.size * total) ** attrs.beta
    return rounded(np.ascontiguousarray(np.moveaxis(out, -1, attrs.axis)), dtype_name(data))


register(
    Op(
        name="nn.lrn",
        args=("data",),
        attrs=LRNAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS,),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
