"""Padded scratch in which sliding windows have contiguous rows, whatever the strides: for convolutions and pools.

    planes[lead..., phase..., flat]

Along an axis with stride s, element e of the padded data lies at (phase e mod s, row e div s); the rows of all axes
are flattened row-major. The window at output (y, x) and kernel offset (r, c) then reads

    phase (r * dilation) mod s, ...;   flat = (y * width + x) + (r * dilation) div s * width + (c * dilation) div s

so one loop over q = y * width + x reads contiguous elements for all outputs, those between two rows of the result
(x >= its width) included: they are computed and never read. `q` runs in blocks of LANES, so that a block is a
fixed number of vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from nimblevm.kernels.loop_ir import Store, Value
from nimblevm.kernels.tensor_expr import Emitter, Index, Steps, TensorExpr
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import product
from nimblevm.relay.op.windows import Window, arranged

LANES = 16
Storing = Generator[Any, Value, None]


def scratch(em: Emitter, tensor: TensorExpr) -> int:
    """The number of a new scratch buffer that holds `tensor`."""
    em.scratch.append(tensor)
    return em.first_scratch + len(em.scratch) - 1


def unused(index: Index) -> Steps:
    """`at` of a tensor that is stored before it is read."""
    raise AssertionError("read before it is stored")
    yield


def store_padded(
    em: Emitter, padded: TensorExpr, data: TensorExpr, layout: str, found: Sequence[Window]
) -> Storing:
    """Store `padded` (N, rows, columns, channels) in scratch: data of `layout` behind the windows' padding, 0 around.
    Rows and columns are at least those that the windows' padding makes. Once; at the top of the kernel.
    """
    b, shape = em.b, padded.shape
    buffer, zero = scratch(em, padded), em.b.const(0, padded.dtype)
    rows, columns = found

    def zeros(extents: Sequence[Dim], start: Sequence[Dim]) -> None:
        if 0 in extents:
            return
        with em.loops(extents, parallel=True) as index:
            where = tuple([b.add(em.dim(s), i) for s, i in zip(start, index, strict=True)])
            em.emit(Store(buffer, where, zero))

    below, behind = (dims.add(w.size, w.before) for w in found)
    batch, channels = shape[0], shape[3]
    zeros((batch, rows.before, *shape[2:]), (0, 0, 0, 0))
    zeros((batch, dims.sub(shape[1], below), *shape[2:]), (0, below, 0, 0))
    zeros((batch, rows.size, columns.before, channels), (0, rows.before, 0, 0))
    right = dims.sub(shape[2], behind)
    zeros((batch, rows.size, right, channels), (0, rows.before, behind, 0))
    inner = (batch, rows.size, columns.size, channels)
    with em.loops(inner, parallel=True) as (n, y, x, i):
        value = yield data, arranged(layout, {"N": n, "H": y, "W": x, "C": i})
        place = (b.add(y, b.i64(rows.before)), b.add(x, b.i64(columns.before)))
        em.emit(Store(buffer, (n, *place, i), value))
    padded.storage = buffer


def rows_of(window: Window) -> Dim:
    """Rows that the padded axis takes, with one plane a phase.

    Of unknown sizes as max(0, rows): one atom, so that products of rows do not multiply out and outgrow the
    dim algebra.
    """
    return dims.max_(0, dims.floordiv(dims.add(window.padded, window.stride - 1), window.stride))


def phases_of(window: Window) -> int:
    """How many phases windows read: the first only, or all."""
    single = isinstance(window.kernel, int) and window.kernel == 1
    return 1 if single or window.dilation % window.stride == 0 else window.stride


class Planes:
    """The scratch tensor for windows along some axes; `lead` are the sizes of the axes before them.

    `may_be_empty`: there may be no window along an axis; else the relation has demanded one.
    """

    def __init__(
        self,
        em: Emitter,
        lead: Sequence[Dim],
        found: Sequence[Window],
        dtype: str,
        may_be_empty: bool = False,
    ) -> None:
        self.may_be_empty = may_be_empty
        self.em = em
        self.lead = tuple(lead)
        self.windows = tuple(found)
        self.phases = tuple(phases_of(w) for w in found)
        self.rows = tuple(rows_of(w) for w in found)
        # Whole blocks, so that planes begin where vectors do; the last block may reach LANES - 1 beyond the rows.
        blocks = dims.floordiv(dims.add(product(self.rows), 2 * LANES - 2), LANES)
        flat = dims.mul(blocks, LANES)
        self.tensor = TensorExpr((*self.lead, *self.phases, flat), dtype, unused)

    @property
    def blocks(self) -> Dim:
        """Blocks of LANES positions q that cover every output. Never negative, also where an axis has no output."""
        last: Dim = 0
        for window, rows in zip(self.windows, self.rows, strict=True):
            last = dims.max_(0, dims.add(dims.mul(last, rows), dims.sub(window.out, 1)))
        count = dims.floordiv(dims.add(last, LANES), LANES)
        if self.may_be_empty:
            for window in self.windows:
                count = dims.mul(count, dims.min_(window.out, 1))
        return count

    def position(self, at: Index) -> Value:
        """Where a row an axis lies in `flat`."""
        found = self.em.b.i64(0)
        for place, rows in zip(at, self.rows, strict=True):
            found = self.em.b.add(self.em.b.mul(found, self.em.dim(rows)), place)
        return found

    def index(self, lead: Index, offset: Index, q: Value) -> Index:
        """What the window at position q reads at kernel offset `offset`."""
        b = self.em.b
        phase: list[Value] = []
        shift: list[Value] = []
        for at, window, phases in zip(offset, self.windows, self.phases, strict=True):
            reach, stride = b.mul(at, b.i64(window.dilation)), b.i64(window.stride)
            phase.append(b.binary("floormod", reach, stride) if phases > 1 else b.i64(0))
            shift.append(b.binary("floordiv", reach, stride))
        return (*lead, *phase, b.add(q, self.position(tuple(shift))))

    def fill(self, padding: Value, element: Callable[[Index, Index], Steps]) -> Storing:
        """Store `padding` everywhere, then element(lead, place in data) where data is. Once."""
        if self.tensor.storage is not None:
            return
        em, b = self.em, self.em.b
        buffer = scratch(em, self.tensor)
        with em.at_top():
            with em.loops(self.tensor.shape, parallel=True) as index:
                em.emit(Store(buffer, index, padding))
            with em.loops((*self.lead, *self.phases), parallel=True) as index:
                lead, phase = index[: len(self.lead)], index[len(self.lead) :]
                bounds = [
                    self._rows_with_data(w, p) for w, p in zip(self.windows, phase, strict=True)
                ]
                with em.loops([b.sub(end, first) for first, end in bounds], parallel=True) as inner:
                    rows = [b.add(first, i) for (first, _), i in zip(bounds, inner, strict=True)]
                    place = tuple(
                        b.add(b.mul(row, b.i64(w.stride)), b.sub(p, b.i64(w.before)))
                        for row, p, w in zip(rows, phase, self.windows, strict=True)
                    )
                    value = yield from element(lead, place)
                    where = (*lead, *phase, self.position(tuple(rows)))
                    em.emit(Store(buffer, where, b.cast(value, self.tensor.dtype)))
        self.tensor.storage = buffer

    def _rows_with_data(self, window: Window, phase: Value) -> tuple[Value, Value]:
        """First row of a phase that is an element of data, and the one after the last."""
        b = self.em.b
        stride = b.i64(window.stride)
        start = b.sub(b.i64(window.before + window.stride - 1), phase)
        end = b.add(self.em.dim(window.size), start)
        return b.binary("floordiv", start, stride), b.binary("floordiv", end, stride)

    def fill_spread(
        self,
        starts: Sequence[Dim],
        steps: Sequence[int],
        sizes: Sequence[Dim],
        element: Callable[[Index, Index], Steps],
    ) -> Storing:
        """Store 0 everywhere and element e of an axis at start + e * step, where that is inside. Once.

        Windows have stride 1 and no padding of their own; a start may be negative.
        """
        if self.tensor.storage is not None:
            return
        em, b = self.em, self.em.b
        buffer = scratch(em, self.tensor)
        firsts = [
            dims.max_(dims.neg(dims.floordiv(start, step)), 0)
            for start, step in zip(starts, steps, strict=True)
        ]
        ends = [
            dims.min_(size, dims.add(dims.floordiv(dims.sub(dims.sub(w.size, 1), start), step), 1))
            for w, start, step, size in zip(self.windows, starts, steps, sizes, strict=True)
        ]
        counts = [dims.sub(end, first) for end, first in zip(ends, firsts, strict=True)]
        with em.at_top():
            with em.loops(self.tensor.shape, parallel=True) as index:
                em.emit(Store(buffer, index, b.const(0, self.tensor.dtype)))
            with em.loops((*self.lead, *counts), parallel=True) as index:
                lead, inner = index[: len(self.lead)], index[len(self.lead) :]
                place = tuple(b.add(em.dim(f), i) for f, i in zip(firsts, inner, strict=True))
                rows = tuple(
                    b.add(b.mul(at, b.i64(step)), em.dim(start))
                    for at, step, start in zip(place, steps, starts, strict=True)
                )
                value = yield from element(lead, place)
                zeros = (b.i64(0),) * len(self.phases)
                where = (*lead, *zeros, self.position(rows))
                em.emit(Store(buffer, where, b.cast(value, self.tensor.dtype)))
        self.tensor.storage = buffer

    def results(self, lead: Sequence[Dim], dtype: str) -> TensorExpr:
        """A tensor for a value a position, of sizes (lead..., positions)."""
        return TensorExpr((*lead, dims.mul(self.blocks, LANES)), dtype, unused)

    def compute(self, wide: TensorExpr, value: Callable[[Index, Value], Steps]) -> Storing:
        """Store value(lead, q) for all positions in `wide`. Once."""
        if wide.storage is not None:
            return
        em, b = self.em, self.em.b
        buffer = scratch(em, wide)
        with em.at_top(), em.loops((*wide.shape[:-1], self.blocks, LANES), parallel=True) as index:
            *lead, block, lane = index
            q = b.add(b.mul(block, b.i64(LANES)), lane)
            found = yield from value(tuple(lead), q)
            em.emit(Store(buffer, (*lead, q), found))
        wide.storage = buffer


__all__ = ["LANES", "Planes", "Storing", "scratch", "store_padded", "unused"]
