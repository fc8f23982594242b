"""Builds loop-IR values: interned (equal expressions are one object), folded, with the loop
variables they depend on.

Interning is what keeps a fused DAG linear: an operand used a thousand times is one node. Only
int64 arithmetic is folded, which is what index expressions are made of; arithmetic on data is left
as the program wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nimblevm import dtypes
from nimblevm.kernels.loop_ir import (
    Binary,
    Cast,
    CheckIndex,
    Compare,
    Const,
    DimRef,
    Load,
    Local,
    LoopVar,
    Select,
    Unary,
    Value,
)
from nimblevm.kernels.loop_ir_form import operands

INDEX = "int64"
_NONE: frozenset[LoopVar] = frozenset()


class Builder:
    """Makes the values of one kernel."""

    def __init__(self) -> None:
        self._table: dict[tuple[object, ...], Value] = {}
        self._deps: dict[Value, frozenset[LoopVar]] = {}

    def deps(self, value: Value) -> frozenset[LoopVar]:
        """The loop variables that a value made by this builder depends on."""
        return self._deps.get(value, _NONE)

    def deps_of(self, values: Iterable[Value]) -> frozenset[LoopVar]:
        found = _NONE
        for value in values:
            found |= self.deps(value)
        return found

    def _intern(self, key: tuple[object, ...], made: Value, parts: tuple[Value, ...]) -> Value:
        # Parts are named by identity; the table keeps them alive, so identities stay unique.
        full = (type(made), made.dtype, *key, *map(id, parts))
        found = self._table.get(full)
        if found is None:
            self._table[full] = found = made
            self._deps[found] = self.deps_of(parts)
        return found

    # --- leaves ---------------------------------------------------------------------------------

    def const(self, value: bool | int | float, dtype: str) -> Value:
        """A literal, rounded to its dtype."""
        row = dtypes.dtype(dtype)
        plain: bool | int | float
        if row.is_bool:
            plain = bool(value)
        elif row.is_float:
            plain = float(np.dtype(row.numpy).type(value))
        else:
            plain = int(value)
        return self._intern((repr(plain),), Const(dtype, plain), ())

    def i64(self, value: int) -> Value:
        return self.const(value, INDEX)

    def loop_var(self, name: str) -> LoopVar:
        """A fresh loop variable."""
        var = LoopVar(INDEX, name)
        self._deps[var] = frozenset((var,))
        return var

    def local(self, name: str, dtype: str, deps: frozenset[LoopVar]) -> Local:
        """A fresh local whose value is fixed while `deps` are."""
        local = Local(dtype, name)
        self._deps[local] = deps
        return local

    def dim(self, index: int) -> Value:
        return self._intern((index,), DimRef(INDEX, index), ())

    # --- operations -----------------------------------------------------------------------------

    def load(self, buffer: int, dtype: str, indices: tuple[Value, ...]) -> Value:
        return self._intern((buffer,), Load(dtype, buffer, indices), indices)

    def unary(self, op: str, operand: Value) -> Value:
        return self._intern((op,), Unary(operand.dtype, op, operand), (operand,))

    def test(self, op: str, operand: Value) -> Value:
        """isnan, isinf, isfinite."""
        return self._intern((op,), Unary("bool", op, operand), (operand,))

    def bits(self, operand: Value, dtype: str) -> Value:
        """The bits of a float32 or float64 as an integer of that width, or the other way."""
        return self._intern(("bits",), Unary(dtype, "bits", operand), (operand,))

    def binary(self, op: str, lhs: Value, rhs: Value) -> Value:
        if lhs.dtype != rhs.dtype:
            raise TypeError(f"{op} of {lhs.dtype} and {rhs.dtype}")
        folded = self._fold(op, lhs, rhs) if lhs.dtype == INDEX else None
        if folded is not None:
            return folded
        return self._intern((op,), Binary(lhs.dtype, op, lhs, rhs), (lhs, rhs))

    def add(self, lhs: Value, rhs: Value) -> Value:
        return self.binary("add", lhs, rhs)

    def sub(self, lhs: Value, rhs: Value) -> Value:
        return self.binary("sub", lhs, rhs)

    def mul(self, lhs: Value, rhs: Value) -> Value:
        return self.binary("mul", lhs, rhs)

    def _fold(self, op: str, lhs: Value, rhs: Value) -> Value | None:
        a = lhs.value if isinstance(lhs, Const) else None
        b = rhs.value if isinstance(rhs, Const) else None
        if a is not None and b is not None:
            value = _compute(op, int(a), int(b))
            return None if value is None else self.i64(value)
        match op:
            case "add" if b == 0:
                return lhs
            case "add" if a == 0:
                return rhs
            case "add":
                return _put_together(lhs, rhs)
            case "sub" if b == 0:
                return lhs
            case "mul" if b == 1:
                return lhs
            case "mul" if a == 1:
                return rhs
            case "mul" if a == 0 or b == 0:
                return self.i64(0)
            case "floordiv" | "div" if b == 1:
                return lhs
            case "floormod" | "mod" if b == 1:
                return self.i64(0)
            case _:
                return None

    def compare(self, op: str, lhs: Value, rhs: Value) -> Value:
        if lhs.dtype == INDEX and isinstance(lhs, Const) and isinstance(rhs, Const):
            return self.const(_COMPARE[op](lhs.value, rhs.value), "bool")
        return self._intern((op,), Compare("bool", op, lhs, rhs), (lhs, rhs))

    def select(self, cond: Value, if_true: Value, if_false: Value) -> Value:
        if isinstance(cond, Const):
            return if_true if cond.value else if_false
        if if_true is if_false:
            return if_true
        parts = (cond, if_true, if_false)
        return self._intern((), Select(if_true.dtype, *parts), parts)

    def cast(self, operand: Value, dtype: str) -> Value:
        if operand.dtype == dtype:
            return operand
        if (
            isinstance(operand, Const)
            and dtype == INDEX
            and not dtypes.dtype(operand.dtype).is_float
        ):
            return self.i64(int(operand.value))
        return self._intern((), Cast(dtype, operand), (operand,))

    def check_index(self, index: Value, bound: Value, operand: int) -> Value:
        return self._intern((operand,), CheckIndex(INDEX, index, bound, operand), (index, bound))

    def keep_check(self, check: Value, value: Value) -> Value:
        """`value`, which was read at a checked place. One that is the same at all places, as an element of a constant
        is, has lost the place on its way: it is computed after the check then."""
        stack, seen = [value], {value}
        while stack:
            part = stack.pop()
            if part is check:
                return value
            fresh = [p for p in operands(part) if p not in seen]
            seen.update(fresh)
            stack.extend(fresh)
        inside = self.compare("ge", check, self.i64(0))
        zero = self.const(False if value.dtype == "bool" else 0, value.dtype)
        return self._intern((), Select(value.dtype, inside, value, zero), (inside, value, zero))


_COMPARE = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


def _put_together(lhs: Value, rhs: Value) -> Value | None:
    """x for floordiv(x, n) * n + floormod(x, n): an index taken apart and put together again."""
    if not (isinstance(lhs, Binary) and lhs.op == "mul" and isinstance(rhs, Binary)):
        return None
    whole = lhs.lhs
    if not (isinstance(whole, Binary) and whole.op == "floordiv" and rhs.op == "floormod"):
        return None
    same = whole.lhs is rhs.lhs and whole.rhs is rhs.rhs is lhs.rhs
    return whole.lhs if same else None


def _compute(op: str, a: int, b: int) -> int | None:
    match op:
        case "add":
            value = a + b
        case "sub":
            value = a - b
        case "mul":
            value = a * b
        case "min":
            value = min(a, b)
        case "max":
            value = max(a, b)
        case "floordiv" if b > 0:
            value = a // b
        case "floormod" if b > 0:
            value = a % b
        case _:
            return None
    return value if -(2**63) <= value < 2**63 else None


__all__ = ["INDEX", "Builder"]
