"""Builder functions of elementwise mathematics: TVM's names, argument order and defaults."""

from __future__ import annotations

from nimblevm.relay import ir
from nimblevm.relay.call import Operand, call_op, pair


def log2(data: Operand) -> ir.Call:
    """Binary logarithm."""
    return call_op("log2", data)


def log10(data: Operand) -> ir.Call:
    """Decimal logarithm."""
    return call_op("log10", data)


def tan(data: Operand) -> ir.Call:
    """Tangent."""
    return call_op("tan", data)


def cos(data: Operand) -> ir.Call:
    """Cosine."""
    return call_op("cos", data)


def cosh(data: Operand) -> ir.Call:
    """Hyperbolic cosine."""
    return call_op("cosh", data)


def sin(data: Operand) -> ir.Call:
    """Sine."""
    return call_op("sin", data)


def sinh(data: Operand) -> ir.Call:
    """Hyperbolic sine."""
    return call_op("sinh", data)


def acos(data: Operand) -> ir.Call:
    """Arc cosine."""
    return call_op("acos", data)


def acosh(data: Operand) -> ir.Call:
    """Inverse hyperbolic cosine."""
    return call_op("acosh", data)


def asin(data: Operand) -> ir.Call:
    """Arc sine."""
    return call_op("asin", data)


def asinh(data: Operand) -> ir.Call:
    """Inverse hyperbolic sine."""
    return call_op("asinh", data)


def atan(data: Operand) -> ir.Call:
    """Arc tangent."""
    return call_op("atan", data)


def atanh(data: Operand) -> ir.Call:
    """Inverse hyperbolic tangent."""
    return call_op("atanh", data)


def erf(data: Operand) -> ir.Call:
    """The error function."""
    return call_op("erf", data)


def trunc(data: Operand) -> ir.Call:
    """data without its fraction."""
    return call_op("trunc", data)


def isnan(data: Operand) -> ir.Call:
    """Whether an element is NaN (bool)."""
    return call_op("isnan", data)


def isinf(data: Operand) -> ir.Call:
    """Whether an element is infinite (bool)."""
    return call_op("isinf", data)


def isfinite(data: Operand) -> ir.Call:
    """Whether an element is neither NaN nor infinite (bool)."""
    return call_op("isfinite", data)


def bitwise_not(data: Operand) -> ir.Call:
    """~data."""
    return call_op("bitwise_not", data)


def bitwise_and(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs & rhs, broadcast."""
    return call_op("bitwise_and", *pair(lhs, rhs))


def bitwise_or(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs | rhs, broadcast."""
    return call_op("bitwise_or", *pair(lhs, rhs))


def bitwise_xor(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs ^ rhs, broadcast."""
    return call_op("bitwise_xor", *pair(lhs, rhs))


def left_shift(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs << rhs, broadcast; the count is taken modulo the width."""
    return call_op("left_shift", *pair(lhs, rhs))


def right_shift(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs >> rhs, broadcast; the count is taken modulo the width."""
    return call_op("right_shift", *pair(lhs, rhs))


__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "cos", "cosh", "erf", "isfinite", "isinf", "isnan", "left_shift", "log10", "log2",
    "right_shift", "sin", "sinh", "tan", "trunc",
]  # fmt: skip
