"""Factors along the axis of channels, and the products and convolutions whose weights take them.

Shared by forward_fold_scale_axis and backward_fold_scale_axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nimblevm import dtypes
from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.rewrite import op_call, type_of, typed
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call, Constant, Expr, is_known
from nimblevm.relay.op.common import Array
from nimblevm.relay.types import TensorType

CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
CONSUMERS = (*CONVOLUTIONS, "nn.dense")
CLAMPS = ("nn.relu", "nn.leaky_relu")
"""f(x * s) = f(x) * s for s > 0."""
SUMS = ("add", "subtract")
_INVERSE = {"multiply": "divide", "divide": "multiply"}


@dataclass(frozen=True, slots=True)
class Scale:
    """One factor, or one for each element of an axis. op: multiply or divide. value: float; one element, or with all
    axes but one of size 1.
    """

    op: str
    value: Expr

    @property
    def inverse(self) -> Scale:
        return Scale(_INVERSE[self.op], self.value)

    def is_positive(self) -> bool:
        """Whether all of it is known to be more than 0."""
        return is_known(self.value) and bool((self.value.data > 0).all())

    def has_inverse(self) -> bool:
        """Whether 1 / scale is known to lose nothing but by rounding."""
        if not is_known(self.value):
            return False
        least = np.finfo(self.value.data.dtype).smallest_normal
        with np.errstate(all="ignore"):
            both = [np.abs(v) for v in (self.value.data, 1 / self.value.data)]
        return all(bool((np.isfinite(v) & (v >= least)).all()) for v in both)

    def apply(self, data: Expr, after: int) -> Expr:
        """data, scaled along the axis with `after` axes behind it; data is broadcast if it needs be."""
        value, own, type_ = self.value, _tensor(self.value), _tensor(data)
        sizes = tuple([size for size in own.shape if size != 1])
        shape = (*sizes, *(1,) * after) if sizes else ()
        if is_known(value):
            # Of a constant a constant, so that nothing is left for FoldConstant but the product.
            value = Constant(value.data.reshape(shape), span=value.span)
            value = typed(value, TensorType(shape, own.dtype))
        elif own.shape != shape:
            newshape = (-1, *shape[1:]) if shape else ()
            placed = TensorType(shape, own.dtype)
            value = op_call("reshape", (value,), placed, value.span, newshape=newshape)
        result = TensorType(_broadcast(type_.shape, shape), type_.dtype)
        return op_call(self.op, (data, value), result, data.span)


def _broadcast(one: tuple[Dim, ...], other: tuple[Dim, ...]) -> tuple[Dim, ...]:
    pairs = itertools.zip_longest(reversed(one), reversed(other), fillvalue=1)
    return tuple([dims.bcast(a, b) for a, b in pairs])[::-1]


def _tensor(expr: Expr) -> TensorType:
    type_ = type_of(expr)
    assert isinstance(type_, TensorType)
    return type_


def rank_of(expr: Expr) -> int:
    """The rank of a tensor."""
    return len(_tensor(expr).shape)


def scaled(call: Expr, axis: int) -> tuple[int, Scale] | None:
    """(operand, scale) of a product with, or quotient by, a scale along an axis of the result."""
    if not isinstance(call, Call) or not is_op(call, "multiply", "divide"):
        return None
    name = "multiply" if is_op(call, "multiply") else "divide"
    # Of two operands that fit, the constant is the scale.
    swapped = name == "multiply" and is_known(call.args[0])
    for at in (1, 0) if swapped else (0, 1)[: 2 if name == "multiply" else 1]:
        data, factor = call.args[at], call.args[1 - at]
        if type_of(data) is not type_of(call) or not is_along(factor, call, axis):
            continue
        if not is_known(factor) or bool(np.isfinite(factor.data).all()):
            return at, Scale(name, factor)
    return None


def is_along(vector: Expr, data: Expr, axis: int) -> bool:
    """Whether a float tensor is broadcast to data by one element, or by one for each of data's axis."""
    own, type_ = type_of(vector), type_of(data)
    if not isinstance(own, TensorType) or not isinstance(type_, TensorType):
        return False
    if own.dtype != type_.dtype or not dtypes.dtype(own.dtype).is_float:
        return False
    before = len(type_.shape) - len(own.shape)
    if before < 0:
        return False
    return all(
        size == 1 or (at + before == axis and size == type_.shape[axis])
        for at, size in enumerate(own.shape)
    )


def in_channels(call: Call) -> int | None:
    """The axis of data along which a scale may go into the weights of a convolution or product; None if none."""
    if not _is_float(call):
        return None
    if is_op(call, "nn.dense"):
        return rank_of(call.args[0]) - 1
    if call.attrs.groups != 1 and not _is_depthwise(call):
        return None
    return int(call.attrs.data_layout.index("C"))


def out_channels(call: Call) -> int | None:
    """As in_channels, of the result."""
    if not _is_float(call):
        return None
    if is_op(call, "nn.dense"):
        return rank_of(call) - 1
    return int((call.attrs.out_layout or call.attrs.data_layout).index("C"))


def _is_float(call: Call) -> bool:
    names = {_tensor(expr).dtype for expr in (call, *call.args)}
    return len(names) == 1 and dtypes.dtype(names.pop()).is_float


def _is_depthwise(call: Call) -> bool:
    layout, weight = call.attrs.kernel_layout, _tensor(call.args[1])
    sizes = dict(zip(layout, weight.shape, strict=True))
    return bool(sizes["I"] == 1 and sizes["O"] == call.attrs.groups)


def with_scales(call: Call, scales: Sequence[Scale], outer: bool) -> Call:
    """The call with scales in its weight. outer: along the result's channels, else along data's."""
    if is_op(call, "nn.dense"):
        axis = 0 if outer else 1
    else:
        letter = "O" if outer or call.attrs.groups != 1 else "I"
        axis = call.attrs.kernel_layout.index(letter)
    weight = call.args[1]
    after = rank_of(weight) - axis - 1
    for scale in scales:
        weight = scale.apply(weight, after)
    return replace(call, args=(call.args[0], weight))


def keeps_finite(call: Call, scales: Sequence[Scale], outer: bool) -> bool:
    """Whether a constant weight stays finite with constant scales; what is not constant is not asked."""
    known = [scale for scale in scales if is_known(scale.value)]
    if not is_known(call.args[1]) or not known:
        return True
    with np.errstate(all="ignore"):
        return bool(np.isfinite(_value(with_scales(call, known, outer).args[1])).all())


def _value(weight: Expr) -> Array:
    """What with_scales made of a constant weight and constant scales."""
    products = []
    while isinstance(weight, Call):
        products.append(weight)
        weight = weight.args[0]
    assert is_known(weight)
    value = weight.data
    for call in reversed(products):
        factor = call.args[1]
        assert is_known(factor)
        value = value * factor.data if is_op(call, "multiply") else value / factor.data
    return value
