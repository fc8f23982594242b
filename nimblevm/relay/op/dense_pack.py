"""nn.contrib_dense_pack(data, weight): nn.dense with a weight in panels of columns.

    out[..., u] = sum over k of data[..., k] * weight[u // C, k, u % C]

data (d1, ..., dn, K), n >= 0, float32 or float64, weight (P, K, C) of that dtype; result (d1, ..., dn, units). The
weight of float32 data may have 16 bits: float16, or uint16, whose bits are the upper half of a float32 (bfloat16);
sums are float32. Attrs: weight_layout ("NC16n" or "NC64n": C = 16 or 64 columns of a panel lie side by side, for each
k in turn; or "NC2n16n2n", for the bits of bfloat16 alone: see below), units (the number of columns, C (P - 1) < units
<= C P, None: C P), out_dtype (that of the data, or ""), piece (None, or (i, n, b): the weights of n products of as
many units share the panels, b columns of each in turn, so that few panels have empty columns. Column u of product i
is number i b + u % b of block u // b, which has ceil(n b / 16) panels; b divides units, the layout is "NC16n").

With "NC2n16n2n" weight is (P, K, 2, 16, 2): column u of 64 lies at u // 32, u % 16, u // 16 % 2, so that 32 bits hold
two columns that stand 16 apart. A register of such pairs is two registers of float32, one by a shift, one by a mask;
16 bits side by side take twice the work to widen.

The compiler makes it of nn.dense with a constant weight (compiler/passes/pack_weights.py).
Source: Relay's nn/_nn.py; layout names as in TVM.
Differs from numpy: there is no such function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.op.common import (
    ACCUMULATED,
    Array,
    Attrs,
    dtype_name,
    require_same,
    rounded,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type

LANES = 16
NARROW, WIDE, PAIRED = "NC16n", "NC64n", "NC2n16n2n"
WIDTHS = {NARROW: LANES, WIDE: 64, PAIRED: 64}
"""Columns of a panel, by layout."""
PAIRS = (2, LANES, 2)
"""The axes of a panel's columns, if they lie in pairs."""
MAX_PADDING = 1 / 32
"""Of the columns, for wide panels."""
DTYPES = ("float32", "float64")
HALVES = ("float16", "uint16")
"""dtypes of weights of 16 bits: float16, and bfloat16 as its bits."""


@dataclass(frozen=True, slots=True)
class DensePackAttrs(Attrs):
    """weight_layout: "NC16n", "NC64n" or "NC2n16n2n". units: number of columns, or None for all. out_dtype: "" = the
    operands'. piece: where the columns are among those of other products, or None.
    """

    weight_layout: str = "NC"
    units: int | None = None
    out_dtype: str = ""
    piece: tuple[int, int, int] | None = None


def block_panels(pieces: int, block: int) -> int:
    """Panels of `block` columns of each of so many products."""
    return -(-pieces * block // LANES)


def shared_panels(weights: Sequence[Array], block: int) -> Array:
    """Weights (units, K) in panels that they share, `block` columns of each in turn."""
    units = len(weights[0])
    rows = [
        panels_of(np.concatenate([w[first : first + block] for w in weights]))
        for first in range(0, units, block)
    ]
    return np.concatenate(rows)


def layout_of(units: int) -> str:
    """Wide panels, where they do not leave too many columns empty."""
    narrow, wide = (units + -units % WIDTHS[layout] for layout in (NARROW, WIDE))
    return NARROW if wide - narrow > units * MAX_PADDING else WIDE


def panels_of(weight: Array, width: int = LANES) -> Array:
    """A weight (units, K) as panels (ceil(units / width), K, width), zeros behind the last column."""
    units, depth = weight.shape
    count = -(-units // width)
    padded = weight
    if units != count * width:
        padded = np.zeros((count * width, depth), weight.dtype)
        padded[:units] = weight
    return np.ascontiguousarray(padded.reshape(count, width, depth).transpose(0, 2, 1))


def in_pairs(panels: Array) -> Array:
    """Panels of 64 columns (P, K, 64) as (P, K, 2, 16, 2), two columns that stand 16 apart side by side."""
    count, depth, _ = panels.shape
    blocks = panels.reshape(count, depth, PAIRS[0], PAIRS[2], PAIRS[1])
    return np.ascontiguousarray(blocks.transpose(0, 1, 2, 4, 3))


def to_bfloat16(weight: Array) -> Array:
    """float32 rounded to the nearest bfloat16, ties to even, as its bits (uint16)."""
    bits = weight.view(np.uint32)
    rounded_up = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    # Rounding a NaN's bits could give infinity.
    found = np.where(np.isnan(weight), bits | np.uint32(1 << 22), rounded_up) >> np.uint32(16)
    return found.astype(np.uint16)


def widened(weight: Array) -> Array:
    """A weight of 16 bits as float32; others as they are."""
    if weight.dtype == np.uint16:
        return (weight.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return weight.astype(np.float32) if weight.dtype == np.float16 else weight


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DensePackAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, DTYPES)
    weight = tensor_of(ctx, arg_types, 1, (*DTYPES, *HALVES))
    if data.dtype != "float32" or weight.dtype not in HALVES:
        same_dtype(ctx, data, weight, 1)
    width = WIDTHS.get(attrs.weight_layout)
    if width is None:
        layouts = " or ".join(f'"{layout}"' for layout in WIDTHS)
        raise ctx.fail(f'weight_layout must be {layouts}, not "{attrs.weight_layout}"')
    columns = PAIRS if attrs.weight_layout == PAIRED else (width,)
    if attrs.weight_layout == PAIRED and weight.dtype != "uint16":
        raise ctx.fail(f'weight_layout "{PAIRED}" is for uint16, not {weight.dtype}', 1)
    if attrs.out_dtype not in ("", data.dtype):
        raise ctx.fail(f"out_dtype must be {data.dtype} like the operands, not {attrs.out_dtype}")
    if not data.shape:
        raise ctx.fail("data must have at least one axis, but it is a scalar", 0)
    if len(weight.shape) != 2 + len(columns):
        sizes = ", ".join(map(str, columns))
        raise ctx.fail(f"weight must have rank {2 + len(columns)} (panels, input size, {sizes})", 1)
    for axis, size in enumerate(columns, 2):
        ctx.require_dim(1, axis, size)
    last = len(data.shape) - 1
    require_same(ctx, (0, last, data.shape[last]), (1, 1, weight.shape[1]))
    units: dims.Dim
    if attrs.piece is not None:
        units = _piece_units(ctx, attrs)
    elif attrs.units is None:
        units = dims.mul(weight.shape[0], width)
    else:
        units = attrs.units
        ctx.require_dim(1, 0, -(-attrs.units // width))
    return TensorType((*data.shape[:-1], units), data.dtype)


def _piece_units(ctx: TypeContext, attrs: DensePackAttrs) -> int:
    if attrs.piece is None or attrs.units is None:
        raise ctx.fail("a piece needs units")
    number, pieces, block = attrs.piece
    if attrs.weight_layout != NARROW or not 0 <= number < pieces or block < 1:
        raise ctx.fail(f"{attrs.piece} is no piece of a weight of layout {attrs.weight_layout}")
    if attrs.units % block:
        raise ctx.fail(f"blocks of {block} columns do not divide {attrs.units} units")
    ctx.require_dim(1, 0, attrs.units // block * block_panels(pieces, block))
    return attrs.units


def _column_numbers(attrs: DensePackAttrs, columns: int) -> Array:
    """Which columns of the panels a product has."""
    units = np.arange(columns if attrs.units is None else attrs.units)
    if attrs.piece is None:
        return units
    number, pieces, block = attrs.piece
    found: Array = (
        units // block * block_panels(pieces, block) * LANES + number * block + units % block
    )
    return found


def _reference(inputs: tuple[Array, ...], attrs: DensePackAttrs, result: Type) -> Array:
    data, weight = inputs
    if data.shape[-1] != weight.shape[1]:
        raise ShapeMismatch(
            f"nn.contrib_dense_pack: data {data.shape} and weight {weight.shape} differ in the input size"
        )
    dtype = dtype_name(data)
    weight = widened(weight)
    if attrs.weight_layout == PAIRED:
        weight = weight.swapaxes(-1, -2).reshape(*weight.shape[:2], WIDTHS[PAIRED])
    panels, depth, width = weight.shape
    columns = weight.transpose(0, 2, 1).reshape(panels * width, depth)
    numbers = _column_numbers(attrs, len(columns))
    with np.errstate(all="ignore"):
        return rounded(np.matmul(data, columns[numbers].T), dtype)


register(
    Op(
        name="nn.contrib_dense_pack",
        args=("data", "weight"),
        attrs=DensePackAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.TOTAL,
        dtypes=(DTYPES,),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
