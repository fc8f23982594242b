"""Sizes that a program's author gives: numbers and dims, or expressions, which make a dyn operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nimblevm.arguments import shown
from nimblevm.errors import InvalidInputType
from nimblevm.relay import ir, op
from nimblevm.relay.call import as_expr, call_op, plain
from nimblevm.relay.dims import Dim, DimExpr


def is_computed(value: Any) -> bool:
    """Whether sizes are computed by the program: an expression that is no constant, or a list with one in it."""
    if isinstance(value, ir.Expr):
        return not isinstance(value, ir.Constant)
    return isinstance(value, list | tuple) and any(is_computed(part) for part in value)


def given(value: Any) -> Any:
    """Sizes that are no expression: an int, a dim, or nested tuples of such."""
    value = plain(value.data if isinstance(value, ir.Constant) else value)
    if isinstance(value, int | DimExpr) or value is None:
        return value
    if isinstance(value, str | bytes | ir.Expr) or not isinstance(value, Iterable):
        raise InvalidInputType(
            f"expected sizes (numbers, dims or an expression), got {shown(value)}"
        )
    return tuple(given(part) for part in value)


def dims_of(value: Any) -> tuple[Dim, ...]:
    """Sizes that are no expression, as a tuple of ints and dims."""
    found = given(value)
    return found if isinstance(found, tuple) else (found,)


def ints_of(function: str, value: Any) -> tuple[int, ...]:
    """Sizes that are numbers; TypeError for dims."""
    sizes = dims_of(value)
    numbers = tuple(size for size in sizes if isinstance(size, int))
    if len(numbers) != len(sizes):
        raise TypeError(f"{function}: expected ints or an expression, got {value}")
    return numbers


def numbers(value: Any, dtype: str) -> np.ndarray[Any, Any]:
    """Sizes or bounds that are numbers, as an array. InvalidInputType for what is none or does not fit."""
    try:
        return np.asarray(given(value), dtype)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputType(
            f"expected {dtype} numbers or an expression, got {shown(value)}"
        ) from None


def operand(value: Any) -> ir.Expr:
    """Computed sizes as one tensor: a list of scalars is joined to an int64 vector, numbers become a constant."""
    if isinstance(value, ir.Expr):
        return value
    if not is_computed(value):
        return ir.Constant(numbers(value, "int64"))
    parts = tuple(_scalar(part) for part in value)
    return call_op("stack", ir.Tuple(parts), attrs=op.stack.StackAttrs(0))


def vector(value: Any) -> ir.Expr:
    """As `operand`; one size is a vector of length 1."""
    value = plain(value)
    return operand((value,) if isinstance(value, int) else value)


def _scalar(part: Any) -> ir.Expr:
    if isinstance(part, ir.Expr) and not isinstance(part, ir.Constant):
        return call_op("cast", part, attrs=op.cast.CastAttrs("int64"))
    if isinstance(part, Sequence):
        return operand(part)
    return as_expr(numbers(part, "int64"))
