"""Pools: the greatest element or the mean of windows, one table.

    nn.max_pool2d:  out[n, c, y, x] = max over r, s of data[n, c, y * stride - before + r * dilation, ...]
    nn.avg_pool2d:  out[n, c, y, x] = sum over r, s of data[n, c, y * stride - before + r * dilation, ...] / count

Elements outside of data are never the greatest and add 0. count is the number of elements of the window that are in
data (at least 1), or with count_include_pad the kernel's size. Integer means are exact sums divided towards zero. A
window of padding only gives the least value of the dtype (max) or 0 (mean). NaN is the greatest. Result: data's
dtype. Attrs: pool_size, strides, dilation, padding (1 value, one an axis, or all befores and then all afters),
layout, out_layout ("" = layout), ceil_mode (the last window may reach beyond the padding by less than a stride),
count_include_pad. A window must fit the padded data. Source: Relay's nn/nn.py. Differs from numpy: there is none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ACCUMULATED,
    NUMERIC,
    Array,
    Attrs,
    dtype_name,
    rounded,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import (
    SPATIAL,
    Window,
    arranged,
    check_rank,
    layout_of,
    numbers,
    padding_of,
    padding_pairs,
    per_axis,
    require_fits,
    to_order,
)
from nimblevm.relay.types import TensorType, Type

DTYPES = NUMERIC


@dataclass(frozen=True, slots=True)
class Row:
    """One operator: over `rank` axes, `mean` or the greatest."""

    name: str
    rank: int
    mean: bool

    @property
    def spatial(self) -> str:
        return SPATIAL[self.rank]

    @property
    def layout(self) -> str:
        return "NC" + self.spatial


TABLE = tuple(
    Row(f"nn.{kind}_pool{rank}d", rank, kind == "avg")
    for rank in (1, 2, 3)
    for kind in ("max", "avg")
)
ROWS = {row.name: row for row in TABLE}


def _attrs_class(row: Row) -> type:
    """The attributes in TVM's order, with its defaults for the row's rank."""
    zeros, ones = (0,) * row.rank, (1,) * row.rank
    fields: list[tuple[str, Any, Any]] = [
        ("pool_size", tuple[int, ...], ones), ("strides", tuple[int, ...], ones),
        ("dilation", tuple[int, ...], ones), ("padding", tuple[int, ...], zeros), ("layout", str, row.layout),
        ("out_layout", str, ""), ("ceil_mode", bool, False),
    ]  # fmt: skip
    if row.mean:
        fields.append(("count_include_pad", bool, False))
    return make_dataclass(
        f"{'Avg' if row.mean else 'Max'}Pool{row.rank}DAttrs", fields, bases=(Attrs,), frozen=True, slots=True,
        namespace={"__doc__": "See the module's docstring: " + ", ".join(f[0] for f in fields), "__module__": __name__},
    )  # fmt: skip


ATTRS = {row.name: _attrs_class(row) for row in TABLE}


def windows(row: Row, attrs: Any, sizes: tuple[Dim, ...]) -> list[Window]:
    """The windows along each axis, of attributes that are right; with ceil_mode, the padding is a stride - 1 longer."""
    count = row.rank
    lists = [per_axis(v, count) for v in (attrs.pool_size, attrs.strides, attrs.dilation)]
    pairs = padding_pairs(attrs.padding, count)
    return [
        Window(size, k, s, d, before, after + (s - 1 if attrs.ceil_mode else 0))
        for size, k, s, d, (before, after) in zip(sizes, *lists, pairs, strict=True)
    ]


def result_type(ctx: TypeContext, row: Row, data: TensorType, attrs: Any, index: int) -> TensorType:
    """The type of the pool of argument `index`."""
    layout = layout_of(ctx, "layout", attrs.layout, row.layout)
    out_layout = layout_of(ctx, "out_layout", attrs.out_layout or layout, row.layout)
    for name in ("pool_size", "strides", "dilation"):
        numbers(ctx, name, getattr(attrs, name), row.rank, 1)
    padding_of(ctx, attrs.padding, row.rank)
    check_rank(ctx, data, layout, index)
    found = dict(zip(layout, data.shape, strict=True))
    sizes = tuple(found[letter] for letter in row.spatial)
    for letter, window in zip(row.spatial, windows(row, attrs, sizes), strict=True):
        require_fits(ctx, index, layout.index(letter), window)
        found[letter] = window.out
    return TensorType(arranged(out_layout, found), data.dtype)


def _relation(row: Row) -> Callable[[TypeContext, tuple[Type, ...], Any], Type]:
    def relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
        return result_type(ctx, row, tensor_of(ctx, arg_types, 0, DTYPES), attrs, 0)

    return relation


def _taken(data: Array, found: list[Window], fill: Any) -> Array:
    """(N, C, ...) -> (offsets, N, C, outputs...): what every window holds at each offset of the kernel."""
    pads = [(0, 0), (0, 0), *((w.before, w.after) for w in found)]
    padded = np.pad(data, pads, constant_values=fill)
    outs = [int(w.out) for w in found]  # type: ignore[arg-type]
    parts = []
    for place in itertools.product(*(range(int(w.kernel)) for w in found)):  # type: ignore[arg-type]
        cut: list[slice] = [slice(None), slice(None)]
        for k, w, n in zip(place, found, outs, strict=True):
            first = k * w.dilation
            cut.append(slice(first, first + (n - 1) * w.stride + 1, w.stride))
        parts.append(padded[tuple(cut)])
    return np.stack(parts)


def least_of(dtype: Any) -> Any:
    """The least value of a dtype."""
    kind = np.dtype(dtype)
    return -np.inf if kind.kind == "f" else np.iinfo(kind).min


def mean_of(total: Array, count: Array | int) -> Array:
    """Sums (float64 or int64) divided by counts; integers towards zero."""
    if total.dtype.kind == "f":
        return np.asarray(total / count)
    quotient = np.abs(total) // count
    return np.asarray(np.where(total < 0, -quotient, quotient))


def _reference(row: Row) -> Callable[[tuple[Array, ...], Any, Type], Array]:
    def reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
        dtype = dtype_name(inputs[0])
        data = to_order(inputs[0], attrs.layout, row.layout)
        found = windows(row, attrs, data.shape[2:])
        if any(w.padded < w.reach for w in found):  # type: ignore[operator]
            raise ShapeMismatch(f"{row.name}: the window does not fit {data.shape[2:]}")
        with np.errstate(all="ignore"):
            if row.mean:
                wide = data.astype("float64" if data.dtype.kind == "f" else "int64")
                inside = np.ones((1, 1, *data.shape[2:]), "int64")
                count: Any = np.maximum(_taken(inside, found, 0).sum(0), 1)
                if attrs.count_include_pad:
                    sizes: list[Any] = [w.kernel for w in found]
                    count = int(np.prod(sizes))
                out = mean_of(_taken(wide, found, 0).sum(0), count)
            else:
                out = _taken(data, found, least_of(data.dtype)).max(0)
        out = to_order(out, row.layout, attrs.out_layout or attrs.layout)
        return rounded(np.ascontiguousarray(out), dtype)

    return reference


for _row in TABLE:
    register(
        Op(
            name=_row.name,
            args=("data",),
            attrs=ATTRS[_row.name],
            relation=_relation(_row),
            reference=_reference(_row),
            pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
            effect=Effect.TOTAL,
            dtypes=(DTYPES,),
            doc=__doc__ or "",
            tolerance=ACCUMULATED if _row.mean else {},
        )
    )
