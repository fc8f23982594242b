"""unravel_index: the position taken apart from the last axis on; the row is chosen by comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
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
    indices, shape = (single(arg) for arg in args)
    type_ = tensor_type(out)
    count = type_.shape[0]
    assert isinstance(count, int)

    def at(index: Index) -> Steps:
        b = em.b
        rest = yield indices, index[1:]
        parts = []
        for axis in range(count - 1, 0, -1):
            size = yield shape, (b.i64(axis),)
            parts.append((axis, b.binary("floormod", rest, size)))
            rest = b.binary("floordiv", rest, size)
        for axis, part in parts:
            rest = b.select(b.compare("eq", index[0], b.i64(axis)), part, rest)
        return rest

    return TensorExpr(type_.shape, type_.dtype, at, indices.cost + shape.cost + 4 * count)


register_compute("unravel_index", _compute)
