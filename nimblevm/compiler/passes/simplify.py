"""Algebraic rewrites that change neither a bit of a result nor its type.

before:  let %t = (%x * 1f, %y); reshape(%t.0, newshape=[2, 4])          (%x: Tensor[(2, 4),
float32])
after:   let %t = (%x, %y); %x

x * 1, x / 1, x - 0, and of integers x + 0, x | 0, x * 1; casts, reshapes, broadcasts, marks of fusion and
vm.match_type to the type that the operand has; double negation; fields of tuples at hand; ifs on a
constant; take(shape_of(x), constant) as vm.dim_of, vm.dim_of of a static axis as its size;
ndarray_size as a product of sizes, cast_like as cast, nn.dropout as (x, ones). Not x + 0f: it turns
-0 into 0. A rule applies only if the result's type is that of what it becomes.

Needs: inferred types. Keeps: them. Cost: one walk, O(nodes).
"""

from __future__ import annotations

import math

import numpy as np

from nimblevm import dtypes
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    TupleRewriter,
    map_functions,
    op_call,
    type_of,
    typed,
    with_body,
)
from nimblevm.relay.ir import Call, Constant, Expr, Function, If, Tuple, TupleGetItem, is_known
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, scalar_type

_SAME_VALUE = frozenset(
    {
        "cast",
        "reshape",
        "broadcast_to",
        "expand_dims",
        "squeeze",
        "copy",
        "annotation.stop_fusion",
        "annotation.checkpoint",
        "vm.match_type",
        "vm.reshape_tensor",
    }
)
_INVOLUTIONS = frozenset({"logical_not", "negative", "bitwise_not"})


class _Simplifier(TupleRewriter):
    def visit(self, node: Expr, new: Expr) -> Expr:
        match new:
            case TupleGetItem(tuple_value=value):
                found = self.tuple_of(value)
                if found is not None:
                    return _same(found.fields[new.index], new)
            case If(cond=Constant(data=data)):
                return _same(new.true_branch if bool(data) else new.false_branch, new)
            case Call(op=Op() as op):
                return self._operator(new, op)
        return new

    def _operator(self, call: Call, op: Op) -> Expr:
        name = op.name
        if name in _SAME_VALUE:
            return _same(call.args[0], call)
        if name in _INVOLUTIONS:
            inner = call.args[0]
            if isinstance(inner, Call) and inner.op is op:
                return _same(inner.args[0], call)
            return call
        if name in ("multiply", "divide", "subtract", "add", "bitwise_or"):
            return _neutral(call, name)
        if name == "take":
            return _shape_element(call)
        if name == "ndarray_size":
            return _number_of_elements(call)
        if name == "cast_like":
            return _cast_of_like(call)
        if name == "nn.dropout":
            x = call.args[0]
            return typed(Tuple((x, op_call("ones_like", (x,), type_of(x)))), call.checked_type)
        if name == "vm.dim_of":
            type_ = type_of(call.args[0])
            dim = type_.shape[call.attrs.axis] if isinstance(type_, TensorType) else None
            if isinstance(dim, int):
                return Constant(np.asarray(dim, "int64"), span=call.span)
        return call


def _same(replacement: Expr, call: Expr) -> Expr:
    """The replacement if its type is the one that is expected here."""
    return replacement if replacement.checked_type is call.checked_type else call


def _is_splat(expr: Expr, value: int) -> bool:
    return is_known(expr) and expr.data.size == 1 and bool(expr.data.flat[0] == value)


def _neutral(call: Call, name: str) -> Expr:
    left, right = call.args
    result = type_of(call)
    if not isinstance(result, TensorType):
        return call
    exact = not dtypes.dtype(result.dtype).is_float
    if name in ("multiply", "divide") and _is_splat(right, 1):
        return _same(left, call)
    if name == "multiply" and _is_splat(left, 1):
        return _same(right, call)
    if name == "subtract" and _is_splat(right, 0) and (exact or not np.signbit(_data(right))):
        return _same(left, call)
    if name in ("add", "bitwise_or") and exact:
        if _is_splat(right, 0):
            return _same(left, call)
        if _is_splat(left, 0):
            return _same(right, call)
    return call


def _data(expr: Expr) -> float:
    return float(expr.data.flat[0]) if is_known(expr) else 0.0


def _shape_element(call: Call) -> Expr:
    """take(shape_of(x), constant) -> the dim itself; negative and too large indices clip as take
    does.
    """
    source, index = call.args
    if not (
        isinstance(source, Call) and isinstance(source.op, Op) and source.op.name == "shape_of"
    ):
        return call
    x = source.args[0]
    type_, result = type_of(x), type_of(call)
    if not is_known(index) or index.data.ndim or not isinstance(type_, TensorType):
        return call
    place, rank = int(index.data), len(type_.shape)
    if not 0 <= place < rank or not isinstance(result, TensorType) or result.shape:
        return call
    dim = op_call("vm.dim_of", (x,), scalar_type("int64"), axis=place)
    if result.dtype == "int64":
        return dim
    return op_call("cast", (dim,), result, dtype=result.dtype)


def _cast_of_like(call: Call) -> Expr:
    """cast_like(x, y) -> cast to y's dtype."""
    result = type_of(call)
    if not isinstance(result, TensorType):
        return call
    return op_call("cast", call.args[:1], result, dtype=result.dtype)


def _number_of_elements(call: Call) -> Expr:
    """ndarray_size(x) -> the product of x's sizes as integers."""
    x = call.args[0]
    type_, result = type_of(x), type_of(call)
    if not isinstance(type_, TensorType) or not isinstance(result, TensorType):
        return call
    wide = scalar_type("int64")
    static = math.prod(d for d in type_.shape if isinstance(d, int))
    size: Expr = Constant(np.asarray(static, "int64"), span=call.span)
    for axis, dim in enumerate(type_.shape):
        if not isinstance(dim, int):
            size = op_call("multiply", (size, op_call("vm.dim_of", (x,), wide, axis=axis)), wide)
    if result.dtype == "int64":
        return size
    return op_call("cast", (size,), result, dtype=result.dtype)


def _simplify(function: Function) -> Function:
    return with_body(function, _Simplifier().rewrite(function.body))


def simplify(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, _simplify)


SIMPLIFY = Pass("simplify", simplify)
