"""Convolutions: a sum over kernel and channels at every position of padded planes (windows.py), then the result.

    sums[n, g, o, q] = sum over r, s, i of planes[n, g, i, window of q at (r, s)] * weight[g * O + o, i, r, s]
    out[n, g * O + o, y, x] = sums[n, g, o, y * width + x]

A transpose is the convolution, with stride 1 and the kernel turned round, of data spread out by its strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type, wide
from nimblevm.kernels.compute.windows import Planes
from nimblevm.kernels.loop_ir import BYTES, Value
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
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.conv import TABLE, Row, windows
from nimblevm.relay.op.windows import Window, arranged, per_axis


class _Conv:
    """One convolution."""

    def __init__(
        self, em: Emitter, row: Row, args: Sequence[Tensors], attrs: Any, out: Any
    ) -> None:
        self.em, self.row, self.attrs = em, row, attrs
        self.data, self.weight = (single(arg) for arg in args)
        self.dtype, self.sum_dtype = tensor_type(out).dtype, wide(out.dtype)
        # Bytes are multiplied as they are: an instruction of some CPUs does (schedule/byte_windows.py).
        both = {self.data.dtype, self.weight.dtype}
        self.of_bytes = both <= set(BYTES) and self.dtype == self.sum_dtype == "int32"
        self.plane_dtype = self.data.dtype if self.of_bytes else self.sum_dtype
        self.out_layout = attrs.out_layout or attrs.data_layout
        self.of_data = dict(zip(attrs.data_layout, self.data.shape, strict=True))
        self.of_out = dict(zip(self.out_layout, out.shape, strict=True))
        of_weight = dict(zip(attrs.kernel_layout, self.weight.shape, strict=True))
        if attrs.kernel_size is not None:
            of_weight.update(zip(row.spatial, per_axis(attrs.kernel_size, row.rank), strict=True))
        self.kernel = tuple(of_weight[c] for c in row.spatial)
        self.sizes = tuple(self.of_data[c] for c in row.spatial)
        # Channels of data and of the result in a group.
        self.inner = dims.floordiv(self.of_data["C"], attrs.groups)
        self.outer = dims.floordiv(self.of_out["C"], attrs.groups)
        if not row.transposed and isinstance(of_weight["I"], int):
            self.inner = of_weight["I"]
        # A copy of bytes has all weights of an output in a row, for that instruction, channel by channel.
        self.layout = attrs.kernel_layout
        if self.of_bytes and not row.transposed and self.layout[0] != "O":
            self.layout = "OI" + row.spatial
        self.starts: list[Dim] = []
        lead = (self.of_data["N"], attrs.groups)
        found = self._windows()
        self.planes = Planes(em, (*lead, self.inner), found, self.plane_dtype, row.transposed)
        self.sums = self.planes.results((*lead, self.outer), self.sum_dtype)
        self.factors = self._factors()

    def _windows(self) -> list[Window]:
        """The windows on the planes."""
        found = windows(self.row, self.attrs, self.sizes, self.kernel)
        if not self.row.transposed:
            return found
        self.steps = [window.stride for window in found]
        turned: list[Window] = []
        for window, letter in zip(found, self.row.spatial, strict=True):
            self.starts.append(dims.sub(dims.sub(window.reach, 1), window.before))
            length = dims.sub(dims.add(self.of_out[letter], window.reach), 1)
            turned.append(Window(length, window.kernel, 1, window.dilation, 0, 0))
        return turned

    def _factors(self) -> TensorExpr:
        """The weight in the dtype that accumulates."""
        if self.weight.dtype == self.sum_dtype:
            return self.weight

        def at(index: Index) -> Steps:
            found = dict(zip(self.layout, index, strict=True))
            value = yield self.weight, arranged(self.attrs.kernel_layout, found)
            return self.em.b.cast(self.em.b.cast(value, self.dtype), self.sum_dtype)

        sizes = dict(zip(self.attrs.kernel_layout, self.weight.shape, strict=True))
        shape = tuple(sizes[letter] for letter in self.layout)
        return TensorExpr(shape, self.sum_dtype, at, 1, stored=True)

    def element(self, lead: Index, place: Index) -> Steps:
        """An element of data for the planes."""
        b = self.em.b
        n, group, channel = lead
        found = {"N": n, "C": b.add(b.mul(group, self.em.dim(self.inner)), channel)}
        found.update(zip(self.row.spatial, place, strict=True))
        value = yield self.data, arranged(self.attrs.data_layout, found)
        return value if self.of_bytes else b.cast(value, self.dtype)

    def sum_at(self, lead: Index, q: Value) -> Steps:
        """The sum at position q of the planes."""
        b = self.em.b
        n, group, channel = lead

        # In the order in which a row of the weight lies in memory.
        layout = self.layout
        first = layout.index("I") < layout.index(self.row.spatial[0])

        def term(inside: Index) -> Steps:
            i, *offset = inside if first else (inside[-1], *inside[:-1])
            x = yield self.planes.tensor, self.planes.index((n, group, i), tuple(offset), q)
            w = yield self.factors, self._weight_index(group, channel, i, offset)
            return b.mul(b.cast(x, self.sum_dtype), w)

        extents = (self.inner, *self.kernel) if first else (*self.kernel, self.inner)
        start = b.const(0, self.sum_dtype)
        return (yield from self.em.accumulate("add", start, (*lead, q), extents, term))

    def _weight_index(
        self, group: Value, channel: Value, i: Value, offset: Sequence[Value]
    ) -> Index:
        b = self.em.b
        if self.row.transposed:
            whole = b.add(b.mul(group, self.em.dim(self.inner)), i)
            found = {"I": whole, "O": channel}
            offset = [
                b.sub(self.em.dim(dims.sub(size, 1)), at)
                for size, at in zip(self.kernel, offset, strict=True)
            ]
        else:
            found = {"I": i, "O": b.add(b.mul(group, self.em.dim(self.outer)), channel)}
        found.update(zip(self.row.spatial, offset, strict=True))
        return arranged(self.layout, found)

    def at(self, index: Index) -> Steps:
        em, b = self.em, self.em.b
        if self.factors is self.weight:
            yield from em.cheap(self.weight)
        if self.row.transposed:
            yield from self.planes.fill_spread(self.starts, self.steps, self.sizes, self.element)
        else:
            yield from self.planes.fill(b.const(0, self.plane_dtype), self.element)
        yield from self.planes.compute(self.sums, self.sum_at)
        found = dict(zip(self.out_layout, index, strict=True))
        channel = found["C"]
        group, inside = b.i64(0), channel
        if self.attrs.groups > 1 and self.outer == 1:
            group, inside = channel, b.i64(0)
        elif self.attrs.groups > 1:
            each = em.dim(self.outer)
            each = each if isinstance(self.outer, int) else b.binary("max", each, b.i64(1))
            group, inside = b.binary("floordiv", channel, each), b.binary("floormod", channel, each)
        q = self.planes.position(tuple(found[c] for c in self.row.spatial))
        value = yield self.sums, (found["N"], group, inside, q)
        return b.cast(value, self.dtype)


def _compute(row: Row) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        conv = _Conv(em, row, args, attrs, out)
        return TensorExpr(out.shape, conv.dtype, conv.at, 1)

    return compute


for _row in TABLE:
    register_compute(_row.name, _compute(_row))
