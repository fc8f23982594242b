"""Put an nn.pad into the padding of the convolution or pool that reads it. A pass that users call.

before:  nn.conv2d(nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [1, 1], [2, 2]]), %w, padding=[1, 1, 1, 1])
after:   nn.conv2d(%x, %w, padding=[2, 3, 2, 3])

Pads along spatial axes with a constant that is what the operator takes its own padding for: 0 for convolutions and
mean pools, the dtype's least value (-inf) for max pools. A mean pool that does not count padding counts the elements
that nn.pad adds, so it folds where it has no padding of its own and no ceil_mode, and counts from then on.

Needs: inferred types. Keeps: them. Cost: one walk, O(nodes). Source: TVM's FoldExplicitPadding.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, type_of, typed, with_body
from nimblevm.relay.ir import Call, Constant, Expr, Function, Let, Var, is_known
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.pool import least_of
from nimblevm.relay.op.registry import Op
from nimblevm.relay.op.windows import SPATIAL, padding_pairs
from nimblevm.relay.types import TensorType

CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
MAX_POOLS = ("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
MEAN_POOLS = ("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")


class _Folder(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.pads: dict[Expr, Call] = {}

    def bind(self, let: Let, value: Expr) -> None:
        # What a pad reads must be evaluated where it is, so only what is evaluated before it goes elsewhere.
        if isinstance(value, Call) and isinstance(value.args and value.args[0], Var | Constant):
            self.pads[let.var] = value

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(new.op, Op):
            return new
        if new.op.name not in (*CONVOLUTIONS, *MAX_POOLS, *MEAN_POOLS):
            return new
        pad = self.pads.get(new.args[0], new.args[0])
        if not isinstance(pad, Call) or not is_op(pad, "nn.pad"):
            return new
        attrs = _attrs_with(new, pad)
        if attrs is None:
            return new
        args = (pad.args[0], *new.args[1:])
        return typed(Call(new.op, args, attrs, span=new.span), new.checked_type)


def _attrs_with(call: Call, pad: Call) -> Any:
    """The attributes of an operator that pads as `pad` does and as itself; None if there are none."""
    attrs, type_ = call.attrs, type_of(pad)
    value = pad.args[1]
    is_mean = is_op(call, *MEAN_POOLS)
    if pad.attrs.pad_mode != "constant" or not is_known(value) or not isinstance(type_, TensorType):
        return None
    wanted = least_of(type_.dtype) if is_op(call, *MAX_POOLS) else 0
    if value.data.astype(type_.dtype) != wanted:
        return None
    layout = attrs.data_layout if is_op(call, *CONVOLUTIONS) else attrs.layout
    pairs = dict(zip(layout, pad.attrs.pad_width, strict=True))
    spatial = SPATIAL[len(layout) - 2]
    if any(pairs[letter] != (0, 0) for letter in layout if letter not in spatial):
        return None
    added = [pairs[letter] for letter in spatial]
    if not all(isinstance(size, int) for pair in added for size in pair):
        return None
    own = padding_pairs(attrs.padding, len(spatial))
    befores = tuple([a[0] + b[0] for a, b in zip(own, added, strict=True)])
    afters = tuple([a[1] + b[1] for a, b in zip(own, added, strict=True)])
    if is_mean and not attrs.count_include_pad:
        if attrs.ceil_mode or any(pair != (0, 0) for pair in own):
            return None
        return dataclasses.replace(attrs, padding=befores + afters, count_include_pad=True)
    return dataclasses.replace(attrs, padding=befores + afters)


def fold_explicit_padding(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def change(function: Function) -> Function:
        return with_body(function, _Folder().rewrite(function.body))

    return map_functions(mod, change)


FOLD_EXPLICIT_PADDING = Pass("fold_explicit_padding", fold_explicit_padding)
