"""nn.contrib_conv2d_winograd_pack: three nests of loops, the middle one 16 products of matrices.

    v[p, t, i] = transforms of the 4 x 4 elements of padded data at (2 ty, 2 tx), t the number of tile (n, ty, tx)
    m[p, t, o] = sum over i of v[p, t, i] * weight[p, o // 16, i, o % 16]      (schedule/windows.py)
    out[n, y, x, o] = what the tile at (y div 2, x div 2) gives at (y mod 2, x mod 2)

padded, v and m are scratch. Between one p and the next lie 16 k + 1 rows of v and m: with a multiple of 4 KiB all 16
would fall on the same lines of the first-level cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.compute.windows import Storing, scratch, store_padded, unused
from nimblevm.kernels.loop_ir import Store, Value
from nimblevm.kernels.panel_tile import LANES
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)
from nimblevm.relay import dims
from nimblevm.relay.op.conv2d_winograd import TERMS, TILE, tiles, windows

SKEW = 16
"""Rows by which planes of tiles are rounded up, before the one that shifts them in the cache."""


class _Winograd:
    """One convolution."""

    def __init__(self, em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> None:
        self.em, self.layout = em, attrs.data_layout
        self.data, self.weight = (single(arg) for arg in args)
        self.dtype = tensor_type(out).dtype
        sizes = dict(zip(self.layout, self.data.shape, strict=True))
        self.batch, self.height, self.width = (sizes[c] for c in "NHW")
        inner = self.weight.shape[2]
        self.inner = inner if isinstance(inner, int) else sizes["C"]
        self.windows = windows(attrs, (self.height, self.width))
        self.counts = [tiles(w) for w in self.windows]
        padded = [dims.add(dims.mul(count, TILE), 2) for count in self.counts]
        self.tiles = dims.max_(0, dims.mul(self.batch, dims.mul(*self.counts)))
        rows = dims.add(dims.mul(dims.floordiv(dims.add(self.tiles, SKEW - 1), SKEW), SKEW), 1)
        self.padded = TensorExpr((self.batch, *padded, self.inner), self.dtype, unused)
        self.parts = TensorExpr((TERMS, rows, self.inner), self.dtype, unused)
        self.sums = TensorExpr((TERMS, rows, attrs.channels), self.dtype, unused)

    def _number(self, n: Value, ty: Value, tx: Value) -> Value:
        """The number of a tile."""
        b = self.em.b
        down, across = (self.em.dim(count) for count in self.counts)
        return b.add(b.mul(b.add(b.mul(n, down), ty), across), tx)

    def _transform(self) -> Storing:
        """Store the transforms of all tiles."""
        em, b = self.em, self.em.b
        buffer = scratch(em, self.parts)
        extents = (self.batch, *self.counts, self.inner)
        with em.loops(extents, parallel=True) as (n, ty, tx, i):
            number = self._number(n, ty, tx)
            top, left = b.mul(ty, b.i64(TILE)), b.mul(tx, b.i64(TILE))
            elements: list[list[Value]] = []
            for r in range(4):
                row: list[Value] = []
                for s in range(4):
                    place = (b.add(top, b.i64(r)), b.add(left, b.i64(s)))
                    value = yield self.padded, (n, *place, i)
                    row.append(value)
                elements.append(row)
            halfway = list(
                zip(*[self._four(column) for column in zip(*elements, strict=True)], strict=True)
            )
            for r, found in enumerate(map(self._four, halfway)):
                for s, value in enumerate(found):
                    em.emit(Store(buffer, (b.i64(4 * r + s), number, i), value))
        self.parts.storage = buffer

    def _four(self, d: Sequence[Value]) -> tuple[Value, Value, Value, Value]:
        b = self.em.b
        return b.sub(d[0], d[2]), b.add(d[1], d[2]), b.sub(d[2], d[1]), b.sub(d[1], d[3])

    def _multiply(self) -> Storing:
        """Store the sums over channels of all tiles."""
        em, b = self.em, self.em.b
        buffer = scratch(em, self.sums)
        lanes = b.i64(LANES)
        extents = (TERMS, self.tiles, self.sums.shape[2])
        with em.loops(extents, parallel=True) as index:
            p, tile, channel = index
            panel, lane = b.binary("floordiv", channel, lanes), b.binary("floormod", channel, lanes)

            def term(inside: Index) -> Steps:
                value = yield self.parts, (p, tile, *inside)
                weight = yield self.weight, (p, panel, *inside, lane)
                return b.mul(value, weight)

            zero = b.const(0, self.dtype)
            total = yield from em.accumulate("add", zero, index, (self.inner,), term)
            em.emit(Store(buffer, index, total))
        self.sums.storage = buffer

    def at(self, index: Index) -> Steps:
        em, b = self.em, self.em.b
        if self.sums.storage is None:
            yield from em.cheap(self.weight)
            with em.at_top():
                yield from store_padded(em, self.padded, self.data, self.layout, self.windows)
                yield from self._transform()
                yield from self._multiply()
        n, y, x, channel = index
        two = b.i64(TILE)
        down, across = (b.binary("floordiv", at, two) for at in (y, x))
        tile = (self._number(n, down, across), channel)
        turns: list[tuple[Value, Value]] = []
        for at in (y, x):
            odd = b.binary("floormod", at, two)
            one, minus = (b.const(v, self.dtype) for v in (1, -1))
            sign = b.select(b.compare("eq", odd, b.i64(0)), one, minus)
            turns.append((b.mul(odd, b.i64(3)), sign))
        (row, of_row), (column, of_column) = turns
        rows: list[Value] = []
        for r in (row, b.i64(1), b.i64(2)):
            three: list[Value] = []
            for s in (column, b.i64(1), b.i64(2)):
                value = yield self.sums, (b.add(b.mul(r, b.i64(4)), s), *tile)
                three.append(value)
            rows.append(b.add(three[1], b.mul(of_column, b.add(three[0], three[2]))))
        return b.add(rows[1], b.mul(of_row, b.add(rows[0], rows[2])))


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    conv = _Winograd(em, args, attrs, out)
    return TensorExpr(tensor_type(out).shape, conv.dtype, conv.at, 1 << 20, costly=True)


register_compute("nn.contrib_conv2d_winograd_pack", _compute)
