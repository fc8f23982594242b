"""Binary arithmetic: rows of relay/op/binary.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nimblevm import dtypes
from nimblevm.kernels.compute.common import tensor_type, widened
from nimblevm.kernels.expr import Builder
from nimblevm.kernels.loop_ir import SetLocal, Value
from nimblevm.kernels.tensor_expr import (
    Compute,
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    elementwise,
    register_compute,
    single,
)

Function = Callable[[Builder, Value, Value], Value]


def _plain(op: str) -> Function:
    return lambda b, x, y: b.binary(op, x, y)


def _ordered(numbers: str, bools: str) -> Function:
    """The greater or the smaller one; of bools the one that is True, or False."""
    return lambda b, x, y: b.binary(bools if x.dtype == "bool" else numbers, x, y)


def _rounded_quotient(rounding: str, integer: str) -> Function:
    """The quotient and then `rounding` for floats, the integer operation for integers."""

    def compute(b: Builder, x: Value, y: Value) -> Value:
        if dtypes.dtype(x.dtype).is_float:
            return b.unary(rounding, b.binary("div", x, y))
        return b.binary(integer, x, y)

    return compute


# name -> function, cost of one element in simple operations
TABLE: dict[str, tuple[Function, int]] = {
    "add": (_plain("add"), 1),
    "subtract": (_plain("sub"), 1),
    "multiply": (_plain("mul"), 1),
    "divide": (_plain("div"), 4),
    "maximum": (_ordered("max", "or"), 1),
    "minimum": (_ordered("min", "and"), 1),
    "power": (_plain("pow"), 40),
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


def _integer_power(em: Emitter, x: Value, y: Value, index: Index) -> Value:
    """A loop over the exponent's bits: unrolled it took LLVM a second for 64. Negative: 1 / x, once or squared."""
    b, row = em.b, dtypes.dtype(x.dtype)
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    result, square, rest = (em.local(x.dtype, index) for _ in range(3))

    def bit_set(value: Value) -> Value:
        return b.compare("ne", b.binary("and", value, one), zero)

    for local, start in ((result, one), (square, x), (rest, y)):
        em.emit(SetLocal(local, start))
    with em.loop(row.bits - int(row.is_signed)):
        em.emit(SetLocal(result, b.select(bit_set(rest), b.mul(result, square), result)))
        em.emit(SetLocal(square, b.mul(square, square)))
        em.emit(SetLocal(rest, b.binary("shr", rest, one)))
    if not row.is_signed:
        return result
    negative = b.compare("lt", y, zero)
    inverse = b.binary("div", one, b.select(negative, x, one))
    return b.select(negative, b.select(bit_set(y), inverse, b.mul(inverse, inverse)), result)


def _power(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    lhs, rhs = (single(arg) for arg in args)
    if dtypes.dtype(lhs.dtype).is_float:
        return _compute(*TABLE["power"])(em, args, attrs, out)
    shape = tensor_type(out).shape

    def at(index: Index) -> Steps:
        x = yield lhs, em.broadcast(lhs.shape, shape, index)
        y = yield rhs, em.broadcast(rhs.shape, shape, index)
        with em.hoisted(index):
            return _integer_power(em, x, y, index)

    return TensorExpr(shape, lhs.dtype, at, 1 << 20, costly=True)


for _name, (_function, _cost) in TABLE.items():
    if _name != "power":
        register_compute(_name, _compute(_function, _cost))
register_compute("power", _power)
