"""nn.bias_add: a vector added along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Tensors,
    elementwise,
    moved,
    register_compute,
    single,
)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, bias = (single(arg) for arg in args)
    axis = axis_of(attrs.axis, data.rank)
    shape = tensor_type(out).shape

    def along(index: Index) -> Index:
        return (index[axis],)

    column = moved(bias, shape, along)
    return elementwise(em, [data, column], out, em.b.add)


register_compute("nn.bias_add", _compute)
