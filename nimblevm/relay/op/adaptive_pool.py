"""Pools whose result has a given size, and pools over whole axes: one table.

    nn.adaptive_avg_pool2d:  out[n, c, y, x] = mean of data[n, c, floor(y * H / h) : ceil((y + 1) * H / h), ...]
    nn.adaptive_max_pool2d:  the greatest element of the same
    nn.global_avg_pool2d:    out[n, c, 0, 0] = mean of data[n, c]
    nn.global_max_pool2d:    out[n, c, 0, 0] = the greatest element of data[n, c]

Integer means are exact sums divided towards zero; NaN is the greatest. Result: data's dtype. Attrs: output_size (one
integer an axis, or one for all; None or (): the sizes of data), layout, out_layout ("" = layout). The axes must not
be empty. Source: Relay's nn/nn.py. Differs from numpy: there is none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ACCUMULATED,
    Array,
    Attrs,
    dtype_name,
    require_nonempty,
    rounded,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.pool import DTYPES, mean_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import (
    SPATIAL,
    arranged,
    check_rank,
    layout_of,
    numbers,
    per_axis,
    to_order,
)
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class Row:
    """One operator: over `rank` axes, `mean` or the greatest, of given sizes or `whole` axes."""

    name: str
    rank: int
    mean: bool
    whole: bool

    @property
    def spatial(self) -> str:
        return SPATIAL[self.rank]

    @property
    def layout(self) -> str:
        return "NC" + self.spatial


TABLE = tuple(
    Row(f"nn.{form}_{kind}_pool{rank}d", rank, kind == "avg", form == "global")
    for rank in (1, 2, 3)
    for form in ("adaptive", "global")
    for kind in ("max", "avg")
)
ROWS = {row.name: row for row in TABLE}


@dataclass(frozen=True, slots=True)
class AdaptivePool1DAttrs(Attrs):
    """output_size: one integer; None or (): data's. layout, out_layout: letters of the axes."""

    output_size: tuple[int, ...] | None = None
    layout: str = "NCW"
    out_layout: str = ""

    def __post_init__(self) -> None:
        set_axes(self, "output_size")
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class AdaptivePool2DAttrs(Attrs):
    """output_size: one integer an axis, or one for all; None or (): data's. layout, out_layout: letters of the axes."""

    output_size: tuple[int, ...] | None = None
    layout: str = "NCHW"
    out_layout: str = ""

    def __post_init__(self) -> None:
        set_axes(self, "output_size")
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class AdaptivePool3DAttrs(Attrs):
    """output_size: one integer an axis, or one for all; None or (): data's. layout, out_layout: letters of the axes."""

    output_size: tuple[int, ...] | None = None
    layout: str = "NCDHW"
    out_layout: str = ""

    def __post_init__(self) -> None:
        set_axes(self, "output_size")
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class GlobalPool1DAttrs(Attrs):
    """layout, out_layout: letters of the axes."""

    layout: str = "NCW"
    out_layout: str = ""


@dataclass(frozen=True, slots=True)
class GlobalPool2DAttrs(Attrs):
    """layout, out_layout: letters of the axes."""

    layout: str = "NCHW"
    out_layout: str = ""


@dataclass(frozen=True, slots=True)
class GlobalPool3DAttrs(Attrs):
    """layout, out_layout: letters of the axes."""

    layout: str = "NCDHW"
    out_layout: str = ""


_ADAPTIVE: dict[int, type[Attrs]] = {
    1: AdaptivePool1DAttrs,
    2: AdaptivePool2DAttrs,
    3: AdaptivePool3DAttrs,
}
_GLOBAL: dict[int, type[Attrs]] = {1: GlobalPool1DAttrs, 2: GlobalPool2DAttrs, 3: GlobalPool3DAttrs}


def attrs_of(row: Row) -> type[Attrs]:
    """The class of a row's attributes."""
    return (_GLOBAL if row.whole else _ADAPTIVE)[row.rank]


def out_sizes(row: Row, attrs: Any, sizes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The sizes of the result along the pooled axes, of attributes that are right."""
    if row.whole:
        return (1,) * row.rank
    if not attrs.output_size:
        return sizes
    return per_axis(attrs.output_size, row.rank)


def _relation(row: Row) -> Callable[[TypeContext, tuple[Type, ...], Any], Type]:
    def relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
        data = tensor_of(ctx, arg_types, 0, DTYPES)
        layout = layout_of(ctx, "layout", attrs.layout, row.layout)
        out_layout = layout_of(ctx, "out_layout", attrs.out_layout or layout, row.layout)
        if not row.whole and attrs.output_size:
            numbers(ctx, "output_size", attrs.output_size, row.rank, 1)
        check_rank(ctx, data, layout, 0)
        found = dict(zip(layout, data.shape, strict=True))
        sizes = tuple(found[letter] for letter in row.spatial)
        for letter, size in zip(row.spatial, sizes, strict=True):
            require_nonempty(ctx, 0, layout.index(letter), size, row.name)
        found.update(zip(row.spatial, out_sizes(row, attrs, sizes), strict=True))
        return TensorType(arranged(out_layout, found), data.dtype)

    return relation


def _reference(row: Row) -> Callable[[tuple[Array, ...], Any, Type], Array]:
    def reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
        data = to_order(inputs[0], attrs.layout, row.layout)
        sizes = data.shape[2:]
        if 0 in sizes:
            raise ShapeMismatch(f"{row.name}: the axes {sizes} must not be empty")
        wide = data
        if row.mean:
            wide = data.astype("float64" if data.dtype.kind == "f" else "int64")
        outs = [int(n) for n in out_sizes(row, attrs, sizes)]  # type: ignore[arg-type]
        axes = tuple(range(2, data.ndim))
        out = np.empty((*data.shape[:2], *outs), wide.dtype)
        with np.errstate(all="ignore"):
            for place in itertools.product(*map(range, outs)):
                cut = tuple(
                    slice(at * size // n, -(-(at + 1) * size // n))
                    for at, size, n in zip(place, sizes, outs, strict=True)
                )
                part = wide[(slice(None), slice(None), *cut)]
                count = int(np.prod(part.shape[2:]))
                found = mean_of(part.sum(axes), count) if row.mean else part.max(axes)
                index: Any = (slice(None), slice(None), *place)
                out[index] = found
            out = to_order(out, row.layout, attrs.out_layout or attrs.layout)
            return rounded(np.ascontiguousarray(out), dtype_name(inputs[0]))

    return reference


for _row in TABLE:
    register(
        Op(
            name=_row.name,
            args=("data",),
            attrs=attrs_of(_row),
            relation=_relation(_row),
            reference=_reference(_row),
            pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
            effect=Effect.TOTAL,
            dtypes=(DTYPES,),
            doc=__doc__ or "",
            tolerance=ACCUMULATED if _row.mean else {},
        )
    )
