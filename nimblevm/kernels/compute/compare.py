"""Comparisons and logic: rows of relay/op/compare.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Compute,
    Emitter,
    Tensors,
    elementwise,
    register_compute,
    single,
)

COMPARISONS = {
    "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt",
    "greater_equal": "ge",
}  # fmt: skip
LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}


def _compute(op: str, compares: bool) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        def body(x: Value, y: Value) -> Value:
            return em.b.compare(op, x, y) if compares else em.b.binary(op, x, y)

        return elementwise(em, [single(arg) for arg in args], tensor_type(out), body)

    return compute


for _name, _op in COMPARISONS.items():
    register_compute(_name, _compute(_op, compares=True))
for _name, _op in LOGIC.items():
    register_compute(_name, _compute(_op, compares=False))
