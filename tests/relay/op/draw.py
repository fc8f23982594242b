"""How cases of operators are drawn: sources of choices, shapes and arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from hypothesis import strategies as st

from nimblevm.relay.op.concrete import ConcreteContext, concrete_type
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import Type

SIZES = (0, 1, 2, 3, 5)


def type_of(value: Any) -> Type:
    """The type of an operand: a tensor, or a tuple of tensors."""
    found = concrete_type(value)
    assert found is not None
    return found


@dataclass(frozen=True)
class Case:
    """One call of an operator."""

    inputs: tuple[Any, ...]
    attrs: Any = None

    @property
    def types(self) -> tuple[Type, ...]:
        return tuple(type_of(value) for value in self.inputs)

    def infer(self, op: Op) -> Type:
        """The type of the result, of sizes that are all numbers."""
        return op.relation(ConcreteContext(op, self.types), self.types, self.attrs)


class Source(Protocol):
    """Where a case's choices come from."""

    def integer(self, low: int, high: int) -> int:
        """Between low and high, both included."""
        ...


class SeededSource:
    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        return int(self._rng.integers(low, high + 1))


class DrawSource:
    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


def pick(source: Source, options: Any) -> Any:
    return options[source.integer(0, len(options) - 1)]


def flag(source: Source) -> bool:
    return bool(source.integer(0, 1))


def shape(
    source: Source, low: int = 0, high: int = 3, sizes: tuple[int, ...] = SIZES
) -> tuple[int, ...]:
    return tuple(pick(source, sizes) for _ in range(source.integer(low, high)))


def array(
    source: Source, dims: tuple[int, ...], dtype: str, special: bool = True, nonzero: bool = False
) -> np.ndarray:
    """Random elements; with `special` some extremes, zeros, NaN and infinities among them."""
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, dims)).astype("bool")
    kind = np.dtype(dtype).kind
    if kind == "f":
        made = np.asarray(rng.normal(0, 3, dims)).astype(dtype)
        extremes = [0.0, -0.0, 0.5, -0.5, 2.5, np.inf, -np.inf, np.nan]
    else:
        made = np.asarray(rng.integers(-9 if kind == "i" else 0, 10, dims)).astype(dtype)
        extremes = [0, np.iinfo(dtype).max, np.iinfo(dtype).min]
    if special and made.size and source.integer(0, 2) == 0:
        flat = made.reshape(-1)
        for _ in range(source.integer(1, 3)):
            flat[source.integer(0, made.size - 1)] = pick(source, extremes)
    if nonzero:
        made = np.where(made == 0, np.ones_like(made), made)
    return made


def product_dtype(source: Source, dtype: str) -> str:
    """An out_dtype for products of `dtype`: the operands', or a wider one."""
    wider = {"int8": "int32", "uint8": "int32", "float16": "float32"}.get(dtype)
    return wider if wider is not None and flag(source) else ""


def other_dtype(source: Source, dtype: str, out_dtype: str) -> str:
    """The second operand's dtype in a product of the first's: int8 and uint8 may be mixed."""
    mixed = {"int8": "uint8", "uint8": "int8"}.get(dtype, dtype)
    return mixed if out_dtype and flag(source) else dtype


def stretched(source: Source, result: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to `result`."""
    cut = source.integer(0, len(result))
    return tuple(1 if source.integer(0, 3) == 0 else size for size in result[cut:])


def operands(source: Source, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast with each other; the first one is whole."""
    result = shape(source)
    return [result, *(stretched(source, result) for _ in range(count - 1))]
