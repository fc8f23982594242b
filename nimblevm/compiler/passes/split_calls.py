"""Split calls of more tensors than one kernel takes.

before:  concatenate((%a0, %a1, .., %a39), axis=1)
after:   concatenate((concatenate((%a0, .., %a15), axis=1), concatenate((%a16, .., %a31), axis=1),
                      concatenate((%a32, .., %a39), axis=1)), axis=1)

before:  let %s = split(%x, indices_or_sections=40, axis=0); %s.39
after:   %0 = dyn.window(%x, starts=[floordiv(?n, 40) * 32, 0], .., shape=[floordiv(?n, 40) * 8, 4]);
         split(%0, indices_or_sections=8, axis=0).7

concatenate and stack take, and split gives, as many tensors as a program likes; a kernel in a file has abi.MAX_OPERANDS
at most, and the time that LLVM takes for it grows with the square of their number (60 parts of different sizes: 7.6 s).
Above MAX_PARTS they are done by groups of PARTS, which are mostly one kernel that is called again and again; the price
is a second copy. What stays in front of a concatenation and grows (find_appends) remains its first operand.

Needs: inferred types. Keeps: them. Cost: one walk, O(nodes + parts log parts).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nimblevm.compiler.fusion import MAX_OPERANDS
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    TupleRewriter,
    map_functions,
    op_call,
    type_of,
    typed,
    with_body,
)
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call, Expr, Function, Tuple, TupleGetItem
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, TupleType, value_tensors

MAX_PARTS, PARTS = MAX_OPERANDS, 16


def _total(parts: Sequence[TensorType], axis: int) -> Dim:
    return dims.total([part.shape[axis] for part in parts])


def _resized(type_: TensorType, axis: int, size: Dim) -> TensorType:
    return TensorType((*type_.shape[:axis], size, *type_.shape[axis + 1 :]), type_.dtype)


def _tensor(expr: Expr) -> TensorType:
    (found,) = value_tensors(type_of(expr))
    return found


def _fields(data: Expr) -> tuple[Expr, ...]:
    """The fields of a tuple, which need not be at hand."""
    if isinstance(data, Tuple):
        return data.fields
    types = value_tensors(type_of(data))
    return tuple([typed(TupleGetItem(data, i, span=data.span), t) for i, t in enumerate(types)])


class _Writer(TupleRewriter):
    def visit(self, node: Expr, new: Expr) -> Expr:
        match new:
            case TupleGetItem(tuple_value=value):
                found = self.tuple_of(value)
                return new if found is None else found.fields[new.index]
            case Call(op=Op(name="concatenate")):
                return _concatenate(new)
            case Call(op=Op(name="stack")):
                return _stack(new)
            case Call(op=Op(name="split")):
                return _split(new)
        return new


def _joined(call: Call, parts: list[Expr], axis: int) -> Expr:
    """A concatenation of concatenations."""
    result = _tensor(call)

    def join(group: list[Expr]) -> Expr:
        if len(group) == 1:
            return group[0]
        type_ = _resized(result, axis, _total([_tensor(part) for part in group], axis))
        fields = typed(Tuple(tuple(group), span=call.span), TupleType(map(type_of, group)))
        return op_call("concatenate", (fields,), type_, call.span, axis=axis)

    # What grows stays the first operand.
    first = [] if isinstance(_tensor(parts[0]).shape[axis], int) else parts[:1]
    parts = parts[len(first) :]
    while len(parts) + len(first) > MAX_PARTS:
        parts = _groups(parts, join)
    fields = (*first, *parts)
    whole = typed(Tuple(fields, span=call.span), TupleType(map(type_of, fields)))
    return op_call("concatenate", (whole,), result, call.span, axis=axis)


def _groups(parts: list[Expr], join: Callable[[list[Expr]], Expr]) -> list[Expr]:
    return [join(parts[i : i + PARTS]) for i in range(0, len(parts), PARTS)]


def _concatenate(call: Call) -> Expr:
    parts = value_tensors(type_of(call.args[0]))
    if len(parts) <= MAX_PARTS:
        return call
    axis = call.attrs.axis % len(parts[0].shape)
    return _joined(call, list(_fields(call.args[0])), axis)


def _stack(call: Call) -> Expr:
    parts = value_tensors(type_of(call.args[0]))
    if len(parts) <= MAX_PARTS:
        return call
    result = _tensor(call)
    axis = call.attrs.axis % len(result.shape)

    def stack(group: list[Expr]) -> Expr:
        fields = typed(Tuple(tuple(group), span=call.span), TupleType(map(type_of, group)))
        type_ = _resized(result, axis, len(group))
        return op_call("stack", (fields,), type_, call.span, axis=axis)

    return _joined(call, _groups(list(_fields(call.args[0])), stack), axis)


def _split(call: Call) -> Expr:
    types = value_tensors(type_of(call))
    if len(types) <= MAX_PARTS:
        return call
    data, where = _tensor(call.args[0]), call.attrs.indices_or_sections
    axis = call.attrs.axis % len(data.shape)
    start: Dim = 0
    fields: list[Expr] = []
    for first in range(0, len(types), PARTS):
        group = types[first : first + PARTS]
        window = _resized(data, axis, _total(group, axis))
        starts = tuple([start if i == axis else 0 for i in range(len(data.shape))])
        ones, none = (1,) * len(starts), (0,) * len(starts)
        piece = op_call(
            "dyn.window", (call.args[0],), window, call.span, starts=starts, up=ones, down=none, shape=window.shape
        )  # fmt: skip
        cut: int | tuple[int, ...] = len(group)
        if not isinstance(where, int):
            cuts = (0, *where)
            cut = tuple([cuts[first + i] - cuts[first] for i in range(1, len(group))])
        parts = op_call(
            "split", (piece,), TupleType(group), call.span, indices_or_sections=cut, axis=axis
        )
        fields += _fields(parts)
        start = dims.add(start, window.shape[axis])
    return typed(Tuple(tuple(fields), span=call.span), type_of(call))


def split_calls(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def write(function: Function) -> Function:
        return with_body(function, _Writer().rewrite(function.body))

    return map_functions(mod, write)


SPLIT_CALLS = Pass("split_calls", split_calls, required=True)
