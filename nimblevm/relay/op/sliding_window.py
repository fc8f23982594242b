"""sliding_window(data, axis, window_shape, strides): all windows over the axes from `axis` on.

    out[b.., i.., w..] = data[b.., i * strides + w ..]      as many i as windows that fit, w within window_shape

data: any dtype; window_shape and strides: one entry an axis from `axis` to the last. Result: rank r plus the number of
windowed axes, data's dtype. A window must fit. Attrs: axis (negative counts from the end), window_shape, strides
(integers >= 1). Source: Relay's sliding_window.
Differs from numpy: sliding_window_view has no strides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import ALL, Array, Attrs, axis_index, set_axes, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import Window, require_fits
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class SlidingWindowAttrs(Attrs):
    """axis: the first that windows move along. window_shape: their sizes. strides: their steps."""

    axis: int
    window_shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        set_axes(self, "window_shape")
        set_axes(self, "strides")
        Attrs.__post_init__(self)


def windows(attrs: SlidingWindowAttrs, sizes: tuple[Dim, ...]) -> list[Window]:
    """The windows along the axes of `sizes`."""
    return [
        Window(size, kernel, stride, 1, 0, 0)
        for size, kernel, stride in zip(sizes, attrs.window_shape, attrs.strides, strict=True)
    ]


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SlidingWindowAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    moved = data.shape[axis:]
    for name in ("window_shape", "strides"):
        value: Any = getattr(attrs, name)
        if len(value) != len(moved) or any(not 1 <= v < 2**31 for v in value):
            raise ctx.fail(
                f"{name} must hold an integer >= 1 for each of {len(moved)} axes, not {value!r}"
            )
    found = windows(attrs, moved)
    for place, window in enumerate(found, axis):
        require_fits(ctx, 0, place, window)
    shape = (*data.shape[:axis], *(w.out for w in found), *attrs.window_shape)
    return TensorType(shape, data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: SlidingWindowAttrs, result: Type) -> Array:
    (data,) = inputs
    axis = attrs.axis % data.ndim
    moved = data.shape[axis:]
    if any(k > n for k, n in zip(attrs.window_shape, moved, strict=True)):
        raise ShapeMismatch(f"sliding_window: {attrs.window_shape} does not fit {moved}")
    axes = tuple(range(axis, data.ndim))
    seen = np.lib.stride_tricks.sliding_window_view(data, attrs.window_shape, axes)
    steps = (*(slice(None),) * axis, *(slice(None, None, s) for s in attrs.strides))
    return np.ascontiguousarray(seen[steps])


register(
    Op(
        name="sliding_window",
        args=("data",),
        attrs=SlidingWindowAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
