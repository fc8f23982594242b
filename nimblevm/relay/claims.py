"""Checks of values against types at run time, as the interpreter does them (DESIGN: dims, claims and facts).

A type's static dims and the dims that already have a number are compared; a variable without a number
gets it from the first tensor whose axis is exactly that variable, as DimOf does; expressions are compared
once all of their variables have numbers. Data types, functions and references are not looked into: what
comes out of them is checked then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

import numpy.typing as npt

from nimblevm.errors import DivisionByZero, InvalidInputType, NimbleError, ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.types import HAS_DIM, TensorType, TupleType, Type
from nimblevm.relay.values import Value, describe, fits_kind

Array = npt.NDArray[Any]
Claim = tuple[Value, Type, str]  # value, type, the human name of the place


class DimScope:
    """The numbers of dim variables in one activation; looks into the enclosing ones."""

    __slots__ = ("numbers", "parent")

    def __init__(self, parent: DimScope | None = None) -> None:
        self.numbers: dict[DimVar, int] = {}
        self.parent = parent

    def find(self, var: DimVar) -> int | None:
        scope: DimScope | None = self
        while scope is not None:
            number = scope.numbers.get(var)
            if number is not None:
                return number
            scope = scope.parent
        return None

    def value(self, dim: Dim) -> int | None:
        """The number of a dim, None if a variable has none. A part that is undefined is a ShapeMismatch."""
        if isinstance(dim, int):
            return dim
        if isinstance(dim, DimVar):
            return self.find(dim)
        env: MutableMapping[DimVar, int] = {}
        for var in dims.free_vars(dim):
            number = self.find(var)
            if number is None:
                return None
            env[var] = number
        try:
            return dims.evaluate(dim, env)
        except DivisionByZero as error:
            raise ShapeMismatch(f"{dim!r}: {error}") from None


def tensor_claims(claims: Iterable[Claim]) -> Iterator[tuple[Array, TensorType, str]]:
    """The tensors of the claims with their types, through tuples, left to right. Raises InvalidInputType."""
    stack = list(claims)
    stack.reverse()
    while stack:
        value, type_, where = stack.pop()
        if not fits_kind(value, type_):
            raise InvalidInputType(f"{where}: expected {type_!r}, got {describe(value)}")
        if isinstance(type_, TensorType):
            yield value, type_, where
        elif isinstance(type_, TupleType):
            parts = [
                (v, t, f"{where}.{i}")
                for i, (v, t) in enumerate(zip(value, type_.fields, strict=True))
            ]
            stack.extend(reversed(parts))


def check(
    claims: Iterable[Claim],
    scope: DimScope,
    bind: bool = True,
    error: type[NimbleError] = ShapeMismatch,
) -> None:
    """Compare values with types; `bind` gives numbers to variables that have none.

    A static dim that differs raises `error`, a variable or an expression ShapeMismatch.
    """
    tensors = list(tensor_claims(claims))
    if bind:
        for value, type_, _ in tensors:
            if type_.flags & HAS_DIM:
                for dim, size in zip(type_.shape, value.shape, strict=True):
                    if isinstance(dim, DimVar) and scope.find(dim) is None:
                        scope.numbers[dim] = size
    for value, type_, where in tensors:
        for axis, (dim, size) in enumerate(zip(type_.shape, value.shape, strict=True)):
            expected = size if dim is size else scope.value(dim)
            if expected is not None and expected != size:
                kind = error if isinstance(dim, int) else ShapeMismatch
                named = f"{expected}" if isinstance(dim, int) else f"{dim!r} = {expected}"
                raise kind(
                    f"{where}: axis {axis} must be {named}, but it is {size} (shape {value.shape})"
                )


def has_claims(type_: Type | None) -> bool:
    """Whether a type says anything about dims of tensors that are reached through tuples only."""
    stack = [] if type_ is None else [type_]
    while stack:
        match stack.pop():
            case TensorType(shape=shape) if shape:
                return True
            case TupleType(fields=fields):
                stack.extend(fields)
    return False
