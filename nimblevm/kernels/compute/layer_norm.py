"""nn.layer_norm: mean, variance, then the normalized element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type, wide
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)
from nimblevm.relay.dims import Dim


def _moments(
    em: Emitter, data: TensorExpr, axis: int, size: Dim, dtype: str
) -> tuple[TensorExpr, TensorExpr]:
    """Mean and variance of the rows along `axis`."""
    b = em.b
    rows = (*data.shape[:axis], *data.shape[axis + 1 :])

    def element(index: Index, inner: Value) -> Steps:
        value = yield data, (*index[:axis], inner, *index[axis:])
        return b.cast(value, dtype)

    def averaged(index: Index, term: Any) -> Steps:
        total = yield from em.accumulate("add", b.const(0.0, dtype), index, (size,), term)
        return b.binary("div", total, b.cast(em.dim(size), dtype))

    def mean_at(index: Index) -> Steps:
        return averaged(index, lambda k: element(index, k[0]))

    mean = TensorExpr(rows, dtype, mean_at, 1 << 20, costly=True)

    def square(index: Index, inner: Value) -> Steps:
        middle = yield mean, index
        value = yield from element(index, inner)
        centred = b.sub(value, middle)
        return b.mul(centred, centred)

    def variance_at(index: Index) -> Steps:
        return averaged(index, lambda k: square(index, k[0]))

    return mean, TensorExpr(rows, dtype, variance_at, 1 << 20, costly=True)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    b = em.b
    data, gamma, beta = (single(arg) for arg in args)
    axis = axis_of(attrs.axis, data.rank)
    dtype = wide(data.dtype)
    shape = tensor_type(out).shape
    mean, variance = _moments(em, data, axis, shape[axis], dtype)

    def at(index: Index) -> Steps:
        yield from em.cheap(data)
        row = (*index[:axis], *index[axis + 1 :])
        middle = yield mean, row
        spread = yield variance, row
        value = yield data, index
        scale = b.unary("sqrt", b.add(spread, b.const(attrs.epsilon, dtype)))
        found = b.binary("div", b.sub(b.cast(value, dtype), middle), scale)
        if attrs.scale:
            factor = yield gamma, (index[axis],)
            found = b.mul(found, b.cast(factor, dtype))
        if attrs.center:
            shift = yield beta, (index[axis],)
            found = b.add(found, b.cast(shift, dtype))
        return b.cast(found, data.dtype)

    return TensorExpr(shape, data.dtype, at, 1 << 20, costly=True)


register_compute("nn.layer_norm", _compute)
