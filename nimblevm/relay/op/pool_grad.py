"""nn.max_pool2d_grad and nn.avg_pool2d_grad: how a pool's input is to change for its result to change.

    nn.max_pool2d_grad(out_grad, data):
        out[n, c, i, j] = sum of out_grad[n, c, y, x] over the windows whose first greatest element is data[n, c, i, j]
    nn.avg_pool2d_grad(out_grad, data):
        out[n, c, i, j] = sum of out_grad[n, c, y, x] / count over the windows that hold data[n, c, i, j]

Window and count are those of nn.max_pool2d and nn.avg_pool2d; padding is never the greatest element.
out_grad: what nn.max_pool2d or nn.avg_pool2d with these attributes would give of data, in dtype, shape and layout
(out_layout). data: a float tensor of rank 4; the result has its type. A NaN is greatest. float16 is accumulated in
float32. Attrs: those of the pool, dilation too; the Python functions have TVM's, without it.
Source: Relay's nn.max_pool2d_grad and nn.avg_pool2d_grad.
Differs from numpy: there is no such function.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay.op import pool
from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    as_wide,
    dtype_name,
    rounded,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import Window, check_rank, to_order
from nimblevm.relay.types import Type


@dataclass(frozen=True, slots=True)
class Row:
    """One operator, and the pool that it is of."""

    name: str
    pool: pool.Row


TABLE = tuple(Row(f"{name}_grad", pool.ROWS[name]) for name in ("nn.max_pool2d", "nn.avg_pool2d"))
ROWS = {row.name: row for row in TABLE}


def _relation(row: Row) -> Callable[[TypeContext, tuple[Type, ...], Any], Type]:
    def relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
        grad, data = (tensor_of(ctx, arg_types, index, FLOATS) for index in range(2))
        same_dtype(ctx, grad, data, 1)
        result = pool.result_type(ctx, row.pool, data, attrs, 1)
        check_rank(ctx, grad, attrs.out_layout or attrs.layout, 0)
        for axis, size in enumerate(result.shape):
            ctx.require_dim(0, axis, size)
        return data

    return relation


def _cuts(found: list[Window]) -> Iterator[tuple[slice, ...]]:
    """For each offset in a window, in order, where the elements of all windows lie in padded data."""
    for place in itertools.product(*(range(int(w.kernel)) for w in found)):  # type: ignore[arg-type]
        cut = [slice(None), slice(None)]
        for k, w in zip(place, found, strict=True):
            first, count = k * w.dilation, int(w.out)  # type: ignore[arg-type]
            cut.append(slice(first, first + (count - 1) * w.stride + 1, w.stride))
        yield tuple(cut)


def _reference(row: Row) -> Callable[[tuple[Array, ...], Any, Type], Array]:
    def reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
        order = row.pool.layout
        grad = as_wide(to_order(inputs[0], attrs.out_layout or attrs.layout, order))
        data = to_order(inputs[1], attrs.layout, order)
        found = pool.windows(row.pool, attrs, data.shape[2:])
        pads = [(0, 0), (0, 0), *((w.before, w.after) for w in found)]
        inside = np.pad(np.ones(data.shape, "bool"), pads)
        total = np.zeros(inside.shape, "float64")
        cuts = list(_cuts(found))
        with np.errstate(all="ignore"):
            if row.pool.mean:
                parts = [_share(grad, inside, cuts, attrs)] * len(cuts)
            else:
                padded = np.pad(data, pads, constant_values=-np.inf)
                parts = _of_greatest(grad, padded, inside, cuts)
            for cut, part in zip(cuts, parts, strict=True):
                total[cut] += part
        above, left = (w.before for w in found)
        kept = total[:, :, above : above + data.shape[2], left : left + data.shape[3]]
        return rounded(to_order(kept, order, attrs.layout), dtype_name(data))

    return reference


def _share(grad: Array, inside: Array, cuts: list[tuple[slice, ...]], attrs: Any) -> Array:
    """What each window gives to each of its elements."""
    if attrs.count_include_pad:
        return np.asarray(grad / len(cuts))
    return np.asarray(grad / np.maximum(sum(inside[cut].astype("int64") for cut in cuts), 1))


def _of_greatest(
    grad: Array, padded: Array, inside: Array, cuts: list[tuple[slice, ...]]
) -> list[Array]:
    """What each window gives to its element at each offset: all of it to one."""
    values = np.stack([padded[cut] for cut in cuts])
    wins = (values == values.max(0)) | np.isnan(values)
    wins &= np.stack([inside[cut] for cut in cuts])
    first = np.where(wins.any(0), wins.argmax(0), -1)
    return [np.where(first == place, grad, 0) for place in range(len(cuts))]


for _row in TABLE:
    register(
        Op(
            name=_row.name,
            args=("out_grad", "data"),
            attrs=pool.ATTRS[_row.pool.name],
            relation=_relation(_row),
            reference=_reference(_row),
            pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
            effect=Effect.TOTAL,
            dtypes=(FLOATS,),
            doc=__doc__ or "",
            tolerance=ACCUMULATED,
        )
    )
