"""A TypeContext for operands whose sizes are all numbers: run time, as the oracle sees it.

Every demand is decided on the spot; one that does not hold is a ShapeMismatch, as it is in a compiled program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.op.common import dtype_name
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, TupleType, Type

_TYPES: dict[tuple[np.dtype[Any], tuple[int, ...]], TensorType] = {}


def _tensor_type(value: np.ndarray[Any, Any]) -> TensorType:
    key = (value.dtype, value.shape)
    found = _TYPES.get(key)
    if found is None:
        if len(_TYPES) > 4096:
            _TYPES.clear()
        found = _TYPES[key] = TensorType(value.shape, dtype_name(value))
    return found


def concrete_type(value: Any) -> Type | None:
    """The type of a tensor or a tuple of tensors (one level); None for any other value."""
    if isinstance(value, np.ndarray):
        return _tensor_type(value)
    if isinstance(value, tuple) and all(isinstance(field, np.ndarray) for field in value):
        return TupleType(_tensor_type(field) for field in value)
    return None


class ConcreteContext:
    """Decides demands about the types `arg_types` of one call of `op`."""

    def __init__(self, op: Op, arg_types: tuple[Type, ...]) -> None:
        self._op = op
        self._arg_types = arg_types

    def fail(self, message: str, arg: int | None = None) -> Exception:
        return ShapeMismatch(f"{self._op.name}: {message}")

    def _name(self, arg: int | tuple[int, int]) -> str:
        position, field = arg if isinstance(arg, tuple) else (arg, None)
        name = self._op.args[position]
        return name if field is None else f"field {field} of {name}"

    def _shape(self, arg: int | tuple[int, int]) -> tuple[Dim, ...]:
        found = self._arg_types[arg if isinstance(arg, int) else arg[0]]
        if isinstance(arg, tuple) and isinstance(found, TupleType):
            found = found.fields[arg[1]]
        if not isinstance(found, TensorType):
            raise self.fail(f"{self._name(arg)} is no tensor")
        return found.shape

    def require_dim(self, arg: int | tuple[int, int], axis: int, dim: Dim) -> Dim:
        size = self._shape(arg)[axis]
        if size != dim:
            raise self.fail(f"axis {axis} of {self._name(arg)} must be {dim}, but it is {size}")
        return dim

    def broadcast(
        self, shapes: Sequence[tuple[int | tuple[int, int], tuple[Dim, ...]]]
    ) -> tuple[Dim, ...]:
        rank = max((len(shape) for _, shape in shapes), default=0)
        result: list[Dim] = [1] * rank
        for arg, shape in shapes:
            for axis, size in enumerate(shape, rank - len(shape)):
                if result[axis] == 1:
                    result[axis] = size
                elif size not in (1, result[axis]):
                    raise self.fail(
                        f"axis {axis} of the result: {self._name(arg)} of shape {shape} does not broadcast "
                        f"to size {result[axis]}"
                    )
        return tuple(result)

    def fresh_dim(self, name: str | None = None) -> Dim:
        return DimVar(name)

    def constant(self, arg: int) -> np.ndarray[Any, Any] | None:
        return None
