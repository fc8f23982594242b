"""on_device, device_copy, compiler_begin, compiler_end: the operand itself, for where one is run on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.tensor_expr import Emitter, Tensors, register_compute, single


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    return (single(args[0]),)


for _name in ("on_device", "device_copy", "annotation.compiler_begin", "annotation.compiler_end"):
    register_compute(_name, _compute)
