"""sequence_mask: the step against the sequence's length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.cast import convert
from nimblevm.kernels.compute.common import axis_of, tensor_type
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
    data, lengths = (single(arg) for arg in args)
    axis = axis_of(attrs.axis, data.rank)

    def at(index: Index) -> Steps:
        b = em.b
        length = yield lengths, (index[1 - axis],)
        value = yield data, index
        # uint64 is the one dtype that int64 does not hold.
        dtype = "uint64" if length.dtype == "uint64" else INDEX
        kept = b.compare("lt", b.cast(index[axis], dtype), b.cast(length, dtype))
        masked = convert(em, b.const(attrs.mask_value, "float32"), data.dtype)
        return b.select(kept, value, masked)

    return TensorExpr(tensor_type(out).shape, data.dtype, at, data.cost + lengths.cost + 1)


register_compute("sequence_mask", _compute)
