"""nn.softmax and kin: maximum, sum of exponentials, quotient (or difference to its logarithm); three loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type, wide
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Softmax,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)


def _softmax(
    em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any, log: bool = False
) -> Tensors:
    data = single(args[0])
    axis = axis_of(attrs.axis, data.rank)
    dtype = wide(data.dtype)
    shape = tensor_type(out).shape
    rows = (*data.shape[:axis], *data.shape[axis + 1 :])

    def element(index: Index, inner: Value) -> Steps:
        value = yield data, (*index[:axis], inner, *index[axis:])
        return em.b.cast(value, dtype)

    def greatest_at(index: Index) -> Steps:
        start = em.b.const(float("-inf"), dtype)
        return em.accumulate("max", start, index, (shape[axis],), lambda k: element(index, k[0]))

    greatest = TensorExpr(rows, dtype, greatest_at, 1 << 20, costly=True)

    def shifted(index: Index, inner: Value) -> Steps:
        value = yield from element(index, inner)
        top = yield greatest, index
        return em.b.sub(value, top)

    def power(index: Index, inner: Value) -> Steps:
        value = yield from shifted(index, inner)
        return em.b.unary("exp", value)

    def total_at(index: Index) -> Steps:
        start = em.b.const(0.0, dtype)
        return em.accumulate("add", start, index, (shape[axis],), lambda k: power(index, k[0]))

    total = TensorExpr(rows, dtype, total_at, 1 << 20, costly=True)

    def at(index: Index) -> Steps:
        yield from em.cheap(data)
        row = (*index[:axis], *index[axis + 1 :])
        bottom = yield total, row
        if log:
            value = yield from shifted(row, index[axis])
            return em.b.cast(em.b.sub(value, em.b.unary("log", bottom)), data.dtype)
        top = yield from power(row, index[axis])
        return em.b.cast(em.b.binary("div", top, bottom), data.dtype)

    role = None if log or axis != data.rank - 1 else Softmax(data)
    return TensorExpr(shape, data.dtype, at, 1 << 20, costly=True, role=role)


def _log_softmax(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    return _softmax(em, args, attrs, out, log=True)


register_compute("nn.softmax", _softmax)
register_compute("nn.fast_softmax", _softmax)
register_compute("nn.log_softmax", _log_softmax)
