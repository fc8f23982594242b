"""Binary arithmetic with broadcasting: one table.

    out[i] = f(lhs[i], rhs[i])      shapes broadcast by numpy's rule, both operands and the result of one dtype

Integers wrap; integer division and modulus by zero raise DivisionByZero and MIN / -1 wraps. An integer to a
negative power is (1 / lhs) ** -rhs with the integer division, so 0 ** -1 raises. float16 is computed in
float32 and rounded once. Source: Relay's `_tensor.py`; each row's doc says what differs from numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm import dtypes
from nimblevm.errors import DivisionByZero
from nimblevm.relay.op.common import (
    BOOL,
    INTEGERS,
    NUMERIC,
    Array,
    as_compute,
    check_broadcastable,
    divides_integers,
    dtype_name,
    rounded,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


def _truncated_quotient(lhs: Array, rhs: Array) -> Array:
    """Integer quotient towards zero; MIN / -1 wraps to MIN. `rhs` has no zero."""
    if lhs.dtype.kind == "u":
        return np.asarray(np.floor_divide(lhs, rhs))
    # numpy's floor_divide wraps MIN // -1 too; correct the floor where the exact quotient is negative and inexact.
    quotient = np.floor_divide(lhs, rhs)
    inexact = np.subtract(lhs, np.multiply(quotient, rhs)) != 0
    return np.asarray(np.add(quotient, (inexact & ((lhs < 0) != (rhs < 0))).astype(lhs.dtype)))


def _checked(function: Callable[[Array, Array], Any], name: str) -> Callable[[Array, Array], Any]:
    """`function` for floats; for integers it first refuses a zero divisor that meets an element."""

    def divide(lhs: Array, rhs: Array) -> Any:
        if lhs.dtype.kind != "f" and np.broadcast(lhs, rhs).size and not np.all(rhs):
            raise DivisionByZero(f"{name}: integer division by zero")
        return function(lhs, rhs)

    return divide


def _divide(lhs: Array, rhs: Array) -> Any:
    return np.divide(lhs, rhs) if lhs.dtype.kind == "f" else _truncated_quotient(lhs, rhs)


def _floor_divide(lhs: Array, rhs: Array) -> Any:
    return np.floor(np.divide(lhs, rhs)) if lhs.dtype.kind == "f" else np.floor_divide(lhs, rhs)


def _trunc_divide(lhs: Array, rhs: Array) -> Any:
    return np.trunc(np.divide(lhs, rhs)) if lhs.dtype.kind == "f" else _truncated_quotient(lhs, rhs)


def _trunc_mod(lhs: Array, rhs: Array) -> Any:
    if lhs.dtype.kind == "f":
        return np.fmod(lhs, rhs)
    return np.subtract(lhs, np.multiply(_truncated_quotient(lhs, rhs), rhs))


def _floor_mod(lhs: Array, rhs: Array) -> Any:
    if lhs.dtype.kind == "f":
        return np.mod(lhs, rhs)
    return np.subtract(lhs, np.multiply(np.floor_divide(lhs, rhs), rhs))


def _power(lhs: Array, rhs: Array) -> Any:
    if lhs.dtype.kind == "f":
        # numpy takes the square root for one exponent of 0.5 that meets all elements, which differs for -0 and -inf.
        lhs, rhs = np.broadcast_arrays(lhs, rhs)
        pairs = [np.append(part, part.dtype.type(1)) for part in (lhs, rhs)]
        return np.power(*pairs)[:-1].reshape(lhs.shape)
    lhs, rhs = np.broadcast_arrays(lhs, rhs)
    negative = rhs < 0
    if np.any(negative & (lhs == 0)):
        raise DivisionByZero("power: 0 to a negative power")
    inverse = np.where((lhs == 1) | (lhs == -1) if lhs.dtype.kind == "i" else False, lhs, 0)
    base = np.where(negative, inverse, lhs).astype(lhs.dtype)
    # Of a negative exponent only the parity counts; the least one has no negation.
    exponent = np.where(negative, 2 - (rhs & 1), rhs).astype(lhs.dtype)
    return np.power(base, exponent)


def _shift(function: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Any]:
    """The count modulo the width."""
    return lambda lhs, rhs: function(lhs, rhs & rhs.dtype.type(8 * rhs.dtype.itemsize - 1))


@dataclass(frozen=True, slots=True)
class Row:
    """One operator: what it computes, on which dtypes, and how it differs from numpy."""

    name: str
    formula: str
    function: Callable[[Array, Array], Any]
    differs: str = "none"
    dtypes: tuple[str, ...] = NUMERIC
    divides: bool = False


TABLE: tuple[Row, ...] = (
    Row("add", "lhs + rhs", np.add),
    Row("subtract", "lhs - rhs", np.subtract),
    Row("multiply", "lhs * rhs", np.multiply),
    Row(
        "divide", "lhs / rhs", _divide,
        "integers divide towards zero and stay integers; a zero divisor raises", divides=True,
    ),
    Row("maximum", "lhs if lhs > rhs else rhs; a NaN operand gives NaN", np.maximum, dtypes=NUMERIC + BOOL),
    Row("minimum", "lhs if lhs < rhs else rhs; a NaN operand gives NaN", np.minimum, dtypes=NUMERIC + BOOL),
    Row(
        "power", "lhs ** rhs; integers wrap", _power,
        "an integer to a negative power is (1 / lhs) ** -rhs, of 0 it raises; numpy refuses it",
    ),
    Row(
        "floor_divide", "floor(lhs / rhs)", _floor_divide,
        "floats: the quotient rounded once, then floor (numpy corrects it by the remainder); "
        "an integer zero divisor raises", divides=True,
    ),
    Row(
        "floor_mod", "lhs - floor(lhs / rhs) * rhs, exact, sign of rhs", _floor_mod,
        "an integer zero divisor raises", divides=True,
    ),
    Row(
        "trunc_divide", "trunc(lhs / rhs)", _trunc_divide,
        "numpy has no such function; an integer zero divisor raises", divides=True,
    ),
    Row(
        "trunc_mod", "lhs - trunc(lhs / rhs) * rhs, exact, sign of lhs", _trunc_mod,
        "it is numpy's fmod; an integer zero divisor raises", divides=True,
    ),
    Row(
        "mod", "lhs - trunc(lhs / rhs) * rhs, exact, sign of lhs", _trunc_mod,
        "numpy's mod floors, this one truncates; an integer zero divisor raises", divides=True,
    ),
    Row("bitwise_and", "lhs & rhs", np.bitwise_and, dtypes=INTEGERS + BOOL),
    Row("bitwise_or", "lhs | rhs", np.bitwise_or, dtypes=INTEGERS + BOOL),
    Row("bitwise_xor", "lhs ^ rhs", np.bitwise_xor, dtypes=INTEGERS + BOOL),
    Row(
        "left_shift", "lhs << (rhs mod width)", _shift(np.left_shift),
        "the count is taken modulo the width of the dtype", dtypes=INTEGERS,
    ),
    Row(
        "right_shift", "lhs >> (rhs mod width), signed integers keep their sign", _shift(np.right_shift),
        "the count is taken modulo the width of the dtype", dtypes=INTEGERS,
    ),
)  # fmt: skip


def _effect(row: Row) -> Effect | Callable[[tuple[Type, ...], Any], Effect]:
    if row.divides:
        return divides_integers
    return _power_effect if row.name == "power" else Effect.TOTAL


def _power_effect(arg_types: tuple[Type, ...], attrs: object) -> Effect:
    """Only signed integers have negative exponents that divide."""
    first = arg_types[0]
    signed = isinstance(first, TensorType) and dtypes.dtype(first.dtype)
    return Effect.MAY_FAIL if signed and signed.is_integer and signed.is_signed else Effect.TOTAL


def _relation(allowed: tuple[str, ...]) -> Callable[[TypeContext, tuple[Type, ...], Any], Type]:
    def relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
        lhs = tensor_of(ctx, arg_types, 0, allowed)
        rhs = tensor_of(ctx, arg_types, 1, allowed)
        same_dtype(ctx, lhs, rhs, 1)
        return TensorType(ctx.broadcast(((0, lhs.shape), (1, rhs.shape))), lhs.dtype)

    return relation


def _reference(row: Row) -> Callable[[tuple[Array, ...], Any, Type], Array]:
    function = _checked(row.function, row.name) if row.divides else row.function

    def reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
        lhs, rhs = inputs
        check_broadcastable(row.name, lhs, rhs)
        with np.errstate(all="ignore"):
            return rounded(function(as_compute(lhs), as_compute(rhs)), dtype_name(lhs))

    return reference


def _doc(row: Row) -> str:
    return (
        f"{row.name}(lhs, rhs): out = {row.formula}\n\n"
        "lhs, rhs: tensors of one dtype whose shapes broadcast; result: the broadcast shape, the same dtype.\n"
        f"Dtypes: {', '.join(row.dtypes)}.\nDiffers from numpy: {row.differs}."
    )


for _row in TABLE:
    register(
        Op(
            name=_row.name,
            args=("lhs", "rhs"),
            relation=_relation(_row.dtypes),
            reference=_reference(_row),
            pattern=OpPattern.BROADCAST,
            effect=_effect(_row),
            dtypes=(_row.dtypes,),
            doc=_doc(_row),
        )
    )
