"""Evaluate operators whose operands are constants.

before:  def @main(%x: Tensor[(2), float32]) { %x + full(2f, shape=[2], dtype="float32") * 3f }
after:   def @main(%x: Tensor[(2), float32]) { %x + meta[relay.Constant][0] }

The value comes from the context's evaluator, which runs the kernel that the program would run. An
operator that fails stays: the error belongs to the run, and perhaps the code is never reached. So
does one whose result is larger than its operands and than MAX_BYTES, and everything after
MAX_EVALUATIONS of them.

Needs: inferred types. Keeps: them. Cost: one walk and the evaluations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm import dtypes
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, type_of, typed, with_body
from nimblevm.errors import NimbleError
from nimblevm.relay.ir import Call, Constant, Expr, Function, Let, Tuple, is_known
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.device import ANNOTATIONS
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TupleType, Type, value_tensors

MAX_BYTES = 64 * 1024
MAX_EVALUATIONS = 256


class _Folder(Rewriter):
    def __init__(self, ctx: PassContext, cache: dict[object, Expr | None]) -> None:
        super().__init__()
        self.ctx = ctx
        self.cache = cache

    def bind(self, let: Let, value: Expr) -> None:
        if isinstance(value, Constant) and value.checked_type is let.var.checked_type:
            self.memo[let.var] = value

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(new.op, Op) or self.ctx.evaluate is None:
            return new
        if new.op.name.startswith(("vm.", "memory.")) or new.op.name in ANNOTATIONS:
            return new
        values: list[object] = []
        size = 0
        for arg in new.args:
            parts = arg.fields if isinstance(arg, Tuple) else (arg,)
            arrays = tuple([p.data for p in parts if is_known(p)])
            if len(arrays) < len(parts):
                return new
            size += sum(a.nbytes for a in arrays)
            values.append(arrays if isinstance(arg, Tuple) else arrays[0])
        result = type_of(new)
        if not _small(result, size):
            return new
        return self._evaluate(new, tuple(values)) or new

    def _evaluate(self, call: Call, values: tuple[object, ...]) -> Expr | None:
        key = (call.op, call.attrs, tuple([_key(v) for v in values]))
        if key in self.cache:
            return self.cache[key]
        if len(self.cache) >= MAX_EVALUATIONS or self.ctx.evaluate is None:
            return None
        found: Expr | None
        try:
            found = _value(self.ctx.evaluate(call, values), call)
        except NimbleError:
            found = None
        if found is not None and found.checked_type is not call.checked_type:
            found = None  # a size that inference does not know
        self.cache[key] = found
        return found


def _value(value: Any, call: Call) -> Expr:
    """What an evaluation gave as an expression: a constant, or a tuple of them."""
    if not isinstance(value, tuple):
        return Constant(np.asarray(value), span=call.span)
    fields = tuple([Constant(np.asarray(v), span=call.span) for v in value])
    return typed(Tuple(fields, span=call.span), TupleType([type_of(f) for f in fields]))


def _key(value: object) -> object:
    if isinstance(value, tuple):
        return tuple([_key(v) for v in value])
    data = getattr(value, "tobytes", bytes)()
    return (str(getattr(value, "dtype", "")), getattr(value, "shape", ()), data)


def _small(result: Type, operand_bytes: int) -> bool:
    total = 0
    for tensor in value_tensors(result):
        size = dtypes.dtype(tensor.dtype).itemsize
        for dim in tensor.shape:
            if not isinstance(dim, int):
                return False
            size *= dim
        total += size
    return total <= max(MAX_BYTES, operand_bytes)


def fold_constant(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    if ctx.evaluate is None:
        return mod
    cache: dict[object, Expr | None] = {}

    def fold(function: Function) -> Function:
        return with_body(function, _Folder(ctx, cache).rewrite(function.body))

    return map_functions(mod, fold)


FOLD_CONSTANT = Pass("fold_constant", fold_constant)
