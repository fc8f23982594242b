"""Lay constant weights of convolutions out as panels of 16 channels, and keep images channels-last between them.

before:  let %a = nn.relu(nn.conv2d(%x, meta[relay.Constant][0]) + %b);       (NCHW; the constant is OIHW)
         nn.conv2d(%a, meta[relay.Constant][1])
after:   %0 = nn.relu(nn.contrib_conv2d_pack(%x, meta[relay.Constant][2], data_layout="NCHW") + %c);
         %1 = nn.contrib_conv2d_pack(%0, meta[relay.Constant][3]);
         transpose(%1, axes=[0, 3, 1, 2])

A convolution over two axes with one group, float32 or float64, reads NCHW or NHWC and gives NHWC
(relay/op/conv2d_pack.py). What reads a value that is there in NHWC (elementwise operators, pools, batch norms,
concatenations, paddings, reductions, transposes: compiler/channels_last.py) is written in that layout too; whatever
else reads it gets it transposed back. So transposes are left only where a network begins and ends. Convolutions to few
channels or from few elements (MIN_CHANNELS, MIN_DEPTH) stay.

Needs: inferred types. Keeps: them. Functions with such convolutions get A-normal form. Cost: O(n log n) and a copy of
the weights. Source: TVM's ConvertLayout.
"""

from __future__ import annotations

from nimblevm.compiler.channels_last import ChannelsLast
from nimblevm.compiler.constants import late_constant
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.passes.to_anf import Normalizer
from nimblevm.compiler.rewrite import map_functions, op_call, postorder, type_of, with_body
from nimblevm.relay.ir import Call, Constant, Expr, Function, late_array
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.conv2d_pack import packed_kernel
from nimblevm.relay.op.dense_pack import DTYPES, LANES
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType

MIN_CHANNELS, MIN_DEPTH = 8, 16
"""Channels of the result, and elements of a window, from which on packing pays."""


def _packable(call: Expr) -> bool:
    """Whether this is a convolution with a packed form that pays."""
    if not isinstance(call, Call) or not isinstance(call.op, Op) or call.op.name != "nn.conv2d":
        return False
    weight, data, result = call.args[1], type_of(call.args[0]), type_of(call)
    if not isinstance(weight, Constant) or not isinstance(data, TensorType):
        return False
    if not isinstance(result, TensorType) or result.dtype not in DTYPES:
        return False
    attrs = call.attrs
    layouts = ("NCHW", "NHWC")
    if attrs.groups != 1 or attrs.data_layout not in layouts:
        return False
    if (attrs.out_layout or attrs.data_layout) not in layouts:
        return False
    if not weight.data.dtype.name == data.dtype == result.dtype:
        return False
    channels = int(weight.data.shape[attrs.kernel_layout.index("O")])
    return channels >= MIN_CHANNELS and int(weight.data.size) >= MIN_DEPTH * channels


def _panels(weight: Constant, layout: str) -> Constant:
    late = late_array(weight)
    if late is not None:
        rows = late.transposed(*(layout.index(letter) for letter in "OHWI"))
        return late_constant(rows.panels(LANES), weight.span)
    panels = packed_kernel(weight.data, layout)
    panels.flags.writeable = False  # nobody else writes to it: Constant need not copy it
    return Constant(panels, span=weight.span)


class _Packer(ChannelsLast):
    def __init__(self, made: dict[tuple[Constant, str], Constant]) -> None:
        super().__init__()
        self.made = made

    def _weight(self, weight: Constant, layout: str) -> Constant:
        found = self.made.get((weight, layout))
        if found is None:
            found = self.made[weight, layout] = _panels(weight, layout)
        return found

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not _packable(new):
            return super().visit(node, new)
        data, weight = new.args
        attrs, type_ = new.attrs, type_of(new)
        assert isinstance(weight, Constant)
        assert isinstance(type_, TensorType)
        layout = attrs.data_layout
        if layout == "NCHW" and (known := self.last_of(data)) is not None:
            data, layout = known, "NHWC"
        sizes = dict(zip(attrs.kernel_layout, weight.data.shape, strict=True))
        first = (attrs.out_layout or attrs.data_layout) == "NCHW"
        call = op_call(
            "nn.contrib_conv2d_pack", (data, self._weight(weight, attrs.kernel_layout)),
            self.turned(type_) if first else type_, new.span,
            strides=attrs.strides, padding=attrs.padding, dilation=attrs.dilation, channels=sizes["O"],
            kernel_size=(sizes["H"], sizes["W"]), data_layout=layout,
        )  # fmt: skip
        return self.known(call, type_) if first else call


def pack_convolutions(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    made: dict[tuple[Constant, str], Constant] = {}

    def pack(function: Function) -> Function:
        if not any(_packable(node) for node in postorder(function.body)):
            return function
        # In this form a known value may be read wherever it is in scope.
        body = Normalizer(function.body, mod).run()
        return with_body(function, _Packer(made).rewrite(body))

    return map_functions(mod, pack)


PACK_CONVOLUTIONS = Pass("pack_convolutions", pack_convolutions)
