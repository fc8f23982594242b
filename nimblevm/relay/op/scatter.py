"""scatter_elements, scatter_nd, invert_permutation: elements written to computed places, every index checked.

    scatter_elements(data, indices, updates, axis=0, reduction="update")
        out = data; then for each i.., k, j.. in order, at p = indices[i.., k, j..] on `axis`:
        out[i.., p, j..] = f(out[i.., p, j..], updates[i.., k, j..])
    scatter_nd(data, indices, updates, mode="update")                           M = indices.shape[0]
        out = data; then for each y.., x.. in order, at p = (indices[0, y..], ..., indices[M - 1, y..]):
        out[p.., x..] = f(out[p.., x..], updates[y.., x..])
    invert_permutation(data)    out[data[i]] = i; places that data does not name hold 0, the last of equals wins

    f(old, new): "update" new, "add" old + new, "mul" old * new, "min", "max", "mean" (old + new) / 2

data: any dtype (bool with "update" only; invert_permutation: int32 or int64 of rank 1); indices: any integer
dtype; updates: data's dtype, of indices' shape (whose sizes but for `axis` are at most data's), or of shape
y.. + data.shape[M:]. Negative indices count from the end; IndexOutOfRange for those outside -n..n - 1.
Result: data's type. "mean" (scatter_elements only) divides integers towards zero. Attrs: axis, reduction;
mode. Source: Relay's scatter_elements, scatter_nd, invert_permutation.
Differs from numpy: numpy has no such functions; the order of equal indices is fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import (
    ALL,
    INTEGERS,
    Array,
    Attrs,
    as_compute,
    axis_index,
    dtype_name,
    require_same,
    rounded,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.gather import positions, tuple_rank
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import require_at_least
from nimblevm.relay.types import TensorType, Type

MODES = ("update", "add", "mul", "min", "max")
REDUCTIONS = (*MODES, "mean")
PERMUTATIONS = ("int32", "int64")


@dataclass(frozen=True, slots=True)
class ScatterElementsAttrs(Attrs):
    """axis: the axis that indices are about. reduction: update, add, mul, min, max or mean."""

    axis: int = 0
    reduction: str = "update"


@dataclass(frozen=True, slots=True)
class ScatterNDAttrs(Attrs):
    """mode: update, add, mul, min or max."""

    mode: str = "update"


def _check_mode(
    ctx: TypeContext, data: TensorType, name: str, mode: str, known: tuple[str, ...]
) -> None:
    if mode not in known:
        raise ctx.fail(f"{name} must be one of {', '.join(known)}, not {mode!r}")
    if data.dtype == "bool" and mode != "update":
        raise ctx.fail(f"{name} {mode!r} needs a numeric tensor, not bool", 0)


def _elements(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ScatterElementsAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    indices = tensor_of(ctx, arg_types, 1, INTEGERS)
    updates = tensor_of(ctx, arg_types, 2)
    _check_mode(ctx, data, "reduction", attrs.reduction, REDUCTIONS)
    same_dtype(ctx, data, updates, 2)
    rank = len(data.shape)
    axis = axis_index(ctx, attrs.axis, rank)
    for index, other in ((1, indices), (2, updates)):
        if len(other.shape) != rank:
            raise ctx.fail(f"argument {index} must have data's rank {rank}", index)
    for at in range(rank):
        if at != axis:
            require_at_least(ctx, 0, at, data.shape[at], indices.shape[at], "data of the indices")
        require_same(ctx, (1, at, indices.shape[at]), (2, at, updates.shape[at]))
    return data


def _nd(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ScatterNDAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    indices = tensor_of(ctx, arg_types, 1, INTEGERS)
    updates = tensor_of(ctx, arg_types, 2)
    _check_mode(ctx, data, "mode", attrs.mode, MODES)
    same_dtype(ctx, data, updates, 2)
    if not indices.shape or not 0 <= len(updates.shape) - len(indices.shape) + 1 <= len(data.shape):
        raise ctx.fail("updates must have the shape indices.shape[1:] + data.shape[M:]", 2)
    outer = len(indices.shape) - 1
    # Where the first axis of indices is unknown, the ranks say what M has to be.
    named = tuple_rank(ctx, indices, len(data.shape), outer + len(data.shape) - len(updates.shape))
    for at in range(len(updates.shape)):
        if at < outer:
            first = (1, at + 1, indices.shape[at + 1])
        else:
            first = (0, at - outer + named, data.shape[at - outer + named])
        require_same(ctx, first, (2, at, updates.shape[at]))
    return data


def _permutation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: object) -> Type:
    data = tensor_of(ctx, arg_types, 0, PERMUTATIONS)
    if len(data.shape) != 1:
        raise ctx.fail(f"data must have rank 1, not {len(data.shape)}", 0)
    return data


def _half(old: Array, new: Array) -> Array:
    total = old + new
    if total.dtype.kind == "f":
        return np.asarray(total / total.dtype.type(2))
    return np.asarray(total // 2 + ((total < 0) & (total % 2 != 0)))


_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: np.asarray(old + new),
    "mul": lambda old, new: np.asarray(old * new),
    "min": lambda old, new: np.asarray(np.minimum(old, new)),
    "max": lambda old, new: np.asarray(np.maximum(old, new)),
    "mean": _half,
}


def _scatter(data: Array, places: tuple[Array, ...], updates: Array, mode: str) -> Array:
    """data with updates[y] combined into data[places[0][y], ...], one after the other."""
    out, dtype = np.array(data), dtype_name(data)
    combine = _COMBINE[mode]
    with np.errstate(all="ignore"):
        for at in np.ndindex(*places[0].shape):
            where = tuple(int(p[at]) for p in places)
            new, old = as_compute(np.asarray(updates[at])), as_compute(np.asarray(out[where]))
            out[where] = rounded(combine(old, new), dtype)
    return out


def _elements_reference(
    inputs: tuple[Array, ...], attrs: ScatterElementsAttrs, result: Type
) -> Array:
    data, indices, updates = inputs
    axis = attrs.axis % data.ndim
    places: list[Array] = list(np.indices(indices.shape))
    places[axis] = positions("scatter_elements", indices, data.shape[axis])
    return _scatter(data, tuple(places), updates, attrs.reduction)


def _nd_reference(inputs: tuple[Array, ...], attrs: ScatterNDAttrs, result: Type) -> Array:
    data, indices, updates = inputs
    if not len(indices):
        places: tuple[Array, ...] = ()
        out = np.array(data)
        for at in np.ndindex(*indices.shape[1:]):
            out = _scatter(out[None], (np.zeros((1,), "int64"),), updates[at][None], attrs.mode)[0]
        return out
    # An index is only read where there is an update for it.
    empty = updates.size == 0
    places = tuple(
        np.zeros(part.shape, "int64") if empty else positions("scatter_nd", part, data.shape[axis])
        for axis, part in enumerate(indices)
    )
    return np.array(data) if empty else _scatter(data, places, updates, attrs.mode)


def _permutation_reference(inputs: tuple[Array, ...], attrs: object, result: Type) -> Array:
    (data,) = inputs
    out = np.zeros_like(data)
    places = positions("invert_permutation", data, data.size)
    for number, place in enumerate(places):
        out[place] = number
    return out


register(
    Op(
        name="scatter_elements",
        args=("data", "indices", "updates"),
        attrs=ScatterElementsAttrs,
        relation=_elements,
        reference=_elements_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(ALL, INTEGERS, ALL),
        doc=__doc__,
    )
)
register(
    Op(
        name="scatter_nd",
        args=("data", "indices", "updates"),
        attrs=ScatterNDAttrs,
        relation=_nd,
        reference=_nd_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(ALL, INTEGERS, ALL),
        doc=__doc__,
    )
)
register(
    Op(
        name="invert_permutation",
        args=("data",),
        relation=_permutation,
        reference=_permutation_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(PERMUTATIONS,),
        doc=__doc__,
    )
)
