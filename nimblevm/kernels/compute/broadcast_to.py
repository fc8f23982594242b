"""broadcast_to: the operand, stretched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.tensor_expr import Emitter, Tensors, elementwise, register_compute, single


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    return elementwise(em, [single(args[0])], tensor_type(out), lambda x: x, 0)


register_compute("broadcast_to", _compute)
