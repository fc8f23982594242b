"""nn.pad and nn.mirror_pad: elements around a tensor.

    nn.pad(data, pad_value, pad_width, pad_mode="constant")     with j = i - before, on an axis of size n:
        "constant"   out[i] = data[j] where 0 <= j < n, else pad_value converted to data's dtype
        "edge"       out[i] = data[min(max(j, 0), n - 1)]
        "reflect"    out[i] = data[(n - 1) - abs((n - 1) - abs(j))]
    nn.mirror_pad(data, pad_width, mode="SYMMETRIC")
        "SYMMETRIC"  the elements of the edge are repeated        "REFLECT"  as "reflect"

data: any dtype; pad_value: a scalar of any dtype. pad_width: (before, after) an axis, sizes >= 0 (nn.pad:
also dim expressions of dims known there). Result: sizes before + n + after, data's dtype. A padded axis
must have an element for "edge", more elements than its pads for "reflect", as many for "SYMMETRIC".
Attrs: pad_width, pad_mode; mode, pad_width. Source: Relay's nn.pad and nn.mirror_pad.
Differs from numpy: one mode for all axes; pads must be smaller than what is mirrored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimExpr
from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import ALL, Array, Attrs, dtype_name, tensor_of
from nimblevm.relay.op.full import concrete_shape
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type

PAD_MODES = ("constant", "edge", "reflect")
MIRROR_MODES = ("SYMMETRIC", "REFLECT")
# mode -> how many elements an axis must have more than its larger pad; None: one at all
SPARE = {"reflect": 1, "REFLECT": 1, "SYMMETRIC": 0, "edge": None}


@dataclass(frozen=True, slots=True)
class PadAttrs(Attrs):
    """pad_width: (before, after) for each axis. pad_mode: constant, edge or reflect."""

    pad_width: tuple[tuple[Dim, Dim], ...]
    pad_mode: str = "constant"


@dataclass(frozen=True, slots=True)
class MirrorPadAttrs(Attrs):
    """mode: SYMMETRIC or REFLECT. pad_width: (before, after) for each axis."""

    mode: str = "SYMMETRIC"
    pad_width: tuple[tuple[int, int], ...] = ()


def _padded(ctx: TypeContext, data: TensorType, width: Any, mode: str) -> Type:
    """The result type; demands what the mode needs of the sizes."""
    pairs = width if isinstance(width, tuple) else ()
    if len(pairs) != len(data.shape) or any(not isinstance(p, tuple) or len(p) != 2 for p in pairs):
        raise ctx.fail(f"pad_width must have a pair (before, after) an axis, not {width!r}", 0)
    shape: list[Dim] = []
    for axis, (size, pair) in enumerate(zip(data.shape, pairs, strict=True)):
        for pad in pair:
            if not isinstance(pad, int | DimExpr) or (isinstance(pad, int) and pad < 0):
                raise ctx.fail(f"pad_width must hold integers >= 0, not {pad!r}", 0)
        before, after = pair
        shape.append(dims.add(dims.add(before, size), after))
        if mode in SPARE and pair != (0, 0):
            spare = SPARE[mode]
            larger = dims.max_(before, after)
            need = dims.min_(larger, 1) if spare is None else dims.add(larger, spare)
            if isinstance(size, int) and isinstance(need, int) and size < need:
                raise ctx.fail(
                    f"axis {axis} has {size} elements; {mode!r} with pads {pair} needs {need}", 0
                )
            ctx.require_dim(0, axis, dims.max_(size, need))
    return TensorType(shape, data.dtype)


def _pad(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: PadAttrs) -> Type:
    data, value = tensor_of(ctx, arg_types, 0), tensor_of(ctx, arg_types, 1)
    if value.shape:
        raise ctx.fail(f"pad_value must be a scalar, not of rank {len(value.shape)}", 1)
    if attrs.pad_mode not in PAD_MODES:
        raise ctx.fail(f"pad_mode must be one of {', '.join(PAD_MODES)}, not {attrs.pad_mode!r}")
    return _padded(ctx, data, attrs.pad_width, attrs.pad_mode)


def _mirror_pad(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: MirrorPadAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if attrs.mode not in MIRROR_MODES:
        raise ctx.fail(f"mode must be one of {', '.join(MIRROR_MODES)}, not {attrs.mode!r}")
    return _padded(ctx, data, attrs.pad_width, attrs.mode)


def _pad_reference(inputs: tuple[Array, ...], attrs: PadAttrs, result: Type) -> Array:
    data, value = inputs
    flat = concrete_shape("nn.pad", tuple(pad for pair in attrs.pad_width for pad in pair))
    width = list(zip(flat[::2], flat[1::2], strict=True))
    if not width:
        return np.array(data)
    if attrs.pad_mode == "constant":
        fill = convert(value, dtype_name(data))
        return np.pad(data, width, mode="constant", constant_values=fill)
    return np.pad(data, width, mode="edge" if attrs.pad_mode == "edge" else "reflect")


def _mirror_reference(inputs: tuple[Array, ...], attrs: MirrorPadAttrs, result: Type) -> Array:
    if not attrs.pad_width:
        return np.array(inputs[0])
    mode = "symmetric" if attrs.mode == "SYMMETRIC" else "reflect"
    return np.pad(inputs[0], attrs.pad_width, mode=mode)  # type: ignore[call-overload,no-any-return]


register(
    Op(
        name="nn.pad",
        args=("data", "pad_value"),
        attrs=PadAttrs,
        relation=_pad,
        reference=_pad_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL, ALL),
        doc=__doc__,
    )
)
register(
    Op(
        name="nn.mirror_pad",
        args=("data",),
        attrs=MirrorPadAttrs,
        relation=_mirror_pad,
        reference=_mirror_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
