"""Cases of mathematics, statistics and normalization."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nimblevm.relay.op import (
    cast,
    dropout,
    get,
    l2_normalize,
    leaky_relu,
    norm,
    prelu,
    scan,
    shape_of,
    softmax,
    variance,
)
from nimblevm.relay.op.common import NUMERIC
from tests.relay.op.draw import Case, Source, array, flag, operands, pick, shape


def _power(source: Source, dtype: str) -> Case:
    """Integers: no 0 to a negative power, which is an error."""
    a, b = operands(source, 2)
    base, exponent = array(source, a, dtype), array(source, b, dtype)
    if np.dtype(dtype).kind == "i":
        if flag(source):
            base = np.where(base == 0, base.dtype.type(pick(source, (1, -1, 2))), base)
        else:
            exponent = np.where(exponent < 0, ~exponent, exponent)
    return Case((base, exponent))


def _leaky_relu(source: Source, dtype: str) -> Case:
    attrs = leaky_relu.LeakyReluAttrs(pick(source, (0.01, 0.25, 0.0, 2.0)))
    return Case((array(source, shape(source), dtype),), attrs)


def _prelu(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    axis = source.integer(-len(dims), len(dims) - 1)
    alpha = array(source, (dims[axis],), dtype)
    return Case((array(source, dims, dtype), alpha), prelu.PReluAttrs(axis))


def _cast_like(source: Source, dtype: str) -> Case:
    like = array(source, shape(source), pick(source, get("cast_like").dtypes[1]))
    return Case((array(source, shape(source), dtype), like))


def _reinterpret(source: Source, dtype: str) -> Case:
    size = np.dtype(dtype).itemsize
    allowed = get("reinterpret").dtypes[0]
    target = pick(source, tuple(d for d in allowed if np.dtype(d).itemsize == size))
    return Case((array(source, shape(source), dtype),), cast.CastAttrs(target))


def _ndarray_size(source: Source, dtype: str) -> Case:
    attrs = shape_of.ShapeOfAttrs(pick(source, ("int32", "int64")))
    return Case((array(source, shape(source), dtype),), attrs)


def _batch_flatten(source: Source, dtype: str) -> Case:
    return Case((array(source, shape(source, 1, 4), dtype),))


def _softmax(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    axis = source.integer(-len(dims), len(dims) - 1)
    return Case((array(source, dims, dtype, special=False),), softmax.SoftmaxAttrs(axis))


def _dropout(source: Source, dtype: str) -> Case:
    return Case((array(source, shape(source), dtype),), dropout.DropoutAttrs(0.25))


def _normalized(
    source: Source, dtype: str, vectors: int, groups: int = 1
) -> tuple[tuple[np.ndarray, ...], int]:
    """data and its vectors, and the axis; its size is a multiple of `groups`."""
    dims = list(shape(source, 1, 4, (0, 1, 2, 3)))
    axis = source.integer(-len(dims), len(dims) - 1)
    dims[axis] *= groups
    made = [array(source, (dims[axis],), dtype, special=False) for _ in range(vectors)]
    return (array(source, tuple(dims), dtype, special=False), *made), axis


def _batch_norm(source: Source, dtype: str) -> Case:
    inputs, axis = _normalized(source, dtype, 4)
    attrs = norm.NormAttrs(axis, 1e-3, flag(source), flag(source))
    spread = np.asarray(np.abs(inputs[4]) + 0.25, dtype)
    return Case((*inputs[:4], spread), attrs)


def _instance_norm(source: Source, dtype: str) -> Case:
    inputs, axis = _normalized(source, dtype, 2)
    return Case(inputs, norm.NormAttrs(axis, 0.5, flag(source), flag(source)))


def _group_norm(source: Source, dtype: str) -> Case:
    groups = source.integer(1, 3)
    inputs, axis = _normalized(source, dtype, 2, groups)
    return Case(inputs, norm.GroupNormAttrs(groups, axis, 0.5, flag(source), flag(source)))


def _axes(source: Source, rank: int) -> tuple[int, ...] | None:
    axes = tuple(a - rank if flag(source) else a for a in range(rank) if flag(source))
    return None if flag(source) else axes


def _l2_normalize(source: Source, dtype: str) -> Case:
    dims = shape(source)
    attrs = l2_normalize.L2NormalizeAttrs(pick(source, (1e-3, 4.0)), _axes(source, len(dims)))
    return Case((array(source, dims, dtype, special=False),), attrs)


def _variance(source: Source, dtype: str) -> Case:
    dims = shape(source)
    axis, exclude = _axes(source, len(dims)), flag(source)
    attrs = variance.VarianceAttrs(axis, flag(source), exclude, flag(source))
    named = {a % len(dims) for a in axis} if axis else set(range(len(dims)))
    kept = tuple(1 if (a in named) != (exclude and bool(axis)) else d for a, d in enumerate(dims))
    data = array(source, dims, dtype, special=False)
    return Case((data, array(source, kept, dtype, special=False)), attrs)


def _scan(source: Source, dtype: str) -> Case:
    dims = shape(source)
    axis = source.integer(-len(dims), len(dims) - 1) if dims and flag(source) else None
    target = "" if dtype != "bool" and flag(source) else pick(source, NUMERIC)
    attrs = scan.ScanopAttrs(axis, target, flag(source))
    # Halves: no sum or product of theirs is rounded, whatever the order.
    data = array(source, dims, dtype, special=False)
    if data.dtype.kind == "f":
        data = np.asarray(np.clip(np.round(data), -2, 2) / 2, dtype)
    return Case((data,), attrs)


CASES: dict[str, Callable[[Source, str], Case]] = {
    "power": _power, "nn.leaky_relu": _leaky_relu, "nn.prelu": _prelu, "cast_like": _cast_like,
    "ndarray_size": _ndarray_size, "reinterpret": _reinterpret, "nn.batch_flatten": _batch_flatten, "nn.log_softmax": _softmax,
    "nn.fast_softmax": _softmax, "nn.dropout": _dropout, "nn.batch_norm": _batch_norm,
    "nn.instance_norm": _instance_norm, "nn.group_norm": _group_norm, "nn.l2_normalize": _l2_normalize,
    "variance": _variance, "cumsum": _scan, "cumprod": _scan,
}  # fmt: skip
