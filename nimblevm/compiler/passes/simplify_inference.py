"""Write out operators that only training needs as such. A pass that users call.

before:  nn.batch_norm(%x, %gamma, %beta, %mean, %var).0       nn.dropout(%x).0
after:   %x * s + (%beta - %mean * s)                          %x
         with s = gamma / sqrt(var + epsilon), vectors reshaped to stand along the axis

Of both operators only field 0 is written out; other fields stay with the operator. The vectors' arithmetic
is of the sizes of the channels alone, so that fold_constant makes constants of it where weights are
bound. Results differ from the operator's by rounding. layer_norm, instance_norm, softmax and kin stay: they have
kernels of their own.

Needs: inferred types. Keeps: them. Cost: one walk, O(nodes). Source: TVM's SimplifyInference.
"""

from __future__ import annotations

import numpy as np

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, op_call, type_of, with_body
from nimblevm.relay.ir import Call, Constant, Expr, Function, Let, TupleGetItem
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType


class _Simplifier(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Expr, Expr] = {}

    def bind(self, let: Let, value: Expr) -> None:
        if isinstance(value, Call) and isinstance(value.op, Op):
            self.calls[let.var] = value

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, TupleGetItem) or new.index != 0:
            return new
        call = self.calls.get(new.tuple_value, new.tuple_value)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return new
        if call.op.name == "nn.dropout":
            data = call.args[0]
            return data if data.checked_type is new.checked_type else new
        if call.op.name == "nn.batch_norm":
            return _batch_norm(call, new)
        return new


def _batch_norm(call: Call, field: TupleGetItem) -> Expr:
    data, gamma, beta, mean, var = call.args
    type_, result = type_of(data), type_of(field)
    vector = type_of(var)
    plain = isinstance(type_, TensorType) and type_ is result and isinstance(vector, TensorType)
    if not plain or not isinstance(type_, TensorType) or not isinstance(vector, TensorType):
        return field
    size = vector.shape[0]
    if any(type_of(v) is not vector for v in (gamma, beta, mean)) or not isinstance(size, int):
        return field  # sizes that only a run knows to be equal
    epsilon = Constant(np.asarray(call.attrs.epsilon, vector.dtype), span=call.span)
    sqrt = op_call("sqrt", (op_call("add", (var, epsilon), vector),), vector)
    one = Constant(np.asarray(1, vector.dtype), span=call.span)
    scale = op_call("divide", (gamma if call.attrs.scale else one, sqrt), vector)
    shift = op_call("multiply", (op_call("negative", (mean,), vector), scale), vector)
    if call.attrs.center:
        shift = op_call("add", (shift, beta), vector)
    rank = len(type_.shape)
    axis = call.attrs.axis % rank
    after = rank - axis - 1
    scaled = op_call("multiply", (data, _along(scale, size, after, vector.dtype)), type_)
    return op_call("add", (scaled, _along(shift, size, after, vector.dtype)), type_)


def _along(vector: Expr, size: int, after: int, dtype: str) -> Expr:
    """A vector with `after` axes of size 1 behind it."""
    if not after:
        return vector
    type_ = TensorType((size, *(1,) * after), dtype)
    return op_call("expand_dims", (vector,), type_, axis=1, num_newaxis=after)


def _simplify(function: Function) -> Function:
    return with_body(function, _Simplifier().rewrite(function.body))


def simplify_inference(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, _simplify)


SIMPLIFY_INFERENCE = Pass("simplify_inference", simplify_inference)
