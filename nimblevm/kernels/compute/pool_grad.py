"""Gradients of pools: each element asks the windows that hold it; that of the greatest notes first which that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type, wide
from nimblevm.kernels.compute.pool import inside, inside_count
from nimblevm.kernels.loop_ir import SetLocal, Value
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
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.pool import windows
from nimblevm.relay.op.pool_grad import TABLE, Row
from nimblevm.relay.op.windows import arranged


class _Gradient:
    """One gradient of a group. Tensors of windows are in the order N, C, y, x."""

    def __init__(self, em: Emitter, row: Row, args: Sequence[Tensors], attrs: Any) -> None:
        self.em, self.mean, self.attrs = em, row.pool.mean, attrs
        self.grad, self.data = (single(arg) for arg in args)
        self.spatial = row.pool.spatial
        sizes = dict(zip(attrs.layout, self.data.shape, strict=True))
        self.windows = windows(row.pool, attrs, tuple(sizes[c] for c in self.spatial))
        self.kernel: tuple[Dim, ...] = tuple([w.kernel for w in self.windows])
        shape = (sizes["N"], sizes["C"], *(w.out for w in self.windows))
        self.greatest = TensorExpr(shape, "int64", self._greatest, 1 << 20, costly=True)
        self.inner = wide(self.data.dtype)

    def _offset(self, turn: Sequence[Value]) -> Value:
        """The number of a place in a window."""
        b = self.em.b
        return b.add(b.mul(turn[0], self.em.dim(self.kernel[1])), turn[1])

    def _greatest(self, index: Index) -> Steps:
        """Which place of a window holds its first greatest element; -1 if all are padding."""
        em, b, dtype = self.em, self.em.b, self.data.dtype
        yield from em.cheap(self.data)
        spans = [inside(em, w, at) for w, at in zip(self.windows, index[2:], strict=True)]
        with em.hoisted(index):
            best, place = em.local(dtype, index), em.local("int64", index)
            em.emit(SetLocal(best, b.const(0, dtype)))
            em.emit(SetLocal(place, b.i64(-1)))
            with em.loops([count for _, _, count in spans]) as turn:
                where, offset = {"N": index[0], "C": index[1]}, []
                axes = zip(self.spatial, self.windows, spans, turn, strict=True)
                for c, window, (start, first, _), k in axes:
                    offset.append(b.add(first, k))
                    where[c] = b.add(start, b.mul(offset[-1], b.i64(window.dilation)))
                value = yield self.data, arranged(self.attrs.layout, where)
                none = b.compare("lt", place, b.i64(0))
                # A NaN is more than what is none.
                more = b.binary("or", b.compare("gt", value, best), b.compare("ne", value, value))
                more = b.binary("and", more, b.compare("eq", best, best))
                wins = em.local("bool", (*index, *turn))
                em.emit(SetLocal(wins, b.binary("or", none, more)))
                em.emit(SetLocal(place, b.select(wins, self._offset(offset), place)))
                em.emit(SetLocal(best, b.select(wins, value, best)))
        return place

    def _within(self, place: Value, size: Dim) -> tuple[Value, Value]:
        """A place that may be read, and whether it is the one that was asked for."""
        b, count = self.em.b, self.em.dim(size)
        low, high = b.compare("ge", place, b.i64(0)), b.compare("lt", place, count)
        last = b.binary("max", b.sub(count, b.i64(1)), b.i64(0))
        return b.binary("max", b.binary("min", place, last), b.i64(0)), b.binary("and", low, high)

    def at(self, index: Index) -> Steps:
        """The element of the result at an index."""
        em, b, attrs = self.em, self.em.b, self.attrs
        yield from em.cheap(self.grad)
        if not self.mean:
            yield from em.cheap(self.greatest)
        here = dict(zip(attrs.layout, index, strict=True))

        def term(turn: Index) -> Steps:
            place, holds = [], b.const(value=True, dtype="bool")
            for c, w, k in zip(self.spatial, self.windows, turn, strict=True):
                start = b.sub(b.add(here[c], b.i64(w.before)), b.mul(k, b.i64(w.dilation)))
                number = b.binary("floordiv", start, b.i64(w.stride))
                number, known = self._within(number, w.out)
                exact = b.compare("eq", b.binary("floormod", start, b.i64(w.stride)), b.i64(0))
                holds = b.binary("and", holds, b.binary("and", known, exact))
                place.append(number)
            where = {**here, **dict(zip(self.spatial, place, strict=True))}
            given = yield self.grad, arranged(attrs.out_layout or attrs.layout, where)
            given = b.cast(given, self.inner)
            if self.mean:
                given = b.binary("div", given, b.cast(self._count(place), self.inner))
            else:
                found = yield self.greatest, (here["N"], here["C"], *place)
                holds = b.binary("and", holds, b.compare("eq", found, self._offset(turn)))
            return b.select(holds, given, b.const(0, self.inner))

        zero = b.const(0, self.inner)
        total = yield from em.accumulate("add", zero, index, self.kernel, term)
        return b.cast(total, self.data.dtype)

    def _count(self, place: Sequence[Value]) -> Value:
        if self.attrs.count_include_pad:
            return self.em.size(self.kernel)
        return inside_count(self.em, self.windows, place)


def _compute(row: Row) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        gradient = _Gradient(em, row, args, attrs)
        return TensorExpr(
            tensor_type(out).shape, gradient.data.dtype, gradient.at, 1 << 20, costly=True
        )

    return compute


for _row in TABLE:
    register_compute(_row.name, _compute(_row))
