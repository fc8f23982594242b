"""Write a convolution of blocks as a dilated convolution. A pass that users call.

before:  nn.batch_to_space_nd(nn.conv2d(nn.space_to_batch_nd(%x, block_shape=[2, 2], paddings=[[2, 3], [2, 3]]), %w,
             data_layout="NHWC", kernel_layout="HWIO"), block_shape=[2, 2], crops=[[0, 1], [0, 1]])
after:   nn.conv2d(%x, %w, padding=[2, 2, 2, 2], dilation=[2, 2], data_layout="NHWC", kernel_layout="HWIO")

Of nn.conv1d, nn.conv2d and nn.conv3d with strides of 1, whose spatial axes are those that are split, with blocks of one
shape before and after, zeros as padding and no crop that is more than the padding on its side. Elsewhere the program
stays, and so it does where only a run knows the spatial sizes: nn.space_to_batch_nd refuses those that its blocks do
not divide. What else reads the blocks reads them as before.

Needs: inferred types, graph form. Keeps: both. Cost: one walk, O(nodes). Source: TVM's FlattenAtrousConv, which pads so
that the sizes stay, whatever the paddings and crops are.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from nimblevm.compiler.channel_scale import CONVOLUTIONS
from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, type_of, typed, with_body
from nimblevm.relay.ir import Call, Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.windows import padding_pairs, per_axis
from nimblevm.relay.types import TensorType


class _Writer(Rewriter):
    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not is_op(new, "nn.batch_to_space_nd"):
            return new
        conv = new.args[0]
        if not isinstance(conv, Call) or not is_op(conv, *CONVOLUTIONS):
            return new
        blocks = conv.args[0]
        if not isinstance(blocks, Call) or not is_op(blocks, "nn.space_to_batch_nd"):
            return new
        type_ = type_of(blocks.args[0])
        assert isinstance(type_, TensorType)
        if not all(isinstance(size, int) for size in type_.shape[1:-1]):
            return new
        attrs = _attrs(blocks.attrs, conv.attrs, new.attrs)
        if attrs is None:
            return new
        args = (blocks.args[0], conv.args[1])
        return typed(Call(conv.op, args, attrs, span=conv.span), type_of(new))


def _attrs(before: Any, conv: Any, after: Any) -> Any:
    """The attributes of the one convolution; None if there is none."""
    shape = tuple(before.block_shape)
    count = len(shape)
    layout = conv.data_layout
    if tuple(after.block_shape) != shape or len(layout) != count + 2 or before.pad_value != 0:
        return None
    if (layout[0], layout[-1]) != ("N", "C") or conv.out_layout not in ("", layout):
        return None
    if any(stride != 1 for stride in per_axis(conv.strides, count)):
        return None
    pairs = zip(
        shape, before.paddings, padding_pairs(conv.padding, count), after.crops, strict=True
    )
    padding = [
        tuple([p + b * own - c for p, own, c in zip(*rest, strict=True)]) for b, *rest in pairs
    ]
    if any(size < 0 for pair in padding for size in pair):
        return None
    dilation = tuple([b * d for b, d in zip(shape, per_axis(conv.dilation, count), strict=True)])
    befores, afters = zip(*padding, strict=True)
    return dataclasses.replace(conv, padding=befores + afters, dilation=dilation)


def flatten_atrous_conv(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def change(function: Function) -> Function:
        return with_body(function, _Writer().rewrite(function.body))

    return map_functions(mod, change)


FLATTEN_ATROUS_CONV = Pass("flatten_atrous_conv", flatten_atrous_conv)
