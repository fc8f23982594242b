"""Make products and convolutions of one input one operator. Passes that users call, one for each operator.

before:  nn.dense(%x, %a)  nn.dense(%x, %b)  nn.dense(%x, %c)                  (%a, %b, %c: Tensor[(8, 4), float32])
after:   %0 = nn.dense(%x, concatenate((%a, %b, %c)));
         strided_slice(%0, begin=[0], end=[8], axes=[1])  strided_slice(%0, begin=[8], end=[16], axes=[1])  ...
batch:   %0 = nn.batch_matmul(stack((%x, %x, %x)), stack((%a, %b, %c)), transpose_b=True); %1 = split(%0, 3);
         squeeze(%1.0, axis=[0])  ...

nn.batch_matmul and nn.conv2d join along the axis of their columns or channels, as nn.dense without a batch. Only
operators of one block, so that none is computed for a branch or a function that does not run, that can't fail, with
equal attributes and weights that agree in all sizes but those that are joined; and weights that are made of constants
and of the function's parameters, which are there wherever the input is. What follows an operator is not joined: it
reads its slice.

The compiler joins products itself where that pays (combine_parallel_dense).
Needs: inferred types, named effects. Keeps: both. Cost: O(nodes). Source: TVM's CombineParallelDense,
CombineParallelBatchMatmul and CombineParallelConv2D, which join elementwise operators that follow, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nimblevm.compiler.dataflow import is_op, is_total_call, static_shape
from nimblevm.compiler.home_blocks import HomeBlocks
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    is_primitive,
    map_functions,
    op_call,
    postorder,
    type_of,
    typed,
    with_body,
)
from nimblevm.errors import InvalidInput
from nimblevm.relay.ir import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, children
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, TupleType

Combine = Callable[[Sequence[Call], Sequence[Expr]], list[Expr]]
"""(operators, their operands after rewriting: the input and then a weight each) -> what stands for each operator."""


@dataclass(frozen=True, slots=True)
class Kind:
    """An operator that is joined. `axes`: (the weight's axis, the result's axis) that grow, None if a call can't be."""

    op: str
    axes: Callable[[Call], tuple[int, int] | None]
    batch: bool = False


class _Finder:
    """groups: the operators that are joined, by each of them."""

    def __init__(self, function: Function, kind: Kind, least: int) -> None:
        self.groups: dict[Expr, list[Call]] = {}
        order = postorder(function.body)
        found = [n for n in order if isinstance(n, Call) and is_op(n, kind.op)]
        if len(found) < least:
            return
        free = _made_of_parameters(order, frozenset(function.params))
        home = HomeBlocks(function.body).home
        groups: dict[object, list[Call]] = {}
        for call in found:
            key = _key(call, kind) if call.args[1] in free and is_total_call(call) else None
            if key is not None:
                groups.setdefault((call.args[0], home[call], key), []).append(call)
        for group in groups.values():
            if len(group) >= least:
                self.groups.update(dict.fromkeys(group, group))


def _made_of_parameters(order: Sequence[Expr], params: frozenset[Var]) -> set[Expr]:
    """What total operators make of constants and of these variables."""
    free: set[Expr] = set()
    for node in order:
        match node:
            case Constant():
                free.add(node)
            case Var() if node in params:
                free.add(node)
            case Call(op=Op()) if is_total_call(node) and all(a in free for a in node.args):
                free.add(node)
            case Tuple() | TupleGetItem() if all(c in free for c in children(node)):
                free.add(node)
    return free


def _key(call: Call, kind: Kind) -> object | None:
    """What operators must have in common to be joined; None if one can't be."""
    axes, weight, result = kind.axes(call), type_of(call.args[1]), type_of(call)
    shape = static_shape(weight)
    if axes is None or shape is None or not isinstance(weight, TensorType):
        return None
    if not isinstance(result, TensorType) or result.shape[axes[1]] != shape[axes[0]]:
        return None
    if kind.batch:
        two = len(result.shape) == 2 and static_shape(type_of(call.args[0])) is not None
        return (shape, weight.dtype, result.dtype) if two else None
    attrs = call.attrs
    for name in ("units", "channels", "kernel_size"):  # what the weight says, too
        if hasattr(attrs, name):
            attrs = dataclasses.replace(attrs, **{name: None})
    return attrs, shape[: axes[0]], shape[axes[0] + 1 :], weight.dtype


class _Combiner(Rewriter):
    def __init__(self, groups: dict[Expr, list[Call]], combine: Combine) -> None:
        super().__init__()
        self.groups = groups
        self.combine = combine
        self.made: dict[Expr, Expr] = {}

    def visit(self, node: Expr, new: Expr) -> Expr:
        group = self.groups.get(node)
        if group is None:
            return new
        if node not in self.made:
            # Weights are made of constants and parameters, so that they may be written here, as they were.
            operands = (group[0].args[0], *(call.args[1] for call in group))
            parts = self.combine(group, [self.memo.get(e, e) for e in operands])
            self.made.update(zip(group, parts, strict=True))
        return self.made[node]


def _tuple(parts: Sequence[Expr]) -> Tuple:
    return typed(Tuple(tuple(parts)), TupleType([type_of(p) for p in parts]))


def _with_size(type_: object, axis: int, size: int) -> TensorType:
    assert isinstance(type_, TensorType)
    return TensorType((*type_.shape[:axis], size, *type_.shape[axis + 1 :]), type_.dtype)


def _joined(kind: Kind) -> Combine:
    """One operator of all weights behind each other."""

    def combine(group: Sequence[Call], operands: Sequence[Expr]) -> list[Expr]:
        axes = kind.axes(group[0])
        shapes = [static_shape(type_of(call.args[1])) for call in group]
        assert axes is not None
        sizes = [shape[axes[0]] for shape in shapes if shape is not None]
        first, total = group[0], sum(sizes)
        weight_type = _with_size(type_of(first.args[1]), axes[0], total)
        weight = op_call("concatenate", (_tuple(operands[1:]),), weight_type, axis=axes[0])
        attrs: Any = first.attrs
        for name in ("units", "channels"):
            if getattr(attrs, name, None) is not None:
                attrs = dataclasses.replace(attrs, **{name: total})
        whole_type = _with_size(type_of(first), axes[1], total)
        whole = typed(Call(first.op, (operands[0], weight), attrs, span=first.span), whole_type)
        ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
        return [
            op_call(
                "strided_slice", (whole,), type_of(call), call.span,
                begin=(end - size,), end=(end,), strides=(1,), axes=(axes[1],),
            )
            for call, size, end in zip(group, sizes, ends, strict=True)
        ]  # fmt: skip

    return combine


def _batched(group: Sequence[Call], operands: Sequence[Expr]) -> list[Expr]:
    """One batch of all products."""
    first, count = group[0], len(group)

    def stacked(parts: Sequence[Expr]) -> Call:
        type_ = type_of(parts[0])
        assert isinstance(type_, TensorType)
        whole = TensorType((count, *type_.shape), type_.dtype)
        return op_call("stack", (_tuple(parts),), whole, axis=0)

    result = type_of(first)
    assert isinstance(result, TensorType)
    whole = op_call(
        "nn.batch_matmul", (stacked([operands[0]] * count), stacked(operands[1:])),
        TensorType((count, *result.shape), result.dtype), first.span,
        out_dtype=first.attrs.out_dtype, transpose_a=False, transpose_b=True,
    )  # fmt: skip
    part = TensorType((1, *result.shape), result.dtype)
    parts = op_call("split", (whole,), TupleType([part] * count), indices_or_sections=count, axis=0)
    return [
        op_call("squeeze", (typed(TupleGetItem(parts, n), part),), result, call.span, axis=(0,))
        for n, call in enumerate(group)
    ]


def _of_dense(call: Call) -> tuple[int, int] | None:
    type_ = type_of(call)
    return (0, len(type_.shape) - 1) if isinstance(type_, TensorType) else None


def _of_batch_matmul(call: Call) -> tuple[int, int] | None:
    return (1 if call.attrs.transpose_b else 2), 2


def _of_conv2d(call: Call) -> tuple[int, int] | None:
    attrs = call.attrs
    if attrs.groups != 1:
        return None
    return attrs.kernel_layout.index("O"), (attrs.out_layout or attrs.data_layout).index("C")


def _pass(name: str, kind: Kind, combine: Combine, least: int) -> Pass:
    if least < 2:
        raise InvalidInput(f"min_num_branches must be at least 2, not {least}")

    def change(function: Function) -> Function:
        if is_primitive(function):
            return function
        groups = _Finder(function, kind, least).groups
        if not groups:
            return function
        return with_body(function, _Combiner(groups, combine).rewrite(function.body))

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        return map_functions(mod, change)

    return Pass(name, run)


def combine_dense_pass(least: int = 3, to_batch: bool = True) -> Pass:
    """nn.dense, `least` or more of one input (InvalidInput below 2); as a batch, else along the axis of units."""
    kind = Kind("nn.dense", _of_dense, to_batch)
    return _pass("combine_dense", kind, _batched if to_batch else _joined(kind), least)


def combine_batch_matmul_pass(least: int = 3) -> Pass:
    """nn.batch_matmul with one first operand, along the columns of the second."""
    kind = Kind("nn.batch_matmul", _of_batch_matmul)
    return _pass("combine_batch_matmul", kind, _joined(kind), least)


def combine_conv2d_pass(least: int = 3) -> Pass:
    """nn.conv2d of one input, along the axis of channels."""
    kind = Kind("nn.conv2d", _of_conv2d)
    return _pass("combine_conv2d", kind, _joined(kind), least)


COMBINE_DENSE = combine_dense_pass(2)
"""With a batch."""
COMBINE_UNITS = dataclasses.replace(combine_dense_pass(2, to_batch=False), name="combine_units")
COMBINE_BATCH_MATMUL = combine_batch_matmul_pass(2)
COMBINE_CONV2D = combine_conv2d_pass(2)
