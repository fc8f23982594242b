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


def _compute(row: Row) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        b = em.b
        data = single(args[0])
        dtype = tensor_type(out).dtype
        inner = sum_dtype(dtype) if row.mean else dtype
        of_data = dict(zip(attrs.layout, data.shape, strict=True))
        found = windows(row, attrs, tuple(of_data[c] for c in row.spatial))
        planes = Planes(em, (of_data["N"], of_data["C"]), found, inner)
        results = planes.results((of_data["N"], of_data["C"]), inner)
        neutral = b.const(0 if row.mean else least(dtype), inner)
        out_layout = attrs.out_layout or attrs.layout
        op = "add" if row.mean else "max"

        def element(lead: Index, place: Index) -> Steps:
            where = {"N": lead[0], "C": lead[1], **dict(zip(row.spatial, place, strict=True))}
            return (yield data, arranged(attrs.layout, where))

        def value(lead: Index, q: Value) -> Steps:
            def term(offset: Index) -> Steps:
                return (yield planes.tensor, planes.index(lead, offset, q))

            kernel = tuple(w.kernel for w in found)
            return (yield from em.accumulate(op, neutral, (*lead, q), kernel, term))

        def on_planes(where: dict[str, Value], place: Index) -> Steps:
            yield from planes.fill(neutral, element)
            yield from planes.compute(results, value)
            return (yield results, (where["N"], where["C"], planes.position(place)))

        def in_place(where: dict[str, Value], place: Index) -> Steps:
            yield from em.cheap(data)
            spans = [inside(em, window, at) for window, at in zip(found, place, strict=True)]

            def term(turn: Index) -> Steps:
                here = dict(where)
                for c, (start, first, _), k, w in zip(row.spatial, spans, turn, found, strict=True):
                    here[c] = b.add(start, b.mul(b.add(first, k), b.i64(w.dilation)))
                value = yield data, arranged(attrs.layout, here)
                return b.cast(value, inner)

            counts = [count for _, _, count in spans]
            return (
                yield from em.accumulate(op, neutral, arranged(out_layout, where), counts, term)
            )

        def at(index: Index) -> Steps:
            where = dict(zip(out_layout, index, strict=True))
            place = tuple(where[c] for c in row.spatial)
            last = attrs.layout[-1] == out_layout[-1] == "C"
            total = yield from (in_place if last else on_planes)(where, place)
            if not row.mean:
                return total
            if attrs.count_include_pad:
                count = em.size(tuple(w.kernel for w in found))
            else:
                count = inside_count(em, found, place)
            return quotient(em, total, count, dtype)

        return TensorExpr(out.shape, dtype, at, 8 if row.mean else 1)

    return compute


for _row in TABLE:
    register_compute(_row.name, _compute(_row))
