"""Convolutions over one, two and three axes, and their transposes: one table.

    nn.conv2d:            out[n, o, y, x] = sum over i, r, s of weight[o, i, r, s]
                              * data[n, g * I + i, y * stride - before + r * dilation, ...]
    nn.conv2d_transpose:  out[n, g * O + o, y * stride - before + r * dilation, ...] +=
                              data[n, i, y, x] * weight[i, o, r, s]

Elements outside of data count as 0. data and weight have one dtype, or are int8 and uint8 with a signed out_dtype of
16 bits or more; result in `out_dtype` (int32 for int8 and uint8, say), or the operands' dtype if that is empty. The
operands are converted to `out_dtype` first; integers wrap; float16 is accumulated in float32. Attrs: strides, padding
(1 value, one an axis, or all befores and then all afters), dilation, groups (channels split into groups that do not
mix; weight has in-channels / groups), channels and kernel_size (checked if given), data_layout, kernel_layout,
out_layout ("" = data_layout), out_dtype, and output_padding of a transpose (elements more at the end, less than the
stride). A window must fit the padded data. Source: Relay's nn/nn.py. Differs from numpy: there is none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ACCUMULATED,
    NUMERIC,
    Array,
    Attrs,
    as_wide,
    dtype_name,
    product_dtype,
    require_same,
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
    require_at_least,
    require_fits,
    to_order,
)
from nimblevm.relay.types import TensorType, Type

DTYPES = NUMERIC


@dataclass(frozen=True, slots=True)
class Row:
    """One operator: over `rank` axes, transposed or not."""

    name: str
    rank: int
    transposed: bool

    @property
    def spatial(self) -> str:
        return SPATIAL[self.rank]

    @property
    def data_layout(self) -> str:
        return "NC" + self.spatial

    @property
    def kernel_layout(self) -> str:
        return ("IO" if self.transposed else "OI") + self.spatial


TABLE = (
    Row("nn.conv1d", 1, transposed=False),
    Row("nn.conv2d", 2, transposed=False),
    Row("nn.conv3d", 3, transposed=False),
    Row("nn.conv1d_transpose", 1, transposed=True),
    Row("nn.conv2d_transpose", 2, transposed=True),
    Row("nn.conv3d_transpose", 3, transposed=True),
)
ROWS = {row.name: row for row in TABLE}


def _attrs_class(row: Row) -> type:
    """The attributes in TVM's order, with its defaults for the row's rank."""
    zeros, ones = (0,) * row.rank, (1,) * row.rank
    fields: list[tuple[str, Any, Any]] = [
        ("strides", tuple[int, ...], ones), ("padding", tuple[int, ...], zeros), ("dilation", tuple[int, ...], ones),
        ("groups", int, 1), ("channels", int | None, None), ("kernel_size", tuple[int, ...] | None, None),
        ("data_layout", str, row.data_layout), ("kernel_layout", str, row.kernel_layout), ("out_layout", str, ""),
    ]  # fmt: skip
    if row.transposed:
        fields.append(("output_padding", tuple[int, ...], zeros))
    fields.append(("out_dtype", str, ""))
    name = f"Conv{row.rank}D{'Transpose' if row.transposed else ''}Attrs"
    return make_dataclass(
        name, fields, bases=(Attrs,), frozen=True, slots=True,
        namespace={"__doc__": "See the module's docstring: " + ", ".join(f[0] for f in fields), "__module__": __name__},
    )  # fmt: skip


ATTRS = {row.name: _attrs_class(row) for row in TABLE}


def windows(row: Row, attrs: Any, sizes: tuple[Dim, ...], kernel: tuple[Dim, ...]) -> list[Window]:
    """The windows along each axis, of attributes that are right. For a transpose: those that lead from its result
    (`sizes` is then the result's) back to data."""
    count = row.rank
    strides, dilation = (per_axis(v, count) for v in (attrs.strides, attrs.dilation))
    pairs = padding_pairs(attrs.padding, count)
    return [
        Window(size, k, s, d, before, after)
        for size, k, s, d, (before, after) in zip(
            sizes, kernel, strides, dilation, pairs, strict=True
        )
    ]


def _check_attrs(ctx: TypeContext, row: Row, attrs: Any) -> tuple[str, str, str]:
    """Layouts of data, kernel and result; located errors for attributes that no operands could fit."""
    data = layout_of(ctx, "data_layout", attrs.data_layout, "NC" + row.spatial)
    kernel = layout_of(ctx, "kernel_layout", attrs.kernel_layout, "OI" + row.spatial)
    out = layout_of(ctx, "out_layout", attrs.out_layout or data, "NC" + row.spatial)
    strides = numbers(ctx, "strides", attrs.strides, row.rank, 1)
    numbers(ctx, "dilation", attrs.dilation, row.rank, 1)
    numbers(ctx, "groups", attrs.groups, 1, 1)
    padding_of(ctx, attrs.padding, row.rank)
    if row.transposed:
        more = numbers(ctx, "output_padding", attrs.output_padding, row.rank, 0)
        if any(a >= b for a, b in zip(more, strides, strict=True)):
            raise ctx.fail(f"output_padding {more} must be less than the strides {strides}")
    return data, kernel, out


def require_multiple(ctx: TypeContext, arg: int, axis: int, size: Dim, groups: int) -> Dim:
    """Demand that the groups divide an axis; its size an group."""
    part = dims.floordiv(size, groups)
    if isinstance(size, int):
        if size % groups:
            raise ctx.fail(f"axis {axis} of size {size} does not split into {groups} groups", arg)
    elif groups != 1:
        ctx.require_dim(arg, axis, dims.mul(part, groups))
    return part


def _channels(ctx: TypeContext, row: Row, attrs: Any, data: tuple[int, Dim], weight: Any) -> Dim:
    """The channels of the result. `data`: (axis, size) of data's channels; weight: letter -> (axis, size)."""
    (i_axis, i_size), (o_axis, o_size) = weight["I"], weight["O"]
    groups = attrs.groups
    if row.transposed:
        require_same(ctx, (0, *data), (1, i_axis, i_size))
        require_multiple(ctx, 0, *data, groups)
        out = dims.mul(o_size, groups)
    else:
        if isinstance(data[1], int):
            each = require_multiple(ctx, 0, *data, groups)
            ctx.require_dim(1, i_axis, each)
        else:
            ctx.require_dim(0, data[0], dims.mul(i_size, groups))
        require_multiple(ctx, 1, o_axis, o_size, groups)
        out = o_size
    if attrs.channels is not None:
        share = groups if row.transposed else 1
        if attrs.channels % share:
            raise ctx.fail(f"channels {attrs.channels} do not split into {groups} groups")
        ctx.require_dim(1, o_axis, attrs.channels // share)
        return int(attrs.channels)
    return out


def _sizes(
    ctx: TypeContext, row: Row, attrs: Any, data: dict[str, Any], weight: dict[str, Any]
) -> list[Dim]:
    """The sizes of the result along the axes that windows move on."""
    wanted = attrs.kernel_size
    if wanted is not None:
        wanted = numbers(ctx, "kernel_size", wanted, row.rank, 1)
    kernel: list[Dim] = []
    for position, letter in enumerate(row.spatial):
        axis, size = weight[letter]
        require_at_least(ctx, 1, axis, size, 1, "an empty kernel")
        kernel.append(size if wanted is None else ctx.require_dim(1, axis, wanted[position]))
    sizes = tuple(data[letter][1] for letter in row.spatial)
    found: list[Dim] = []
    more = per_axis(attrs.output_padding if row.transposed else 0, row.rank)
    for window, letter, extra in zip(
        windows(row, attrs, sizes, tuple(kernel)), row.spatial, more, strict=True
    ):
        axis, size = data[letter]
        if not row.transposed:
            require_fits(ctx, 0, axis, window)
            found.append(window.out)
            continue
        fixed = dims.sub(dims.add(window.reach, extra), window.before + window.after)
        steps = dims.floordiv(dims.add(dims.neg(fixed), window.stride - 1), window.stride)
        least = dims.add(dims.max_(steps, 0), 1)
        require_at_least(ctx, 0, axis, size, least, "nothing would be left of the result")
        found.append(dims.add(dims.mul(dims.sub(size, 1), window.stride), fixed))
    return found


def _relation(row: Row) -> Callable[[TypeContext, tuple[Type, ...], Any], Type]:
    def relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
        data, weight = (tensor_of(ctx, arg_types, index, DTYPES) for index in range(2))
        dtype = product_dtype(ctx, data, weight, attrs.out_dtype)
        data_layout, kernel_layout, out_layout = _check_attrs(ctx, row, attrs)
        check_rank(ctx, data, data_layout, 0)
        check_rank(ctx, weight, kernel_layout, 1)
        of_data = {c: (a, data.shape[a]) for a, c in enumerate(data_layout)}
        of_weight = {c: (a, weight.shape[a]) for a, c in enumerate(kernel_layout)}
        channels = _channels(ctx, row, attrs, of_data["C"], of_weight)
        sizes = _sizes(ctx, row, attrs, of_data, of_weight)
        found = {"N": of_data["N"][1], "C": channels}
        found.update(zip(row.spatial, sizes, strict=True))
        return TensorType(arranged(out_layout, found), dtype)

    return relation


def _strided(start: int, stride: int, count: int) -> slice:
    return slice(start, start + (count - 1) * stride + 1, stride)


def _convolve(data: Array, weight: Array, found: list[Window]) -> Array:
    """data (N, G, I, ...) and weight (G, O, I, ...): (N, G, O, ...)."""
    padded = np.pad(data, [(0, 0)] * 3 + [(w.before, w.after) for w in found])
    outs = [int(w.out) for w in found]  # type: ignore[arg-type]
    total = np.zeros((data.shape[0], *weight.shape[:2], *outs), data.dtype)
    for place in itertools.product(*(range(n) for n in weight.shape[3:])):
        cut = tuple(
            _strided(k * w.dilation, w.stride, n)
            for k, w, n in zip(place, found, outs, strict=True)
        )
        part = padded[(slice(None), slice(None), slice(None), *cut)]
        index: Any = (slice(None), slice(None), slice(None), *place)
        kernel = weight[index]
        total += np.einsum("ngi...,goi->ngo...", part, kernel)
    return total


def _scatter(data: Array, weight: Array, found: list[Window], outs: list[int]) -> Array:
    """data (N, G, I, ...) and weight (G, I, O, ...): (N, G, O, ...)."""
    whole = [n + w.before + w.after for n, w in zip(outs, found, strict=True)]
    total = np.zeros((data.shape[0], weight.shape[0], weight.shape[2], *whole), data.dtype)
    for place in itertools.product(*(range(n) for n in weight.shape[3:])):
        cut = tuple(
            _strided(k * w.dilation, w.stride, n)
            for k, w, n in zip(place, found, data.shape[3:], strict=True)
        )
        index: Any = (slice(None), slice(None), slice(None), *place)
        kernel = weight[index]
        total[(slice(None), slice(None), slice(None), *cut)] += np.einsum(
            "ngi...,gio->ngo...", data, kernel
        )
    crop = tuple(slice(w.before, w.before + n) for w, n in zip(found, outs, strict=True))
    return total[(slice(None), slice(None), slice(None), *crop)]


def _reference(row: Row) -> Callable[[tuple[Array, ...], Any, Type], Array]:
    def reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
        dtype = attrs.out_dtype or dtype_name(inputs[0])
        groups = attrs.groups
        data, weight = (as_wide(rounded(value, dtype)) for value in inputs)
        data = to_order(data, attrs.data_layout, "NC" + row.spatial)
        weight = to_order(weight, attrs.kernel_layout, row.kernel_layout)
        sizes, kernel = data.shape[2:], weight.shape[2:]
        data = data.reshape(data.shape[0], groups, data.shape[1] // groups, *sizes)
        weight = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        found = windows(row, attrs, sizes, kernel)
        with np.errstate(all="ignore"):
            if row.transposed:
                more = per_axis(attrs.output_padding, row.rank)
                outs = [
                    (n - 1) * w.stride + int(w.reach) - w.before - w.after + extra  # type: ignore[arg-type]
                    for n, w, extra in zip(sizes, found, more, strict=True)
                ]
                if min(outs) < 0 or min(sizes) < 1:
                    raise ShapeMismatch(f"{row.name}: the result would have sizes {outs}")
                total = _scatter(data, weight, found, outs)
            else:
                if any(w.padded < w.reach for w in found):  # type: ignore[operator]
                    raise ShapeMismatch(f"{row.name}: the kernel {kernel} does not fit {sizes}")
                total = _convolve(data, weight, found)
        flat = total.reshape(total.shape[0], groups * total.shape[2], *total.shape[3:])
        out = to_order(flat, "NC" + row.spatial, attrs.out_layout or attrs.data_layout)
        return rounded(np.ascontiguousarray(out), dtype)

    return reference


for _row in TABLE:
    register(
        Op(
            name=_row.name,
            args=("data", "weight"),
            attrs=ATTRS[_row.name],
            relation=_relation(_row),
            reference=_reference(_row),
            pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
            effect=Effect.TOTAL,
            dtypes=(DTYPES,),
            doc=__doc__ or "",
            tolerance=ACCUMULATED,
        )
    )
