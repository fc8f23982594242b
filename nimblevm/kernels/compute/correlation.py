"""nn.correlation: padded images, then a sum over channels and window for each displacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import scalar, tensor_type, wide
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    find_compute,
    register_compute,
    single,
)
from nimblevm.relay import dims
from nimblevm.relay.op.correlation import radius
from nimblevm.relay.op.pad import PadAttrs
from nimblevm.relay.op.windows import padding_pairs
from nimblevm.relay.types import TensorType


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    b, type_ = em.b, tensor_type(out)
    dtype = wide(type_.dtype)
    width = ((0, 0), (0, 0), *padding_pairs(attrs.padding, 2))
    pad = find_compute("nn.pad")
    assert pad is not None

    def padded(data: TensorExpr) -> TensorExpr:
        shape = [dims.add(size, sum(pair)) for size, pair in zip(data.shape, width, strict=True)]
        zero = scalar(b.const(0, data.dtype))
        return single(pad(em, (data, zero), PadAttrs(width), TensorType(shape, data.dtype)))

    first, second = (padded(single(arg)) for arg in args)
    channels, across = first.shape[1], 2 * radius(attrs) + 1

    def at(index: Index) -> Steps:
        yield from em.cheap(first)
        yield from em.cheap(second)
        n, q, *place = index
        moved = (b.binary("floordiv", q, b.i64(across)), b.binary("floormod", q, b.i64(across)))

        def term(turn: Index) -> Steps:
            c, *offset = turn
            here, there = [], []
            for at_, inside, step in zip(place, offset, moved, strict=True):
                start = b.add(b.mul(at_, b.i64(attrs.stride1)), b.i64(attrs.max_displacement))
                here.append(b.add(start, inside))
                shift = b.mul(b.sub(step, b.i64(radius(attrs))), b.i64(attrs.stride2))
                there.append(b.add(here[-1], shift))
            x = yield first, (n, c, *here)
            y = yield second, (n, c, *there)
            x, y = b.cast(x, dtype), b.cast(y, dtype)
            return b.mul(x, y) if attrs.is_multiply else b.unary("abs", b.sub(x, y))

        extents = (channels, attrs.kernel_size, attrs.kernel_size)
        total = yield from em.accumulate("add", b.const(0, dtype), index, extents, term)
        count = b.mul(em.dim(channels), b.i64(attrs.kernel_size**2))
        return b.cast(b.binary("div", total, b.cast(count, dtype)), type_.dtype)

    return TensorExpr(type_.shape, type_.dtype, at, 1 << 20, costly=True)


register_compute("nn.correlation", _compute)
