"""nn.correlation(data1, data2, ...): how alike places of two images are, as optical flow asks it.

    out[n, q, y, x] = mean over c, r, s of f(P1[n, c, Y + r, X + s], P2[n, c, Y + r + Dy, X + s + Dx])
    f(a, b) = a * b if is_multiply, else abs(a - b);   Y = y * stride1 + max_displacement, X likewise
    P1, P2: data1 and data2 between as many zeros as padding says;   r, s from 0 to kernel_size - 1
    q counts the displacements (Dy, Dx), each from -d to d times stride2, row by row;  d = max_displacement // stride2

data1 and data2 (first, second): floats of one dtype and shape (N, C, H, W). With b = max_displacement +
(kernel_size - 1) / 2 the result is (N, (2d + 1)**2, (H + pads - 2b - 1) // stride1 + 1, W likewise); the padded axes
must have more than 2b elements. Attrs: kernel_size (odd), max_displacement, stride1, stride2,
padding (1 value, one an axis, or befores and then afters), is_multiply, layout (NCHW).
float16 is accumulated in float32. Source: Relay's nn.correlation.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    as_wide,
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
    check_rank,
    numbers,
    padding_of,
    padding_pairs,
    require_fits,
)
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class CorrelationAttrs(Attrs):
    """kernel_size, max_displacement, stride1, stride2, padding, is_multiply, layout: see the module's docstring."""

    kernel_size: int = 1
    max_displacement: int = 1
    stride1: int = 1
    stride2: int = 1
    padding: tuple[int, ...] = (0, 0)
    is_multiply: bool = True
    layout: str = "NCHW"

    def __post_init__(self) -> None:
        set_axes(self, "padding")
        Attrs.__post_init__(self)


def radius(attrs: CorrelationAttrs) -> int:
    """Displacements to each side."""
    return attrs.max_displacement // attrs.stride2


def windows(attrs: CorrelationAttrs, sizes: tuple[Dim, ...]) -> list[Window]:
    """What an element of the result reads of the padded H and W, all displacements together."""
    whole = attrs.kernel_size + 2 * attrs.max_displacement
    pairs = padding_pairs(attrs.padding, 2)
    return [
        Window(size, whole, attrs.stride1, 1, *pads)
        for size, pads in zip(sizes, pairs, strict=True)
    ]


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: CorrelationAttrs) -> Type:
    first, second = (tensor_of(ctx, arg_types, index, FLOATS) for index in range(2))
    same_dtype(ctx, first, second, 1)
    if attrs.layout != "NCHW":
        raise ctx.fail(f"layout must be NCHW, not {attrs.layout!r}")
    for name, least in (
        ("kernel_size", 1),
        ("max_displacement", 0),
        ("stride1", 1),
        ("stride2", 1),
    ):
        numbers(ctx, name, getattr(attrs, name), 1, least)
    if attrs.kernel_size % 2 == 0:
        raise ctx.fail(f"kernel_size must be odd, not {attrs.kernel_size}")
    padding_of(ctx, attrs.padding, 2)
    for index, found in enumerate((first, second)):
        check_rank(ctx, found, "NCHW", index)
    shape = [
        require_same(ctx, (0, axis, a), (1, axis, b))
        for axis, (a, b) in enumerate(zip(first.shape, second.shape, strict=True))
    ]
    found_windows = windows(attrs, (shape[2], shape[3]))
    for axis, window in enumerate(found_windows, 2):
        require_fits(ctx, 0, axis, window)
    channels = (2 * radius(attrs) + 1) ** 2
    return TensorType((shape[0], channels, *(w.out for w in found_windows)), first.dtype)


def _reference(inputs: tuple[Array, ...], attrs: CorrelationAttrs, result: Type) -> Array:
    pairs = padding_pairs(attrs.padding, 2)
    first, second = (np.pad(as_wide(v), ((0, 0), (0, 0), *pairs)) for v in inputs)
    found = windows(attrs, inputs[0].shape[2:])
    rows, columns = (int(w.out) for w in found)  # type: ignore[arg-type]
    reach, most, step = radius(attrs), attrs.max_displacement, attrs.stride1
    count = attrs.kernel_size

    def cut(value: Array, y: int, x: int) -> Array:
        """The elements that offset (y, x) reads, for all places of the result."""
        return value[
            :, :, y : y + (rows - 1) * step + 1 : step, x : x + (columns - 1) * step + 1 : step
        ]

    out = np.zeros((len(first), (2 * reach + 1) ** 2, rows, columns), first.dtype)
    offsets = range(-reach, reach + 1)
    with np.errstate(all="ignore"):
        for q, (dy, dx) in enumerate((dy, dx) for dy in offsets for dx in offsets):
            for r, s in np.ndindex(count, count):
                a = cut(first, most + r, most + s)
                b = cut(second, most + r + dy * attrs.stride2, most + s + dx * attrs.stride2)
                out[:, q] += (a * b if attrs.is_multiply else np.abs(a - b)).sum(1)
        out /= np.float64(count * count * first.shape[1])
    return rounded(out, dtype_name(inputs[0]))


register(
    Op(
        name="nn.correlation",
        args=("first", "second"),
        attrs=CorrelationAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS,),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
