"""nn.dilate: a read guarded by the remainders of the index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.cast import convert
from nimblevm.kernels.compute.common import guarded, tensor_type
from nimblevm.kernels.tensor_expr import (
    RECOMPUTE_LIMIT,
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

    def at(index: Index) -> Steps:
        b = em.b
        steps = [(i, b.i64(s)) for i, s in zip(index, attrs.strides, strict=True)]
        place = tuple(b.binary("floordiv", i, s) for i, s in steps)
        hits = [
            b.compare("eq", b.binary("floormod", i, s), b.i64(0))
            for (i, s), stride in zip(steps, attrs.strides, strict=True) if stride > 1
        ]  # fmt: skip
        between = convert(em, b.const(attrs.dilation_value, "float64"), data.dtype)
        return (yield from guarded(em, index, hits, data, place, between))

    # As for nn.pad: a loop that reads it often stores it.
    return TensorExpr(tensor_type(out).shape, data.dtype, at, data.cost + RECOMPUTE_LIMIT + 1)


register_compute("nn.dilate", _compute)
