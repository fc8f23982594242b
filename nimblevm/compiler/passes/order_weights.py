"""Turn constant weights of convolutions of bytes so that those of an output lie one after the other.

before:  nn.conv2d(%x, meta[relay.Constant][0], data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32")
after:   nn.conv2d(%x, meta[relay.Constant][1], data_layout="NHWC", kernel_layout="OIHW", out_dtype="int32")

That is how their sums read them (kernels/compute/conv.py), which otherwise turn them in every call. nn.conv1d,
nn.conv2d and nn.conv3d of int8 or uint8 with int32 sums; those of floats are pack_convolutions'.

Needs: inferred types. Keeps: them. Cost: one walk and a copy of the weights.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from nimblevm.compiler.constants import late_constant
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import Rewriter, map_functions, op_call, type_of, with_body
from nimblevm.relay.ir import Call, Constant, Expr, Function, late_array
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.conv import TABLE
from nimblevm.relay.op.registry import Op
from nimblevm.relay.op.windows import to_order
from nimblevm.relay.types import TensorType

_LAYOUTS = {row.name: row.kernel_layout for row in TABLE if not row.transposed}
_BYTES = ("int8", "uint8")


def _wanted(call: Call) -> str | None:
    """The layout that a convolution's weight should have; None if it may stay."""
    layout = _LAYOUTS.get(call.op.name) if isinstance(call.op, Op) else None
    if layout is None or call.attrs.kernel_layout[0] == "O":
        return None
    types = [type_of(arg) for arg in (*call.args, call)]
    dtypes = [t.dtype if isinstance(t, TensorType) else "" for t in types]
    of_bytes = dtypes[0] in _BYTES and dtypes[1] in _BYTES and dtypes[2] == "int32"
    return layout if of_bytes and isinstance(call.args[1], Constant) else None


def _turned(weight: Constant, layout: str, order: str) -> Constant:
    late = late_array(weight)
    if late is not None:
        axes = (layout.index(letter) for letter in order)
        return late_constant(late.transposed(*axes), weight.span)
    found = np.ascontiguousarray(to_order(weight.data, layout, order))
    found.flags.writeable = False  # nobody else writes to it: Constant need not copy it
    return Constant(found, span=weight.span)


class _Turner(Rewriter):
    def __init__(self, made: dict[tuple[Constant, str], Constant]) -> None:
        super().__init__()
        self.made = made

    def visit(self, node: Expr, new: Expr) -> Expr:
        order = _wanted(new) if isinstance(new, Call) else None
        if order is None or not isinstance(new, Call) or not isinstance(new.op, Op):
            return new
        data, weight = new.args
        assert isinstance(weight, Constant)
        layout = new.attrs.kernel_layout
        found = self.made.get((weight, layout))
        if found is None:
            found = self.made[weight, layout] = _turned(weight, layout, order)
        attrs = {f.name: getattr(new.attrs, f.name) for f in dataclasses.fields(new.attrs)}
        attrs["kernel_layout"] = order
        return op_call(new.op.name, (data, found), type_of(new), new.span, **attrs)


def order_weights(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    made: dict[tuple[Constant, str], Constant] = {}

    def turn(function: Function) -> Function:
        return with_body(function, _Turner(made).rewrite(function.body))

    return map_functions(mod, turn)


ORDER_WEIGHTS = Pass("order_weights", order_weights)
