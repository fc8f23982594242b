"""Write 3 x 3 convolutions with packed weights by Winograd's products, where that takes less time.

before:  nn.contrib_conv2d_pack(%x, meta[relay.Constant][0], padding=[1, 1], channels=64, kernel_size=[3, 3])
after:   nn.contrib_conv2d_winograd_pack(%x, meta[relay.Constant][1], padding=[1, 1], channels=64)

16 products take the place of 36, and the weights take 16 / 9 of the memory. Only with strides and dilation 1, from
MIN_CHANNELS on (the transforms of data cost as much per channel as some products), and up to MAX_WEIGHTS, above which
the weights of small images take longer to read than the products that they save. Results differ from those of plain
sums by two or three times their rounding, and are NaN where an infinite element meets the sum.

Needs: inferred types, packed convolutions. Keeps: types. Cost: one walk and a copy of the weights.
"""

from __future__ import annotations

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, op_call, type_of, with_body
from nimblevm.relay.ir import Call, Constant, Expr, Function, is_known
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.conv2d_winograd import transformed
from nimblevm.relay.op.registry import Op

MIN_CHANNELS, MAX_WEIGHTS = 32, 1 << 17
"""Channels of data and of the result; channels of data times those of the result."""


class _Writer(Rewriter):
    def __init__(self, made: dict[Constant, Constant]) -> None:
        super().__init__()
        self.made = made

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(new.op, Op) or not _pays(new):
            return new
        weight = new.args[1]
        if not is_known(weight):  # one that is bound late keeps its values
            return new
        found = self.made.get(weight)
        if found is None:
            panels = transformed(weight.data)
            panels.flags.writeable = False  # nobody else writes to it: Constant need not copy it
            found = self.made[weight] = Constant(panels, span=weight.span)
        return op_call(
            "nn.contrib_conv2d_winograd_pack", (new.args[0], found), type_of(new), new.span,
            padding=new.attrs.padding, channels=new.attrs.channels, data_layout=new.attrs.data_layout,
        )  # fmt: skip


def _pays(call: Call) -> bool:
    if not isinstance(call.op, Op) or call.op.name != "nn.contrib_conv2d_pack":
        return False
    attrs, weight = call.attrs, call.args[1]
    plain = {*attrs.strides, *attrs.dilation} == {1} and set(attrs.kernel_size) == {3}
    if not plain or not isinstance(weight, Constant):
        return False
    inner, outer = weight.data.shape[1] // 9, int(attrs.channels)
    return bool(min(inner, outer) >= MIN_CHANNELS and inner * outer <= MAX_WEIGHTS)


def winograd(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    made: dict[Constant, Constant] = {}

    def write(function: Function) -> Function:
        return with_body(function, _Writer(made).rewrite(function.body))

    return map_functions(mod, write)


WINOGRAD = Pass("winograd", winograd)
