"""split(data, indices_or_sections, axis=0): cut a tensor along an axis; the result is a tuple.

    sections n:              n parts of size d / n each; n must divide d
    indices (i1, ..., ik):   k + 1 parts [0, i1), [i1, i2), ..., [ik, d); 0 <= i1 <= ... <= ik <= d

data: rank >= 1; d is the size of `axis` (negative counts from the end). Parts have data's dtype and other
axes. Attrs: indices_or_sections (int or tuple of ints), axis. Source: Relay's _transform.py.
Differs from numpy: indices beyond d, decreasing or negative are an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import ALL, Array, Attrs, axis_index, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, TupleType, Type


@dataclass(frozen=True, slots=True)
class SplitAttrs(Attrs):
    """indices_or_sections: number of equal parts, or the places of the cuts. axis: where to cut."""

    indices_or_sections: int | tuple[int, ...]
    axis: int = 0


MOST_PARTS = 2**20
"""The type of a result has each part."""


def _sizes(ctx: TypeContext, size: Dim, axis: int, where: int | tuple[int, ...]) -> list[Dim]:
    """The sizes of the parts on the split axis."""
    if isinstance(where, int):
        if where < 1:
            raise ctx.fail(f"the number of sections must be at least 1, not {where}")
        if where > MOST_PARTS:
            raise ctx.fail(f"a tuple has at most {MOST_PARTS} fields, not {where} sections")
        if isinstance(size, int) and size % where:
            raise ctx.fail(f"{where} sections do not divide axis {axis} of size {size}", 0)
        part = dims.floordiv(size, where)
        if not isinstance(size, int):
            ctx.require_dim(0, axis, dims.mul(part, where))
        return [part] * where
    cuts = (0, *where)
    if any(later < earlier for earlier, later in pairwise(cuts)):
        raise ctx.fail(f"indices must be increasing and not negative: {where}")
    last = cuts[-1]
    if isinstance(size, int) and size < last:
        raise ctx.fail(f"index {last} is beyond axis {axis} of size {size}", 0)
    if not isinstance(size, int) and last > 0:
        ctx.require_dim(0, axis, dims.max_(size, last))
    return [*(later - earlier for earlier, later in pairwise(cuts)), dims.sub(size, last)]


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: SplitAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    before, after = data.shape[:axis], data.shape[axis + 1 :]
    sizes = _sizes(ctx, data.shape[axis], axis, attrs.indices_or_sections)
    return TupleType(TensorType((*before, size, *after), data.dtype) for size in sizes)


def _reference(inputs: tuple[Array, ...], attrs: SplitAttrs, result: Type) -> tuple[Array, ...]:
    (data,) = inputs
    where, size = attrs.indices_or_sections, data.shape[attrs.axis]
    if isinstance(where, int):
        if size % where:
            raise ShapeMismatch(
                f"split: {where} sections do not divide axis {attrs.axis} of {data.shape}"
            )
        return tuple(np.split(data, where, axis=attrs.axis))
    if where and where[-1] > size:
        raise ShapeMismatch(f"split: index {where[-1]} is beyond axis {attrs.axis} of {data.shape}")
    return tuple(np.split(data, list(where), axis=attrs.axis))


register(
    Op(
        name="split",
        args=("data",),
        attrs=SplitAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
