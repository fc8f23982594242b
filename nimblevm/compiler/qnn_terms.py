"""Expressions that lowerings write: calls of operators with their types, constants computed on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nimblevm import dtypes
from nimblevm.compiler.rewrite import op_call, type_of, typed
from nimblevm.relay.ir import Call, Constant, Expr, Tuple, is_known
from nimblevm.relay.op import registry
from nimblevm.relay.type_context import demands
from nimblevm.relay.types import TensorType, TupleType, Type

MAX_BYTES = 64 * 1024
"""Larger results than this and than their operands are left to the run."""


class Terms:
    """What one call is written in. args, attrs: the call's."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.args = call.args
        self.attrs = call.attrs

    def __call__(self, name: str, *args: Expr, **attrs: object) -> Expr:
        """A call of an operator; its value if its operands are constants."""
        op = registry.get(name)
        made = Call(op, args, op.attrs(**attrs) if op.attrs else None, span=self.call.span)
        _, type_ = demands(made, tuple([type_of(a) for a in args]))
        values = [a.data for a in args if is_known(a)]
        if len(values) == len(args) and _bytes(type_) <= max(
            MAX_BYTES, sum(v.nbytes for v in values)
        ):
            value = op.reference(tuple(values), made.attrs, type_)
            return Constant(np.asarray(value), span=self.call.span)
        return typed(made, type_)

    def tuple(self, fields: Sequence[Expr]) -> Tuple:
        return typed(Tuple(tuple(fields)), TupleType([type_of(f) for f in fields]))

    def number(self, value: float | np.float32, dtype: str = "int64") -> Constant:
        return Constant(np.asarray(value, dtype), span=self.call.span)

    def type(self, value: Expr) -> TensorType:
        found = type_of(value)
        if not isinstance(found, TensorType):
            raise TypeError(f"a tensor was expected, not {found!r}")
        return found

    def dtype(self, value: Expr) -> str:
        return self.type(value).dtype

    def rank(self, value: Expr) -> int:
        return len(self.type(value).shape)

    def cast(self, value: Expr, dtype: str) -> Expr:
        return value if self.dtype(value) == dtype else self("cast", value, dtype=dtype)

    def along(self, vector: Expr, rank: int, axis: int) -> Expr:
        """A vector of an axis, shaped to be broadcast with tensors of the rank; a scalar as it is."""
        if not self.rank(vector):
            return vector
        after = rank - axis % rank - 1
        return self("expand_dims", vector, axis=1, num_newaxis=after) if after else vector

    def shifted(self, data: Expr, zero_point: Expr) -> Expr:
        """data - zero_point in int32."""
        wide = self.cast(data, "int32")
        return wide if is_zero(zero_point) else self("subtract", wide, zero_point)

    def finished(self, value: Expr) -> Expr:
        """`value` in the place of the call."""
        type_ = type_of(self.call)
        if value.checked_type is type_:
            return value
        op = self.call.op
        where = f"result of {op.name}" if isinstance(op, registry.Op) else "result"
        return op_call("vm.match_type", (value,), type_, self.call.span, type=type_, where=where)


def _bytes(type_: Type) -> float:
    if not isinstance(type_, TensorType):
        return math.inf
    size: float = dtypes.dtype(type_.dtype).itemsize
    for dim in type_.shape:
        size *= dim if isinstance(dim, int) else math.inf
    return size


def is_zero(value: Expr) -> bool:
    """Whether it is known to be 0 everywhere."""
    return is_known(value) and not value.data.any()


def equal_known(first: Expr, second: Expr) -> bool:
    """Whether both are known, and equal everywhere."""
    return is_known(first) and is_known(second) and bool((first.data == second.data).all())


def same_scale(first: Expr, second: Expr) -> bool:
    """Whether the factor between two scales is known to be 1."""
    usable = is_known(second) and bool((np.isfinite(second.data) & (second.data != 0)).all())
    return usable and equal_known(first, second)


__all__ = ["MAX_BYTES", "Terms", "equal_known", "is_zero", "same_scale"]
