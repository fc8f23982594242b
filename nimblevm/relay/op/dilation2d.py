"""image.dilation2d(data, weight, strides=(1, 1), padding=(0, 0), dilations=(1, 1), ...): grayscale dilation.

    out[n, c, y, x] = greatest of padded[n, c, y * stride + i * dilation, x likewise] + weight[c, i, j] over (i, j)
    padded: data between as many zeros as padding says

data: float, rank 4, N, C, H and W as data_layout says; weight: of its dtype, I (data's channels), H and W as
kernel_layout says. The window must fit the padded axes. Result: the windows' numbers (as for nn.conv2d) in the order of
data_layout, of out_dtype (a float) or data's dtype. float16 is computed in float32. Attrs: strides, padding, dilations,
data_layout, kernel_layout, out_dtype. Source: Relay's image.dilation2d.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    FLOATS,
    Array,
    Attrs,
    as_compute,
    dtype_name,
    require_same,
    rounded,
    same_dtype,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import (
    Window,
    arranged,
    check_rank,
    layout_of,
    numbers,
    padding_of,
    padding_pairs,
    per_axis,
    require_fits,
    to_order,
)
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class Dilation2DAttrs(Attrs):
    """strides, padding, dilations: of the windows. data_layout: N, C, H, W. kernel_layout: I, H, W. out_dtype: of the
    result, or none.
    """

    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilations: tuple[int, ...] = (1, 1)
    data_layout: str = "NCHW"
    kernel_layout: str = "IHW"
    out_dtype: str = ""

    def __post_init__(self) -> None:
        for name in ("strides", "padding", "dilations"):
            set_axes(self, name)
        Attrs.__post_init__(self)


def windows(
    attrs: Dilation2DAttrs, sizes: tuple[Dim, ...], kernel: tuple[Dim, ...]
) -> list[Window]:
    """The windows along H and W."""
    strides, dilations = (per_axis(v, 2) for v in (attrs.strides, attrs.dilations))
    pairs = padding_pairs(attrs.padding, 2)
    return [
        Window(size, k, s, d, *pads)
        for size, k, s, d, pads in zip(sizes, kernel, strides, dilations, pairs, strict=True)
    ]


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Dilation2DAttrs) -> Type:
    data, weight = (tensor_of(ctx, arg_types, index, FLOATS) for index in (0, 1))
    same_dtype(ctx, data, weight, 1)
    layout = layout_of(ctx, "data_layout", attrs.data_layout, "NCHW")
    kernel_layout = layout_of(ctx, "kernel_layout", attrs.kernel_layout, "IHW")
    check_rank(ctx, data, layout, 0)
    check_rank(ctx, weight, kernel_layout, 1)
    for name in ("strides", "dilations"):
        numbers(ctx, name, getattr(attrs, name), 2, 1)
    padding_of(ctx, attrs.padding, 2)
    dtype = attrs.out_dtype or data.dtype
    if dtype not in FLOATS:
        raise ctx.fail(f"out_dtype must be one of {', '.join(FLOATS)}, not {dtype!r}")
    found = dict(zip(layout, data.shape, strict=True))
    kernel = dict(zip(kernel_layout, weight.shape, strict=True))
    channels = ((0, layout.index("C"), found["C"]), (1, kernel_layout.index("I"), kernel["I"]))
    found["C"] = require_same(ctx, *channels)
    sizes, reach = ((axes["H"], axes["W"]) for axes in (found, kernel))
    for letter, window in zip("HW", windows(attrs, sizes, reach), strict=True):
        require_fits(ctx, 0, layout.index(letter), window)
        found[letter] = window.out
    return TensorType(arranged(layout, found), dtype)


def _reference(inputs: tuple[Array, ...], attrs: Dilation2DAttrs, result: Type) -> Array:
    data = as_compute(to_order(inputs[0], attrs.data_layout, "NCHW"))
    weight = as_compute(to_order(inputs[1], attrs.kernel_layout, "IHW"))
    found = windows(attrs, data.shape[2:], weight.shape[1:])
    if any(w.padded < w.reach for w in found):  # type: ignore[operator]
        raise ShapeMismatch(f"image.dilation2d: the window does not fit {data.shape[2:]}")
    pads = [(0, 0), (0, 0), *((w.before, w.after) for w in found)]
    padded = np.pad(data, pads)
    outs = [int(w.out) for w in found]  # type: ignore[arg-type]
    out = np.full((*data.shape[:2], *outs), -np.inf, data.dtype)
    for place in itertools.product(*map(range, weight.shape[1:])):
        cut = tuple(
            slice(k * w.dilation, k * w.dilation + (n - 1) * w.stride + 1, w.stride)
            for k, w, n in zip(place, found, outs, strict=True)
        )
        with np.errstate(all="ignore"):
            out = np.maximum(out, padded[:, :, *cut] + weight[:, *place, None, None])
    moved = np.ascontiguousarray(to_order(out, "NCHW", attrs.data_layout))
    return rounded(moved, attrs.out_dtype or dtype_name(inputs[0]))


register(
    Op(
        name="image.dilation2d",
        args=("data", "weight"),
        attrs=Dilation2DAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS, FLOATS),
        doc=__doc__,
    )
)
