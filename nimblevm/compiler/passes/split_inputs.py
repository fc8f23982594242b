"""Make a product with a concatenation a sum of products.

before:  nn.dense(concatenate((%x, %h), axis=1), meta[relay.Constant][0])      (weight: (u, a + b))
after:   nn.dense(%x, meta[relay.Constant][0]) + nn.dense(%h, meta[relay.Constant][1])     (u, a), (u, b)

The concatenation is never written, and each part can go its own way: that of a sequence's element before the loop
(hoist_projection), the others into one kernel with the arithmetic that follows (split_products, fuse_ops).

Only where the weight is constant, the parts have static last axes, the dtype is float32 or float64, and nothing but
such products reads the concatenation. The order of summation changes, as the operator's tolerance allows.

Needs: inferred types, named effects. Keeps: both. Cost: O(nodes + bytes of such weights).
"""

from __future__ import annotations

from nimblevm.compiler.constants import sliced
from nimblevm.compiler.dataflow import FLOATS, Dataflow, is_op
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    is_primitive,
    map_functions,
    op_call,
    type_of,
    with_body,
)
from nimblevm.relay.ir import Call, Constant, Expr, Function, Tuple
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType


class _Splitter(Rewriter):
    def __init__(self, flow: Dataflow) -> None:
        super().__init__()
        self.flow = flow
        self.weights: dict[tuple[Constant, int, int], Constant] = {}

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(node, Call) or not isinstance(new, Call):
            return new
        parts = self._parts(node)
        weight = node.args[1] if parts else None
        if parts is None or not isinstance(weight, Constant):
            return new
        result: Expr | None = None
        type_, begin = type_of(node), 0
        for part, width in parts:
            piece = self._columns(weight, begin, begin + width)
            begin += width
            args = (self.memo.get(part, part), piece)
            product = Call(node.op, args, node.attrs, span=node.span, checked_type=type_)
            if result is None:
                result = product
            else:
                result = op_call("add", (result, product), type_, node.span)
        return result or new

    def _parts(self, node: Call) -> list[tuple[Expr, int]] | None:
        """The operands of the concatenation that a product reads, with their widths."""
        if not is_op(node, "nn.dense") or not _plain(node):
            return None
        joined = self.flow.resolve(node.args[0])
        if not isinstance(joined, Call) or not is_op(joined, "concatenate"):
            return None
        if not all(_is_product_of(r, joined, self.flow) for r in self.flow.readers(joined)):
            return None
        fields, type_ = self.flow.resolve(joined.args[0]), type_of(joined)
        if not isinstance(fields, Tuple) or not isinstance(type_, TensorType):
            return None
        if joined.attrs.axis % len(type_.shape) != len(type_.shape) - 1:
            return None
        # An operand of another call's making may come later than it did, after an error or effect.
        if joined is not node.args[0] and not self.flow.is_total(joined):
            return None
        parts: list[tuple[Expr, int]] = []
        for field in fields.fields:
            part = type_of(field)
            width = part.shape[-1] if isinstance(part, TensorType) else None
            if not isinstance(part, TensorType) or not isinstance(width, int):
                return None
            if part.shape[:-1] != type_.shape[:-1]:
                return None
            parts.append((field, width))
        return parts if len(parts) > 1 else None

    def _columns(self, weight: Constant, begin: int, end: int) -> Constant:
        key = (weight, begin, end)
        if key not in self.weights:
            self.weights[key] = sliced(weight, 1, begin, end)
        return self.weights[key]


def _plain(node: Call) -> bool:
    """A product with a constant weight in one float dtype that sums in no narrower one."""
    result, weight = type_of(node), node.args[1]
    return (
        isinstance(weight, Constant)
        and isinstance(result, TensorType)
        and result.dtype in FLOATS
        and weight.data.dtype.name == result.dtype
    )


def _is_product_of(reader: Expr, joined: Expr, flow: Dataflow) -> bool:
    return (
        isinstance(reader, Call)
        and is_op(reader, "nn.dense")
        and _plain(reader)
        and flow.resolve(reader.args[0]) is joined
    )


def _split(function: Function) -> Function:
    if is_primitive(function):
        return function
    return with_body(function, _Splitter(Dataflow(function.body)).rewrite(function.body))


def split_inputs(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, _split)


SPLIT_INPUTS = Pass("split_inputs", split_inputs)
