"""Index arithmetic of schedules."""

from __future__ import annotations

from nimblevm.kernels.loop_ir import Binary, Const, LoopVar, Value
from nimblevm.kernels.rewrite import all_values

INDEX = "int64"


STACK = "$tile"
"""Name of buffers that are arrays on the stack: they follow the kernel's own and are no operands."""


def const(value: int) -> Const:
    return Const(INDEX, value)


def folded(op: str, lhs: Value, rhs: Value) -> Value:
    """An operation on sizes, computed where both are literals (divisors are positive)."""
    if isinstance(lhs, Const) and isinstance(rhs, Const):
        a, b = int(lhs.value), int(rhs.value)
        match op:
            case "mul":
                return const(a * b)
            case "add":
                return const(a + b)
            case "sub":
                return const(a - b)
            case "floordiv":
                return const(a // b)
            case "floormod":
                return const(a % b)
            case "min":
                return const(min(a, b))
            case "max":
                return const(max(a, b))
    if op == "add" and is_zero(lhs):
        return rhs
    if op in ("add", "sub") and is_zero(rhs):
        return lhs
    return Binary(INDEX, op, lhs, rhs)


def least(limit: int, left: Value) -> Value:
    """min(limit, left)."""
    if isinstance(left, Const):
        return const(min(limit, int(left.value)))
    return Binary(INDEX, "min", const(limit), left)


def is_zero(value: Value) -> bool:
    return isinstance(value, Const) and value.value == 0


def mentions(value: Value, var: LoopVar) -> bool:
    """Whether a value depends on a loop variable."""
    return any(v is var for v in all_values((value,)))


def steps_with(index: Value, var: LoopVar) -> bool:
    """Whether an index is `var` plus what does not depend on it."""
    todo, found = [index], 0
    while todo:
        value = todo.pop()
        if value is var:
            found += 1
        elif isinstance(value, Binary) and value.op == "add":
            todo += (value.lhs, value.rhs)
        elif mentions(value, var):
            return False
    return found == 1


__all__ = ["INDEX", "STACK", "const", "folded", "is_zero", "least", "mentions", "steps_with"]
