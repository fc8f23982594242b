"""nn.leaky_relu, nn.prelu: data where it is positive, else its product with a slope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type, wide, widened
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Tensors,
    elementwise,
    moved,
    register_compute,
    single,
)


def _rectified(em: Emitter, x: Value, slope: Value) -> Value:
    positive = em.b.compare("gt", x, em.b.const(0, x.dtype))
    return em.b.select(positive, x, em.b.mul(x, slope))


def _leaky(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    slope = em.b.const(attrs.alpha, wide(data.dtype))
    body = widened(em, data.dtype, lambda x: _rectified(em, x, slope))
    return elementwise(em, [data], tensor_type(out), body, 2)


def _prelu(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, alpha = (single(arg) for arg in args)
    axis = axis_of(attrs.axis, data.rank)

    def along(index: Index) -> Index:
        return (index[axis],)

    column = moved(alpha, tensor_type(out).shape, along)
    body = widened(em, data.dtype, lambda x, slope: _rectified(em, x, slope))
    return elementwise(em, [data, column], tensor_type(out), body, 2)


register_compute("nn.leaky_relu", _leaky)
register_compute("nn.prelu", _prelu)
