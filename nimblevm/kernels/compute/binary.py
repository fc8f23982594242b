"""Binary arithmetic: rows of relay/op/binary.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nimblevm import dtypes
from nimblevm.kernels.compute.common import tensor_type, widened
from nimblevm.kernels.expr import Builder
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Compute,
    Emitter,
    Tensors,
    elementwise,
    register_compute,
    single,
)

Function = Callable[[Builder, Value, Value], Value]


def _plain(op: str) -> Function:
    return lambda b, x, y: b.binary(op, x, y)


def _rounded_quotient(rounding: str, integer: str) -> Function:
    """The quotient and then `rounding` for floats, the integer operation for integers."""

    def compute(b: Builder, x: Value, y: Value) -> Value:
        if dtypes.dtype(x.dtype).is_float:
            return b.unary(rounding, b.binary("div", x, y))
        return b.binary(integer, x, y)

    return compute


def _power(b: Builder, x: Value, y: Value) -> Value:
    """Integers: squares, multiplied where the exponent has a bit; negative exponents: 1 / x, once or squared."""
    row = dtypes.dtype(x.dtype)
    if row.is_float:
        return b.binary("pow", x, y)
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    result, square = one, x
    for bit in range(row.bits - int(row.is_signed)):
        chosen = b.compare("ne", b.binary("and", y, b.const(1 << bit, x.dtype)), zero)
        result = b.select(chosen, b.mul(result, square), result)
        square = b.mul(square, square)
    if not row.is_signed:
        return result
    negative = b.compare("lt", y, zero)
    inverse = b.binary("div", one, b.select(negative, x, one))
    odd = b.compare("ne", b.binary("and", y, one), zero)
    return b.select(negative, b.select(odd, inverse, b.mul(inverse, inverse)), result)


# name -> function, cost of one element in simple operations
TABLE: dict[str, tuple[Function, int]] = {
    "add": (_plain("add"), 1),
    "subtract": (_plain("sub"), 1),
    "multiply": (_plain("mul"), 1),
    "divide": (_plain("div"), 4),
    "maximum": (_plain("max"), 1),
    "minimum": (_plain("min"), 1),
    "power": (_power, 40),
    "floor_divide": (_rounded_quotient("floor", "floordiv"), 5),
    "floor_mod": (_plain("floormod"), 20),
    "trunc_divide": (_rounded_quotient("trunc", "div"), 5),
    "trunc_mod": (_plain("mod"), 20),
    "mod": (_plain("mod"), 20),
    "bitwise_and": (_plain("and"), 1),
    "bitwise_or": (_plain("or"), 1),
    "bitwise_xor": (_plain("xor"), 1),
    "left_shift": (_plain("shl"), 1),
    "right_shift": (_plain("shr"), 1),
}


def _compute(function: Function, cost: int) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        operands = [single(arg) for arg in args]
        body = widened(em, operands[0].dtype, lambda x, y: function(em.b, x, y))
        return elementwise(em, operands, tensor_type(out), body, cost)

    return compute


for _name, (_function, _cost) in TABLE.items():
    register_compute(_name, _compute(_function, _cost))
