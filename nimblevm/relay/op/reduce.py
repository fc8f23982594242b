"""Reductions over axes: one table.

    out[kept axes] = f over the reduced axes of data

Attrs: axis (None or () = all axes; negative counts from the end), keepdims (reduced axes stay with size
1), exclude (reduce all axes but these), and for argmax and argmin select_last_index (of equal elements
the last one instead of the first). Result: data's dtype, for argmax and argmin int32 (position in the
reduced axes, flattened row-major). Integers wrap; float16 is accumulated in float32. Source: Relay's
_reduce.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.op.common import (
    ACCUMULATED,
    BOOL,
    FLOATS,
    NUMERIC,
    Array,
    Attrs,
    as_wide,
    axis_list,
    dtype_name,
    require_nonempty,
    rounded,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class ReduceAttrs(Attrs):
    """axis: None or a tuple of ints. keepdims: keep reduced axes. exclude: `axis` lists the axes to keep."""

    axis: tuple[int, ...] | None = None
    keepdims: bool = False
    exclude: bool = False

    def __post_init__(self) -> None:
        set_axes(self)
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class ArgReduceAttrs(Attrs):
    """As ReduceAttrs; select_last_index: among equal elements take the last."""

    axis: tuple[int, ...] | None = None
    keepdims: bool = False
    select_last_index: bool = False
    exclude: bool = False

    def __post_init__(self) -> None:
        set_axes(self)
        Attrs.__post_init__(self)


def _arg_reduce(better: Callable[..., Any]) -> Callable[[Array, bool], Array]:
    """The position on the last axis of the best element; a NaN counts as best, as in numpy."""

    def find(rows: Array, last: bool) -> Array:
        if not last:
            return np.asarray(better(rows, axis=-1))
        return np.asarray(rows.shape[-1] - 1 - better(rows[..., ::-1], axis=-1))

    return find


@dataclass(frozen=True, slots=True)
class Row:
    """One reduction. `function(rows, dtype)` reduces the last axis; `needs` says when an empty one is refused."""

    name: str
    formula: str
    function: Callable[[Array, str], Any]
    differs: str = "integers keep their dtype and wrap"
    dtypes: tuple[str, ...] = NUMERIC
    needs: tuple[str, ...] = ()
    find: Callable[[Array, bool], Array] | None = None


def _mean(rows: Array, dtype: str) -> Any:
    total = np.sum(rows, axis=-1, dtype=rows.dtype)
    count = rows.shape[-1]
    if rows.dtype.kind == "f":
        return np.divide(total, rows.dtype.type(count))
    # The wrapped sum, divided in 64 bits: a count that does not fit the dtype must not become 0.
    exact = np.asarray(total).astype(object)
    return np.asarray(np.where(exact < 0, -(-exact // count), exact // count)).astype(dtype)


def _not_called(rows: Array, dtype: str) -> Any:
    raise TypeError("argmax and argmin use `find`")


ORDERED = NUMERIC + BOOL
"""What has a greatest element; False is less than True."""

TABLE: tuple[Row, ...] = (
    Row("sum", "the sum; 0 if nothing is summed", lambda x, d: np.sum(x, axis=-1, dtype=x.dtype)),
    Row("prod", "the product; 1 if nothing is multiplied", lambda x, d: np.prod(x, axis=-1, dtype=x.dtype)),
    Row(
        "mean", "sum / count; integers: the wrapped sum, towards zero; an empty float axis gives NaN", _mean,
        "integers keep their dtype", needs=tuple(d for d in NUMERIC if d not in FLOATS),
    ),
    Row(
        "max", "the greatest element; NaN if there is one", lambda x, d: np.max(x, axis=-1), "none", ORDERED, ORDERED,
    ),
    Row(
        "min", "the least element; NaN if there is one", lambda x, d: np.min(x, axis=-1), "none", ORDERED, ORDERED,
    ),
    Row("all", "True if no element is False", lambda x, d: np.all(x, axis=-1), "bool only", BOOL),
    Row("any", "True if an element is True", lambda x, d: np.any(x, axis=-1), "bool only", BOOL),
    Row(
        "argmax", "the position of the first greatest element; NaN counts as greatest", _not_called,
        "int32 result, several axes, select_last_index", needs=NUMERIC, find=_arg_reduce(np.argmax),
    ),
    Row(
        "argmin", "the position of the first least element; NaN counts as least", _not_called,
        "int32 result, several axes, select_last_index", needs=NUMERIC, find=_arg_reduce(np.argmin),
    ),
)  # fmt: skip


def reduced_axes(ctx: TypeContext, attrs: Any, rank: int) -> tuple[int, ...]:
    """The axes that are reduced, increasing. attrs has axis and exclude."""
    if not attrs.axis:
        return tuple(range(rank))
    named = axis_list(ctx, attrs.axis, rank)
    return tuple(a for a in range(rank) if (a in named) != attrs.exclude)


def _relation(row: Row) -> Callable[[TypeContext, tuple[Type, ...], Any], Type]:
    def relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
        data = tensor_of(ctx, arg_types, 0, row.dtypes)
        axes = reduced_axes(ctx, attrs, len(data.shape))
        if data.dtype in row.needs:
            for axis in axes:
                require_nonempty(ctx, 0, axis, data.shape[axis], row.name)
        if attrs.keepdims:
            shape = tuple(1 if a in axes else d for a, d in enumerate(data.shape))
        else:
            shape = tuple(d for a, d in enumerate(data.shape) if a not in axes)
        return TensorType(shape, "int32" if row.find else data.dtype)

    return relation


def reduced_rows(data: Array, attrs: Any) -> tuple[Array, tuple[int, ...]]:
    """Data with the reduced axes flattened into a last one, and the shape of the result."""
    named = {a % data.ndim for a in attrs.axis} if attrs.axis else set(range(data.ndim))
    axes = [a for a in range(data.ndim) if (a in named) != (attrs.exclude and bool(attrs.axis))]
    kept = [a for a in range(data.ndim) if a not in axes]
    count = int(np.prod([data.shape[a] for a in axes], dtype=np.int64))
    rows = np.transpose(data, kept + axes).reshape(*(data.shape[a] for a in kept), count)
    if attrs.keepdims:
        return rows, tuple(1 if a in axes else d for a, d in enumerate(data.shape))
    return rows, tuple(data.shape[a] for a in kept)


def _reference(row: Row) -> Callable[[tuple[Array, ...], Any, Type], Array]:
    def reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
        (data,) = inputs
        rows, shape = reduced_rows(data, attrs)
        if dtype_name(data) in row.needs and rows.shape[-1] == 0:
            raise ShapeMismatch(f"{row.name}: the reduced axes of {data.shape} have no element")
        with np.errstate(all="ignore"):
            if row.find:
                return rounded(row.find(rows, attrs.select_last_index), "int32").reshape(shape)
            dtype = dtype_name(data)
            return rounded(row.function(as_wide(rows), dtype), dtype).reshape(shape)

    return reference


def _doc(row: Row) -> str:
    refused = "all dtypes" if row.needs == row.dtypes else "integers" if row.needs else "no dtype"
    return (
        f"{row.name}(data, axis=None, keepdims=False, exclude=False): out = {row.formula}\n\n"
        "data: any shape; the axes in `axis` (None = all; exclude: all others) are reduced, and kept with size 1 if "
        f"keepdims.\nResult dtype: {'int32' if row.find else 'as data'}.\nDtypes: {', '.join(row.dtypes)}.\n"
        f"A reduced axis must not be empty for: {refused}.\nDiffers from numpy: {row.differs}."
    )


for _row in TABLE:
    register(
        Op(
            name=_row.name,
            args=("data",),
            attrs=ArgReduceAttrs if _row.find else ReduceAttrs,
            relation=_relation(_row),
            reference=_reference(_row),
            pattern=OpPattern.COMM_REDUCE,
            effect=Effect.TOTAL,
            dtypes=(_row.dtypes,),
            doc=_doc(_row),
            tolerance=ACCUMULATED if _row.name in ("sum", "prod", "mean") else {},
        )
    )
