"""where: both values are read, one is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import Emitter, Tensors, elementwise, register_compute, single


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    def body(condition: Value, x: Value, y: Value) -> Value:
        return em.b.select(em.b.cast(condition, "bool"), x, y)

    return elementwise(em, [single(arg) for arg in args], tensor_type(out), body)


register_compute("where", _compute)
