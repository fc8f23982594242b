"""Checks of values against types at run time, as the interpreter does them (docs/dims.md, "Claims").

A type's static dims and the dims that already have a number are compared; a variable without a number
gets it from the first tensor whose axis is exactly that variable, as DimOf does; expressions are compared
once all of their variables have numbers. Data types, functions and references are not looked into: what
comes out of them is checked then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from nimblevm.errors import InvalidInputType, NimbleError, ShapeMismatch
from nimblevm.relay.dim_scope import DimScope
from nimblevm.relay.dims import DimExpr, DimVar
from nimblevm.relay.ir import Call, Function
from nimblevm.relay.types import HAS_DIM, TensorType, TupleType, Type, value_tensors
from nimblevm.relay.values import Value, describe, fits_kind

Array = npt.NDArray[Any]
Claim = tuple[Value, Type, str]  # value, type, the human name of the place


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
    claims: Iterable[Claim], scope: DimScope, error: type[NimbleError] = ShapeMismatch
) -> None:
    """Compare values with types, after variables that have no number got the sizes that they stand for.

    A dim that differs raises `error`.
    """
    tensors = list(tensor_claims(claims))
    for value, type_, _ in tensors:
        if type_.flags & HAS_DIM:
            _bind(type_, value.shape, scope)
    for value, type_, where in tensors:
        for axis, (dim, size) in enumerate(zip(type_.shape, value.shape, strict=True)):
            expected = size if dim is size else scope.value(dim)
            if expected is not None and expected != size:
                named = f"{expected}" if isinstance(dim, int) else f"{dim!r} = {expected}"
                raise error(
                    f"{where}: axis {axis} must be {named}, but it is {size} (shape {value.shape})"
                )


def _bind(type_: TensorType, sizes: tuple[int, ...], scope: DimScope) -> None:
    for dim, size in zip(type_.shape, sizes, strict=True):
        if isinstance(dim, DimVar) and scope.find(dim) is None:
            scope.numbers[dim] = size


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


def agrees(value: Value, type_: Type) -> bool:
    """Whether an operator's result is what its relation says; nested tuples are as deep as the operator's result."""
    match type_:
        case TensorType(shape=shape):
            return (
                isinstance(value, np.ndarray)
                and fits_kind(value, type_)
                and all(
                    isinstance(d, DimExpr) or d == n
                    for d, n in zip(shape, value.shape, strict=True)
                )
            )
        case TupleType(fields=fields):
            return (
                isinstance(value, tuple)
                and len(value) == len(fields)
                and all(agrees(v, t) for v, t in zip(value, fields, strict=True))
            )
    return True


def found_sizes(
    node: Call, results: tuple[Array, ...], outputs: tuple[Array, ...], scope: DimScope
) -> tuple[Array, ...]:
    """The parts of a kernel call's outputs that its results take, where only the kernel finds their sizes.

    The dims in the call's attributes get their numbers from the results.
    """
    function = node.args[0]
    if not node.attrs.dims or not isinstance(function, Function):
        return outputs
    made = function.body.checked_type
    if made is None:  # not inferred: nothing names the sizes
        return outputs
    types = value_tensors(made)
    for result, type_ in zip(results, types, strict=True):
        first = type_.shape[0] if type_.shape else None
        if isinstance(first, DimVar) and first in node.attrs.dims:
            scope.numbers[first] = len(result)
    return tuple(o[: len(r)] if r.ndim else o for r, o in zip(results, outputs, strict=True))
