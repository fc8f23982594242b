"""cast, cast_like, reinterpret: one conversion an element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm import dtypes
from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import Emitter, Tensors, elementwise, register_compute, single


def convert(em: Emitter, value: Value, dtype: str) -> Value:
    """A value in another dtype. float64 goes to float16 by way of float32, as the operator's record says."""
    if dtype == "float16" and value.dtype != "float32":
        value = em.b.cast(value, "float32") if value.dtype != "float16" else value
    return em.b.cast(value, dtype)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    dtype = tensor_type(out).dtype
    return elementwise(em, [single(args[0])], tensor_type(out), lambda x: convert(em, x, dtype))


def _reinterpret(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    dtype = tensor_type(out).dtype

    def body(value: Value) -> Value:
        # Between integers of one width a cast wraps, which keeps the bits.
        if dtypes.dtype(dtype).is_float == dtypes.dtype(value.dtype).is_float:
            return em.b.cast(value, dtype)
        return em.b.bits(value, dtype)

    return elementwise(em, [single(args[0])], tensor_type(out), body)


register_compute("cast", _compute)
register_compute("reinterpret", _reinterpret)
register_compute("cast_like", _compute)
