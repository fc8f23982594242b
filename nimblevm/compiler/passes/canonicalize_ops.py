"""Write nn.bias_add as an addition. A pass that users call.

before:  nn.bias_add(%x, %b)                          (%x: Tensor[(?n, 3, 8), float32], %b: Tensor[(3), float32])
after:   %x + expand_dims(%b, axis=1)

An addition would stretch a bias of size 1 that nn.bias_add refuses, so only where the sizes are known to be equal.

Needs: inferred types. Keeps: them. Cost: one walk, O(nodes). Source: TVM's CanonicalizeOps.
"""

from __future__ import annotations

from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, op_call, type_of, with_body
from nimblevm.relay.ir import Call, Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType


class _Writer(Rewriter):
    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not is_op(new, "nn.bias_add"):
            return new
        data, bias = new.args
        type_, vector = type_of(data), type_of(bias)
        if not isinstance(type_, TensorType) or not isinstance(vector, TensorType):
            return new
        axis = new.attrs.axis % len(type_.shape)
        if type_ is not type_of(new) or type_.shape[axis] != vector.shape[0]:
            return new
        after = len(type_.shape) - axis - 1
        if after:
            shape = (*vector.shape, *(1,) * after)
            along = TensorType(shape, vector.dtype)
            bias = op_call("expand_dims", (bias,), along, new.span, axis=1, num_newaxis=after)
        return op_call("add", (data, bias), type_, new.span)


def canonicalize_ops(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def change(function: Function) -> Function:
        return with_body(function, _Writer().rewrite(function.body))

    return map_functions(mod, change)


CANONICALIZE_OPS = Pass("canonicalize_ops", canonicalize_ops)
