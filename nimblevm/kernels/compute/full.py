"""zeros, ones, full and the *_like forms: one value everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.cast import convert
from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.tensor_expr import (
    Compute,
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)


def _same(value: int) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        found = em.b.const(value, tensor_type(out).dtype)

        def at(index: Index) -> Steps:
            return found
            yield

        return TensorExpr(out.shape, out.dtype, at)

    return compute


def _full(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    value = single(args[0])
    dtype = tensor_type(out).dtype

    def at(index: Index) -> Steps:
        found = yield value, ()
        return convert(em, found, dtype)

    return TensorExpr(out.shape, dtype, at, value.cost)


for _name, _value in (("zeros", 0), ("ones", 1)):
    register_compute(_name, _same(_value))
    register_compute(f"{_name}_like", _same(_value))
register_compute("full", _full)
