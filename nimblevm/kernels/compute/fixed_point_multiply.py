"""fixed_point_multiply: a product of 64 bits, rounded while it is shifted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import Emitter, Tensors, elementwise, register_compute, single
from nimblevm.relay.op.fixed_point_multiply import BITS


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    b, right = em.b, BITS + max(-attrs.shift, 0)

    def body(value: Value) -> Value:
        scaled = b.mul(b.cast(value, "int64"), b.i64(1 << max(attrs.shift, 0)))
        product = b.mul(scaled, b.i64(attrs.multiplier))
        half = b.i64(1 << (right - 1))
        return b.cast(b.binary("shr", b.add(product, half), b.i64(right)), "int32")

    return elementwise(em, [single(args[0])], tensor_type(out), body, 4)


register_compute("fixed_point_multiply", _compute)
