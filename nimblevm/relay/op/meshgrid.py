"""meshgrid(data, indexing="ij"): coordinate grids of vectors.

    "ij"    out[k][i0, i1, ...] = data[k][ik]           "xy"    the first two axes of every out swapped

data: a tuple of tensors of one dtype, each of rank 1, or of rank 0 and then of one element. Result: a tuple
of as many tensors, their shape all sizes in order. Attrs: indexing. Source: Relay's meshgrid.
Differs from numpy: "ij" by default; dtypes are not promoted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import ALL, Array, Attrs, tensor_fields
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, TupleType, Type


@dataclass(frozen=True, slots=True)
class MeshgridAttrs(Attrs):
    """indexing: "ij" or "xy"."""

    indexing: str = "ij"


def grid_axes(count: int, indexing: str) -> tuple[int, ...]:
    """The axis of the grid along which part k varies, for each k."""
    order = list(range(count))
    if indexing == "xy" and count >= 2:
        order[0], order[1] = 1, 0
    return tuple(order)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: MeshgridAttrs) -> Type:
    parts = tensor_fields(ctx, arg_types)
    if attrs.indexing not in ("ij", "xy"):
        raise ctx.fail(f"indexing must be 'ij' or 'xy', not {attrs.indexing!r}")
    shape: list[Dim] = [1] * len(parts)
    for position, axis in enumerate(grid_axes(len(parts), attrs.indexing)):
        part = parts[position]
        if len(part.shape) > 1:
            raise ctx.fail(f"field {position} must have rank 0 or 1, not {len(part.shape)}", 0)
        shape[axis] = part.shape[0] if part.shape else 1
    return TupleType(TensorType(shape, part.dtype) for part in parts)


def _reference(
    inputs: tuple[tuple[Array, ...]], attrs: MeshgridAttrs, result: Type
) -> tuple[Array, ...]:
    parts = [np.atleast_1d(part) for part in inputs[0]]
    axes = grid_axes(len(parts), attrs.indexing)
    sizes = [1] * len(parts)
    for part, axis in zip(parts, axes, strict=True):
        sizes[axis] = part.size
    grids: list[Array] = []
    for part, axis in zip(parts, axes, strict=True):
        along = part.reshape([-1 if at == axis else 1 for at in range(len(parts))])
        grids.append(np.array(np.broadcast_to(along, sizes)))
    return tuple(grids)


register(
    Op(
        name="meshgrid",
        args=("data",),
        attrs=MeshgridAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
        variadic=True,
    )
)
