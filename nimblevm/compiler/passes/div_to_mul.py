"""Multiply by the reciprocal in the place of a division by a constant. A pass that users call.

before:  %x / 4f                %x / 3f
after:   %x * 0.25f             %x * 0.333333f

Of floats only. A division stays where an element of the constant or its reciprocal is 0, subnormal or not finite:
there the product would be another number, not one that differs by rounding.

Needs: inferred types. Keeps: them. Cost: one walk, and the constants' elements. Source: TVM's DivToMul, which looks
at a constant's first element.
"""

from __future__ import annotations

import numpy as np

from nimblevm import dtypes
from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, op_call, type_of, typed, with_body
from nimblevm.relay.ir import Call, Constant, Expr, Function, is_known
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.common import Array
from nimblevm.relay.types import TensorType


class _Multiplier(Rewriter):
    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not is_op(new, "divide"):
            return new
        data, divisor = new.args
        type_ = type_of(divisor)
        if not is_known(divisor) or not isinstance(type_, TensorType):
            return new
        if not dtypes.dtype(type_.dtype).is_float:
            return new
        found = _reciprocal(divisor.data)
        if found is None:
            return new
        factor = typed(Constant(found, span=divisor.span), type_)
        return op_call("multiply", (data, factor), type_of(new), new.span)


def _reciprocal(data: Array) -> Array | None:
    """1 / data in data's dtype; None unless all of both are normal numbers."""
    with np.errstate(all="ignore"):
        wide = data.astype("float64") if data.dtype.itemsize < 8 else data
        found = (1 / wide).astype(data.dtype)
    return found if _is_normal(data) and _is_normal(found) else None


def _is_normal(data: Array) -> bool:
    return bool((np.isfinite(data) & (np.abs(data) >= np.finfo(data.dtype).smallest_normal)).all())


def div_to_mul(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def change(function: Function) -> Function:
        return with_body(function, _Multiplier().rewrite(function.body))

    return map_functions(mod, change)


DIV_TO_MUL = Pass("div_to_mul", div_to_mul)
