"""Concatenate many tensors in several steps. A pass that users call.

before:  concatenate((%a, %b, %c, %d, %e))                                    (at most 4 arguments a function)
after:   %0 = concatenate((%a, %b, %c)); %1 = concatenate((%d, %e)); concatenate((%0, %1))

A kernel has a parameter for each tensor and one for the result. For devices whose kernels take few parameters; the
compiler's own groups have at most 32 operands without it.

Needs: inferred types. Keeps: them. Cost: O(nodes). Source: TVM's SplitArgs, which makes a chain of steps and counts
sizes that a run decides as arguments, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, type_of, typed, with_body
from nimblevm.errors import InvalidInput
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call, Expr, Function, Let, Tuple, Var
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType, TupleType


class _Splitter(Rewriter):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.tuples: dict[Expr, Tuple] = {}

    def bind(self, let: Let, value: Expr) -> None:
        if isinstance(value, Tuple) and all(isinstance(f, Var) for f in value.fields):
            self.tuples[let.var] = value

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not is_op(new, "concatenate"):
            return new
        fields = self.tuples.get(new.args[0], new.args[0])
        if not isinstance(fields, Tuple) or len(fields.fields) <= self.limit:
            return new
        return self._joined(new, fields.fields)

    def _joined(self, call: Call, parts: Sequence[Expr]) -> Expr:
        """One step a piece of at most `limit` parts, until one step takes all pieces."""
        whole = type_of(call)
        while len(parts) > self.limit:
            pieces = [parts[n : n + self.limit] for n in range(0, len(parts), self.limit)]
            parts = [p[0] if len(p) == 1 else _step(call, p, _sum(call, p)) for p in pieces]
        return _step(call, parts, whole if isinstance(whole, TensorType) else _sum(call, parts))


def _sum(call: Call, parts: Sequence[Expr]) -> TensorType:
    """The type of the concatenated parts."""
    types = [t for t in map(type_of, parts) if isinstance(t, TensorType)]
    shape = list(types[0].shape)
    axis = call.attrs.axis % len(shape)
    total: Dim = 0
    for type_ in types:
        total = dims.add(total, type_.shape[axis])
    shape[axis] = total
    return TensorType(shape, types[0].dtype)


def _step(call: Call, parts: Sequence[Expr], type_: TensorType) -> Call:
    fields = typed(Tuple(tuple(parts)), TupleType([type_of(p) for p in parts]))
    return typed(Call(call.op, (fields,), call.attrs, span=call.span), type_)


def split_args_pass(max_function_args: int) -> Pass:
    """The pass for kernels of that many parameters; 0: any number. InvalidInput for 1 and 2, which can't join two."""
    if max_function_args < 0 or 0 < max_function_args < 3:
        raise InvalidInput(
            "SplitArgs: max_function_args must be 0 (no limit) or at least 3: two tensors and the result, "
            f"not {max_function_args}"
        )

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        if not max_function_args:
            return mod

        def change(function: Function) -> Function:
            return with_body(function, _Splitter(max_function_args - 1).rewrite(function.body))

        return map_functions(mod, change)

    return Pass("split_args", run)


SPLIT_ARGS = split_args_pass(4)
"""The pass for kernels of three operands, for its golden files."""
