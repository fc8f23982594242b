"""Put a batch norm's scale into the weight of the convolution before it, and leave the shift.

before:  nn.batch_norm(nn.conv2d(%x, meta[relay.Constant][0]), gamma, beta, mean, var).0      (all of them constants)
after:   nn.conv2d(%x, meta[relay.Constant][1]) + meta[relay.Constant][2]
         with weight[o] * s[o] and beta - mean * s, s = gamma / sqrt(var + epsilon), computed in float64

Also of conv1d and conv3d, and with an nn.bias_add of a constant between the two, whose vector joins the shift. Nothing
else may read the convolution or other fields of the norm, and the new weight and shift must be finite (with a variance
and epsilon of 0 they are not). Results differ from the operators' by rounding, as if the sum had been taken in another
order.

Needs: inferred types. Keeps: them. Functions that it changes get A-normal form. Cost: O(n log n) and a copy of the
weights. Source: TVM's FoldScaleAxis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.passes.to_anf import Normalizer
from nimblevm.compiler.rewrite import (
    Rewriter,
    map_functions,
    op_call,
    postorder,
    type_of,
    typed,
    with_body,
)
from nimblevm.relay.ir import (
    Call,
    Constant,
    Expr,
    Function,
    Leaf,
    Let,
    TupleGetItem,
    Var,
    children,
    is_known,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.common import Array
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType

CONVOLUTIONS = frozenset({"nn.conv1d", "nn.conv2d", "nn.conv3d"})


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A convolution with a constant weight, and a constant vector that is added to it along the axis of channels."""

    call: Call
    weight: Array
    bias: Array | None
    axis: int


class _Folder(Rewriter):
    def __init__(self, root: Expr) -> None:
        super().__init__()
        self.folded = False
        self.bound: dict[Expr, Expr] = {}
        self.reads: dict[Expr, int] = {}
        for node in postorder(root):
            for child in () if isinstance(node, Leaf) else children(node):
                self.reads[child] = self.reads.get(child, 0) + 1
        self.origin: dict[Expr, Expr] = {}

    def bind(self, let: Let, value: Expr) -> None:
        self.bound[let.var] = value

    def visit(self, node: Expr, new: Expr) -> Expr:
        if self.reads.get(node, 0) == 1:
            self.origin[new] = node
        if not isinstance(new, TupleGetItem) or new.index != 0:
            return new
        norm = self._only_reader(new.tuple_value)
        if _name(norm) != "nn.batch_norm" or not isinstance(norm, Call):
            return new
        found = self._convolution(norm.args[0])
        vectors = [a.data for a in norm.args[1:] if is_known(a)]
        type_ = type_of(new)
        if found is None or len(vectors) != 4 or not isinstance(type_, TensorType):
            return new
        if found.axis != norm.attrs.axis % len(type_.shape) or type_of(found.call) is not type_:
            return new
        folded = _folded(found, norm, vectors, type_)
        if folded is None:
            return new
        self.folded = True
        return folded

    def _only_reader(self, expr: Expr) -> Expr | None:
        """The value of an expression that nothing else reads."""
        if isinstance(expr, Var):
            if self.reads.get(expr, 0) != 1:
                return None
            expr = self.bound.get(expr, expr)
        return expr if expr in self.origin else None

    def _convolution(self, data: Expr) -> _Convolution | None:
        value, bias = self._only_reader(data), None
        axis = None
        if isinstance(value, Call) and _name(value) == "nn.bias_add":
            if not is_known(value.args[1]):
                return None
            type_ = type_of(value)
            assert isinstance(type_, TensorType)
            bias, axis = value.args[1].data, value.attrs.axis % len(type_.shape)
            value = self._only_reader(value.args[0])
        if not isinstance(value, Call) or _name(value) not in CONVOLUTIONS:
            return None
        weight, type_ = value.args[1], type_of(value)
        if not is_known(weight) or not isinstance(type_, TensorType):
            return None
        if type_.dtype not in ("float32", "float64") or weight.data.dtype.name != type_.dtype:
            return None
        channels = (value.attrs.out_layout or value.attrs.data_layout).index("C")
        if axis not in (None, channels):
            return None
        return _Convolution(value, weight.data, bias, channels)


def _name(expr: Expr | None) -> str:
    return expr.op.name if isinstance(expr, Call) and isinstance(expr.op, Op) else ""


def _folded(
    found: _Convolution, norm: Call, vectors: list[Array], type_: TensorType
) -> Expr | None:
    """The convolution with the scaled weight, and the shift added; None if these are not finite."""
    gamma, beta, mean, var = (v.astype("float64") for v in vectors)
    with np.errstate(all="ignore"):
        scale = 1 / np.sqrt(var + norm.attrs.epsilon)
        scale = gamma * scale if norm.attrs.scale else scale
        bias = -mean if found.bias is None else found.bias.astype("float64") - mean
        shift = bias * scale + (beta if norm.attrs.center else 0)
        axis = found.call.attrs.kernel_layout.index("O")
        sizes = [-1 if a == axis else 1 for a in range(found.weight.ndim)]
        weight = (found.weight * scale.reshape(sizes)).astype(type_.dtype)
        shift = shift.astype(type_.dtype)
    if not (np.isfinite(weight).all() and np.isfinite(shift).all()):
        return None
    call = typed(
        Call(
            found.call.op,
            (found.call.args[0], Constant(weight, span=found.call.args[1].span)),
            found.call.attrs,
            span=found.call.span,
        ),
        type_,
    )
    shape = (-1, *(1,) * (len(type_.shape) - found.axis - 1))
    added = Constant(shift.reshape(shape), span=norm.span)
    return op_call("add", (call, added), type_, norm.span)


def fold_batch_norm(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""

    def fold(function: Function) -> Function:
        names = {_name(node) for node in postorder(function.body)}
        if "nn.batch_norm" not in names or not names & CONVOLUTIONS:
            return function
        # The two may stand in lets inside of each other's operands.
        body = Normalizer(function.body, mod).run()
        folder = _Folder(body)
        new = folder.rewrite(body)
        return with_body(function, new) if folder.folded else function

    return map_functions(mod, fold)


FOLD_BATCH_NORM = Pass("fold_batch_norm", fold_batch_norm)
