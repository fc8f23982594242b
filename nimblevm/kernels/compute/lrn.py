"""nn.lrn: the sum of squares of a window, then a power of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type, wide
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    axis, dtype = axis_of(attrs.axis, data.rank), wide(data.dtype)

    def at(index: Index) -> Steps:
        b = em.b
        yield from em.cheap(data)
        reach = b.i64(attrs.size // 2)
        first = b.binary("max", b.sub(index[axis], reach), b.i64(0))
        last = b.binary("min", b.add(index[axis], reach), b.sub(em.dim(data.shape[axis]), b.i64(1)))

        def square(turn: Index) -> Steps:
            place = b.add(first, turn[0])
            value = yield data, (*index[:axis], place, *index[axis + 1 :])
            value = b.cast(value, dtype)
            return b.mul(value, value)

        count = b.add(b.sub(last, first), b.i64(1))
        total = yield from em.accumulate("add", b.const(0.0, dtype), index, [count], square)
        scaled = b.mul(b.const(attrs.alpha / attrs.size, dtype), total)
        power = b.add(b.const(attrs.bias, dtype), scaled)
        value = yield data, index
        divisor = b.binary("pow", power, b.const(attrs.beta, dtype))
        return b.cast(b.binary("div", b.cast(value, dtype), divisor), data.dtype)

    return TensorExpr(tensor_type(out).shape, data.dtype, at, 1 << 20, costly=True)


register_compute("nn.lrn", _compute)
