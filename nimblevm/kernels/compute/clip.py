"""clip: max with the lower bound, then min with the upper one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import Emitter, Tensors, elementwise, register_compute, single
from nimblevm.relay.op.clip import bounds


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    low, high = (em.b.const(bound.item(), data.dtype) for bound in bounds(attrs, data.dtype))

    def body(x: Value) -> Value:
        return em.b.binary("min", em.b.binary("max", x, low), high)

    return elementwise(em, [data], tensor_type(out), body, 2)


register_compute("clip", _compute)
