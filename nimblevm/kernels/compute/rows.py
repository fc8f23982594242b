"""vm.rows inside of a group: elements from a row on. Who makes such a group knows that the rows are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.expr import INDEX
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
    data, begin = (single(arg) for arg in args)
    shape = tensor_type(out).shape

    def at(index: Index) -> Steps:
        first = yield begin, ()
        return (yield data, (em.b.add(em.b.cast(first, INDEX), index[0]), *index[1:]))

    return TensorExpr(shape, data.dtype, at, data.cost)


register_compute("vm.rows", _compute)
