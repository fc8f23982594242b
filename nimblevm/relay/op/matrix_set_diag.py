"""matrix_set_diag(data, diagonal, k=0, align="RIGHT_LEFT"): matrices with diagonals k1 to k2 replaced.

    out[.., i, j] = diagonal[.., p] where j - i == k1 == k2, p = min(i, j)
    out[.., i, j] = diagonal[.., k2 - (j - i), p + s] where k1 <= j - i <= k2      if k1 < k2
        s = length of the longest diagonal - that of this one if it stands at the right, else 0
    out[.., i, j] = data[.., i, j] elsewhere

data: rank >= 2, any dtype; diagonal: of its dtype, data's outer axes and (the longest diagonal's length,), or (k2 - k1
+ 1, that length). Result: data's type. Attrs: k1, k2 (the builder's k is one of both, or a pair),
super_diag_right_align, sub_diag_right_align (diagonals k >= 0 and k < 0 stand at the right). Source: Relay's
matrix_set_diag.
Differs from numpy: numpy sets one diagonal in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import ALL, Array, Attrs, require_same, same_dtype, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type

LARGEST = 2**31


@dataclass(frozen=True, slots=True)
class MatrixSetDiagAttrs(Attrs):
    """k1, k2: the first and the last diagonal, 0 the main one. super_diag_right_align, sub_diag_right_align: where
    diagonals stand in `diagonal` that are shorter than the longest.
    """

    k1: int = 0
    k2: int = 0
    super_diag_right_align: bool = True
    sub_diag_right_align: bool = False


def length(rows: Dim, columns: Dim, k1: int, k2: int) -> Dim:
    """The length of the longest of the diagonals k1 to k2."""
    found = dims.min_(dims.add(rows, min(k2, 0)), dims.sub(columns, max(k1, 0)))
    return dims.max_(0, found)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: MatrixSetDiagAttrs) -> Type:
    data, diagonal = (tensor_of(ctx, arg_types, index) for index in (0, 1))
    same_dtype(ctx, data, diagonal, 1)
    k1, k2 = attrs.k1, attrs.k2
    if len(data.shape) < 2:
        raise ctx.fail(f"data must have rank 2 or more, not {len(data.shape)}", 0)
    if not -LARGEST < k1 <= k2 < LARGEST:
        raise ctx.fail(f"k must be one integer or two with the lesser first, not {k1} and {k2}")
    outer, (rows, columns) = data.shape[:-2], data.shape[-2:]
    inner = 1 if k1 == k2 else 2
    if len(diagonal.shape) != len(outer) + inner:
        raise ctx.fail(f"diagonal must have rank {len(outer) + inner}, not {diagonal!r}", 1)
    for axis, size in enumerate(outer):
        require_same(ctx, (0, axis, size), (1, axis, diagonal.shape[axis]))
    if inner == 2:
        ctx.require_dim(1, len(outer), k2 - k1 + 1)
    ctx.require_dim(1, len(diagonal.shape) - 1, length(rows, columns, k1, k2))
    return data


def _reference(inputs: tuple[Array, ...], attrs: MatrixSetDiagAttrs, result: Type) -> Array:
    data, diagonal = inputs
    out = np.array(data)
    rows, columns = data.shape[-2:]
    longest = diagonal.shape[-1]
    for k in range(max(attrs.k1, 1 - rows), min(attrs.k2, columns - 1) + 1):
        count = min(rows + min(k, 0), columns - max(k, 0))
        right = attrs.super_diag_right_align if k >= 0 else attrs.sub_diag_right_align
        start = longest - count if right and attrs.k1 != attrs.k2 else 0
        row = diagonal if attrs.k1 == attrs.k2 else diagonal[..., attrs.k2 - k, :]
        steps = np.arange(count)
        out[..., steps - min(k, 0), steps + max(k, 0)] = row[..., start : start + count]
    return out


register(
    Op(
        name="matrix_set_diag",
        args=("data", "diagonal"),
        attrs=MatrixSetDiagAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL, ALL),
        doc=__doc__,
    )
)
