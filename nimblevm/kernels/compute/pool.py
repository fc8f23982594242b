"""Pools: the greatest or the sum at every position of padded planes (windows.py), then the result. Where channels are
the last axis a window's elements are taken where they lie, since vectors run along the channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm import dtypes
from nimblevm.kernels.compute.common import least, tensor_type
from nimblevm.kernels.compute.windows import Planes
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Compute,
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)
from nimblevm.relay.op.pool import TABLE, Row, windows
from nimblevm.relay.op.windows import Window, arranged


def sum_dtype(dtype: str) -> str:
    """The dtype in which elements are added: exact for integers."""
    if dtypes.dtype(dtype).is_float:
        return "float32" if dtype == "float16" else dtype
    return "int32" if dtypes.dtype(dtype).itemsize == 1 else "int64"


def quotient(em: Emitter, total: Value, count: Value, dtype: str) -> Value:
    """total / count (int64) in `dtype`; integers towards zero."""
    return em.b.cast(em.b.binary("div", total, em.b.cast(count, total.dtype)), dtype)


def inside(em: Emitter, window: Window, at: Value) -> tuple[Value, Value, Value]:
    """Of the window at `at` along an axis: the element at offset 0 (maybe padding), the first offset in data, and how
    many are in it.
    """
    b = em.b
    every, kernel = b.i64(window.dilation), em.dim(window.kernel)
    # Offsets k with 0 <= start + k * dilation < size.
    start = b.sub(b.mul(at, b.i64(window.stride)), b.i64(window.before))
    up = b.sub(b.i64(window.dilation - 1), start)
    first = b.binary("max", b.binary("floordiv", up, every), b.i64(0))
    end = b.binary("floordiv", b.add(em.dim(window.size), up), every)
    count = b.sub(b.binary("min", end, kernel), first)
    return start, first, b.binary("max", count, b.i64(0))


def inside_count(em: Emitter, found: Sequence[Window], place: Sequence[Value]) -> Value:
    """Elements in data of the window at `place`, at least 1."""
    b = em.b
    total = b.i64(1)
    for window, at in zip(found, place, strict=True):
        total = b.mul(total, inside(em, window, at)[2])
    return b.binary("max", total, b.i64(1))


class _Pool:
    """One pool of a group: what each element of its result is."""

    def __init__(self, em: Emitter, row: Row, data: TensorExpr, attrs: Any, out: Any) -> None:
        self.em, self.row, self.data, self.attrs = em, row, data, attrs
        self.dtype = tensor_type(out).dtype
        self.inner = sum_dtype(self.dtype) if row.mean else self.dtype
        self.op = "add" if row.mean else "max"
        self.neutral = em.b.const(0 if row.mean else least(self.dtype), self.inner)
        self.out_layout = attrs.out_layout or attrs.layout
        size = dict(zip(attrs.layout, data.shape, strict=True))
        self.windows = windows(row, attrs, tuple(size[c] for c in row.spatial))
        lead = (size["N"], size["C"])
        self.planes = Planes(em, lead, self.windows, self.inner)
        self.results = self.planes.results(lead, self.inner)

    def at(self, index: Index) -> Steps:
        """The element of the result at an index."""
        where = dict(zip(self.out_layout, index, strict=True))
        place = tuple(where[c] for c in self.row.spatial)
        last = self.attrs.layout[-1] == self.out_layout[-1] == "C"
        total = yield from (self._in_place if last else self._on_planes)(where, place)
        if not self.row.mean:
            return total
        if self.attrs.count_include_pad:
            count = self.em.size(tuple(w.kernel for w in self.windows))
        else:
            count = inside_count(self.em, self.windows, place)
        return quotient(self.em, total, count, self.dtype)

    def _on_planes(self, where: dict[str, Value], place: Index) -> Steps:
        """From padded planes, which are filled once."""
        planes = self.planes
        yield from planes.fill(self.neutral, self._element)
        yield from planes.compute(self.results, self._of_window)
        return (yield self.results, (where["N"], where["C"], planes.position(place)))

    def _element(self, lead: Index, place: Index) -> Steps:
        where = {"N": lead[0], "C": lead[1], **dict(zip(self.row.spatial, place, strict=True))}
        return (yield self.data, arranged(self.attrs.layout, where))

    def _of_window(self, lead: Index, q: Value) -> Steps:
        def term(offset: Index) -> Steps:
            return (yield self.planes.tensor, self.planes.index(lead, offset, q))

        kernel = tuple(w.kernel for w in self.windows)
        return (yield from self.em.accumulate(self.op, self.neutral, (*lead, q), kernel, term))

    def _in_place(self, where: dict[str, Value], place: Index) -> Steps:
        """From the data where they lie, over the part of the window that is in them."""
        em, b = self.em, self.em.b
        yield from em.cheap(self.data)
        spans = [inside(em, window, at) for window, at in zip(self.windows, place, strict=True)]

        def term(turn: Index) -> Steps:
            here = dict(where)
            axes = zip(self.row.spatial, spans, turn, self.windows, strict=True)
            for c, (start, first, _), k, w in axes:
                here[c] = b.add(start, b.mul(b.add(first, k), b.i64(w.dilation)))
            value = yield self.data, arranged(self.attrs.layout, here)
            return b.cast(value, self.inner)

        counts = [count for _, _, count in spans]
        index = arranged(self.out_layout, where)
        return (yield from em.accumulate(self.op, self.neutral, index, counts, term))


def _compute(row: Row) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        pool = _Pool(em, row, single(args[0]), attrs, out)
        return TensorExpr(out.shape, pool.dtype, pool.at, 8 if row.mean else 1)

    return compute


for _row in TABLE:
    register_compute(_row.name, _compute(_row))
