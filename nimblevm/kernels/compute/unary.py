"""Elementwise functions of one tensor: rows of relay/op/unary.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nimblevm import dtypes
from nimblevm.kernels.compute.common import tensor_type
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

Function = Callable[[Builder, Value], Value]


def _plain(op: str) -> Function:
    return lambda b, x: b.unary(op, x)


def _whole(op: str) -> Function:
    """A rounding: integers are whole already."""
    return lambda b, x: b.unary(op, x) if dtypes.dtype(x.dtype).is_float else x


def _absolute(b: Builder, x: Value) -> Value:
    row = dtypes.dtype(x.dtype)
    return b.unary("abs", x) if row.is_float or row.is_signed else x


def _sign(b: Builder, x: Value) -> Value:
    """NaN gives 0, which the loop IR's sign does not promise."""
    if not dtypes.dtype(x.dtype).is_float:
        return b.unary("sign", x)
    zero, one, minus = (b.const(value, x.dtype) for value in (0, 1, -1))
    below = b.select(b.compare("lt", x, zero), minus, zero)
    return b.select(b.compare("gt", x, zero), one, below)


def _negation(b: Builder, x: Value) -> Value:
    return b.unary("not" if x.dtype == "bool" else "bitnot", x)


def _test(op: str) -> Function:
    """isnan, isinf, isfinite: of an integer they are known."""

    def compute(b: Builder, x: Value) -> Value:
        if dtypes.dtype(x.dtype).is_float:
            return b.test(op, x)
        return b.const(op == "isfinite", "bool")

    return compute


# name -> function, cost of one element in simple operations
TABLE: dict[str, tuple[Function, int]] = {
    "negative": (_plain("neg"), 1),
    "abs": (_absolute, 1),
    "sign": (_sign, 2),
    "floor": (_whole("floor"), 1),
    "ceil": (_whole("ceil"), 1),
    "round": (_whole("round"), 4),
    "trunc": (_whole("trunc"), 1),
    "exp": (_plain("exp"), 12),
    "log": (_plain("log"), 16),
    "sqrt": (_plain("sqrt"), 6),
    "rsqrt": (_plain("rsqrt"), 8),
    "tanh": (_plain("tanh"), 20),
    "sigmoid": (_plain("sigmoid"), 16),
    "erf": (_plain("erf"), 20),
    "sin": (_plain("sin"), 30),
    "cos": (_plain("cos"), 30),
    "tan": (_plain("tan"), 40),
    **{
        name: (_plain(name), 40)
        for name in (
            "log2",
            "log10",
            "sinh",
            "cosh",
            "asin",
            "acos",
            "atan",
            "asinh",
            "acosh",
            "atanh",
        )
    },
    "nn.relu": (lambda b, x: b.binary("max", x, b.const(0, x.dtype)), 1),
    "copy": (lambda b, x: x, 0),
    "logical_not": (_plain("not"), 1),
    "bitwise_not": (_negation, 1),
    "isnan": (_test("isnan"), 1),
    "isinf": (_test("isinf"), 1),
    "isfinite": (_test("isfinite"), 1),
}


def _compute(function: Function, cost: int) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        return elementwise(
            em, [single(args[0])], tensor_type(out), lambda x: function(em.b, x), cost
        )

    return compute


for _name, (_function, _cost) in TABLE.items():
    register_compute(_name, _compute(_function, _cost))
