"""What several computes share: accumulation dtypes, flat positions, extreme values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nimblevm import dtypes
from nimblevm.kernels.loop_ir import SetLocal, Statement, Value
from nimblevm.kernels.tensor_expr import Emitter, Index, Steps, TensorExpr
from nimblevm.relay.dims import Dim
from nimblevm.relay.types import TensorType


def wide(dtype: str) -> str:
    """The dtype in which several operations on `dtype` are computed: float16 in float32."""
    return "float32" if dtype == "float16" else dtype


def widened(em: Emitter, dtype: str, function: Callable[..., Value]) -> Callable[..., Value]:
    """`function` of values of `dtype`, computed in its wide dtype and rounded once."""
    if wide(dtype) == dtype:
        return function

    def computed(*values: Value) -> Value:
        return em.b.cast(function(*(em.b.cast(v, wide(dtype)) for v in values)), dtype)

    return computed


def tensor_type(type_: Any) -> TensorType:
    """A result type that is one tensor."""
    if not isinstance(type_, TensorType):
        raise TypeError(f"expected a tensor type, got {type_!r}")
    return type_


def axis_of(axis: int, rank: int) -> int:
    """An axis attribute, counted from the front."""
    return axis % rank


def known(first: Dim, second: Dim) -> Dim:
    """Of two dims that inference made equal, the static one."""
    return first if isinstance(first, int) else second


def reduced_axes(attrs: Any, rank: int) -> tuple[int, ...]:
    """The axes that a reduction's attributes name, increasing."""
    if not attrs.axis:
        return tuple(range(rank))
    named = {a % rank for a in attrs.axis}
    return tuple(a for a in range(rank) if (a in named) != attrs.exclude)


def least(dtype: str) -> float | int:
    """The least value of a dtype (-inf for floats)."""
    row = dtypes.dtype(dtype)
    return float("-inf") if row.is_float else int(np.iinfo(row.numpy).min)


def greatest(dtype: str) -> float | int:
    """The greatest value of a dtype (inf for floats)."""
    row = dtypes.dtype(dtype)
    return float("inf") if row.is_float else int(np.iinfo(row.numpy).max)


def all_of(em: Emitter, conditions: Sequence[Value]) -> Value:
    """Whether all conditions hold, of one at least."""
    found = conditions[0]
    for condition in conditions[1:]:
        found = em.b.binary("and", found, condition)
    return found


def within(em: Emitter, place: Value, size: Value) -> tuple[Value, Value]:
    """The two conditions of 0 <= place < size."""
    return em.b.compare("ge", place, em.b.i64(0)), em.b.compare("lt", place, size)


def guarded(
    em: Emitter,
    index: Index,
    conditions: Sequence[Value],
    data: TensorExpr,
    place: Index,
    outside: Value,
) -> Steps:
    """data[place] where the conditions hold, else `outside`, for the element at `index`; an If, since a Select would
    read outside of data.
    """
    if not conditions:
        return (yield data, place)
    with em.hoisted(index):
        found = em.local(data.dtype, index)
        em.emit(SetLocal(found, outside))
        body: list[Statement] = []
        with em.block(body):
            element = yield data, place
            em.emit(SetLocal(found, element))
        em.branches([all_of(em, conditions)], [body, []])
    return found


def named(em: Emitter, value: Value, index: Index) -> Value:
    """A value that is computed once for each `index`, in a local, however often it is used below."""
    with em.hoisted(index):
        found = em.local(value.dtype, index)
        em.emit(SetLocal(found, value))
    return found


def scalar(value: Value) -> TensorExpr:
    """A constant as a tensor of rank 0."""

    def at(index: Index) -> Steps:
        return value
        yield

    return TensorExpr((), value.dtype, at)


def flat_position(em: Emitter, shape: Sequence[Dim], index: Index) -> Value:
    """The row-major position of `index` in a tensor of `shape`."""
    position = em.b.i64(0)
    for dim, at in zip(shape, index, strict=True):
        position = em.b.add(em.b.mul(position, em.dim(dim)), at)
    return position


def unflattened(em: Emitter, shape: Sequence[Dim], position: Value) -> Index:
    """The index of a row-major position in a tensor of `shape` that has an element."""
    b = em.b
    index: list[Value] = []
    axes = list(shape)
    for place, dim in enumerate(reversed(axes)):
        if isinstance(dim, int) and dim == 1:
            index.append(b.i64(0))
        elif all(isinstance(d, int) and d == 1 for d in axes[: len(axes) - 1 - place]):
            # What is left belongs to this axis; it is in range because the position is.
            index.append(position)
            position = b.i64(0)
        else:
            # An axis is empty only where no element exists; max tells the code generator so.
            size = (
                em.dim(dim)
                if isinstance(dim, int) and dim > 0
                else b.binary("max", em.dim(dim), b.i64(1))
            )
            index.append(b.binary("floormod", position, size))
            position = b.binary("floordiv", position, size)
    return tuple(reversed(index))


__all__ = [
    "all_of", "axis_of", "flat_position", "greatest", "guarded", "known", "least", "named", "reduced_axes", "scalar",
    "tensor_type", "unflattened", "wide", "widened", "within",
]  # fmt: skip
