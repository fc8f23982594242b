"""nn.contrib_conv2d_pack: a sum over a window of padded rows; schedule/windows.py makes register tiles of it.

padded[n, y + before, x + before, i] = data[n, y, x, i], 0 around it       (scratch; data itself without padding)
out[n, y, x, o] = sum over r, s, i of padded[n, y * stride + r * dilation, x * stride + s * dilation, i]
                      * weight[o // 16, (r * S + s) * I + i, o % 16]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.compute.windows import store_padded, unused
from nimblevm.kernels.loop_ir import Value
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
from nimblevm.relay.op.conv2d_pack import windows


class _Conv:
    """One convolution."""

    def __init__(self, em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> None:
        self.em, self.layout = em, attrs.data_layout
        self.data, self.weight = (single(arg) for arg in args)
        self.dtype = tensor_type(out).dtype
        sizes = dict(zip(self.layout, self.data.shape, strict=True))
        self.batch, self.height, self.width = (sizes[c] for c in "NHW")
        self.windows = windows(attrs, (self.height, self.width))
        self.kernel = tuple(int(w.kernel) for w in self.windows)  # type: ignore[arg-type]
        depth = self.weight.shape[1]
        self.channels = sizes["C"]
        if isinstance(depth, int):
            self.channels = depth // (self.kernel[0] * self.kernel[1])
        padded = [w.padded for w in self.windows]
        self.padded = TensorExpr((self.batch, *padded, self.channels), self.dtype, unused)
        self.plain = self.layout == "NHWC" and not any(w.before + w.after for w in self.windows)

    def at(self, index: Index) -> Steps:
        em, b = self.em, self.em.b
        if self.plain:
            yield from em.cheap(self.data)
        elif self.padded.storage is None:
            with em.at_top():
                yield from store_padded(em, self.padded, self.data, self.layout, self.windows)
        source = self.data if self.plain else self.padded
        n, y, x, channel = index
        lanes = b.i64(LANES)
        panel, lane = b.binary("floordiv", channel, lanes), b.binary("floormod", channel, lanes)

        def term(inside: Index) -> Steps:
            r, s, i = inside
            place = tuple(
                b.add(b.mul(at, b.i64(w.stride)), b.mul(k, b.i64(w.dilation)))
                for at, k, w in zip((y, x), (r, s), self.windows, strict=True)
            )
            row = b.add(b.mul(r, b.i64(self.kernel[1])), s)
            depth = b.add(b.mul(row, em.dim(self.channels)), i)
            value: Value = yield source, (n, *place, i)
            weight: Value = yield self.weight, (panel, depth, lane)
            return b.mul(value, weight)

        extents = (*self.kernel, self.channels)
        return (yield from em.accumulate("add", b.const(0, self.dtype), index, extents, term))


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    conv = _Conv(em, args, attrs, out)
    return TensorExpr(tensor_type(out).shape, conv.dtype, conv.at, 1 << 20, costly=True)


register_compute("nn.contrib_conv2d_pack", _compute)
