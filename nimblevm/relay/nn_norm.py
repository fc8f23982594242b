"""relay.nn: activations with parameters, normalization and what goes with them."""

from __future__ import annotations

from nimblevm.relay import ir, op
from nimblevm.relay.builder import Axes
from nimblevm.relay.call import Operand, TupleWrapper, call_op, plain


def leaky_relu(data: Operand, alpha: float = 0.01) -> ir.Call:
    """data where it is positive, else alpha * data."""
    return call_op("nn.leaky_relu", data, attrs=op.leaky_relu.LeakyReluAttrs(alpha))


def prelu(data: Operand, alpha: Operand, axis: int = 1) -> ir.Call:
    """leaky_relu with a slope for each position on an axis."""
    return call_op("nn.prelu", data, alpha, attrs=op.prelu.PReluAttrs(axis))


def fast_softmax(data: Operand, axis: int = -1) -> ir.Call:
    """softmax under its other name."""
    return call_op("nn.fast_softmax", data, attrs=op.softmax.SoftmaxAttrs(axis))


def log_softmax(data: Operand, axis: int = -1) -> ir.Call:
    """The logarithm of softmax."""
    return call_op("nn.log_softmax", data, attrs=op.softmax.SoftmaxAttrs(axis))


def batch_flatten(data: Operand) -> ir.Call:
    """All axes but the first made one."""
    return call_op("nn.batch_flatten", data)


def dropout(data: Operand, rate: float = 0.5) -> ir.TupleGetItem:
    """data itself, as at inference."""
    return dropout_raw(data, rate)[0]


def dropout_raw(data: Operand, rate: float = 0.5) -> TupleWrapper:
    """data itself and the mask of what was kept: ones."""
    return TupleWrapper(call_op("nn.dropout", data, attrs=op.dropout.DropoutAttrs(rate)), 2)


def batch_norm(
    data: Operand,
    gamma: Operand,
    beta: Operand,
    moving_mean: Operand,
    moving_var: Operand,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> TupleWrapper:
    """data normalized by the moving mean and variance, and these two."""
    attrs = op.norm.NormAttrs(axis, epsilon, center, scale)
    operands = (data, gamma, beta, moving_mean, moving_var)
    return TupleWrapper(call_op("nn.batch_norm", *operands, attrs=attrs), 3)


def instance_norm(
    data: Operand,
    gamma: Operand,
    beta: Operand,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> ir.Call:
    """data normalized over all axes but the first and `axis`."""
    attrs = op.norm.NormAttrs(axis, epsilon, center, scale)
    return call_op("nn.instance_norm", data, gamma, beta, attrs=attrs)


def group_norm(
    data: Operand,
    gamma: Operand,
    beta: Operand,
    num_groups: int,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> ir.Call:
    """data normalized over parts of `axis` and the axes behind it."""
    attrs = op.norm.GroupNormAttrs(num_groups, axis, epsilon, center, scale)
    return call_op("nn.group_norm", data, gamma, beta, attrs=attrs)


def l2_normalize(data: Operand, eps: float, axis: Axes = None) -> ir.Call:
    """data divided by its Euclidean length over axes."""
    axis = plain(axis)
    named = (axis,) if isinstance(axis, int) else None if axis is None else tuple(axis)
    return call_op("nn.l2_normalize", data, attrs=op.l2_normalize.L2NormalizeAttrs(eps, named))


def lrn(
    data: Operand,
    size: int = 5,
    axis: int = 1,
    bias: float = 2,
    alpha: float = 1e-5,
    beta: float = 0.75,
) -> ir.Call:
    """data divided by a power of the squares around each element along an axis."""
    attrs = op.lrn.LRNAttrs(size, axis, float(bias), alpha, beta)
    return call_op("nn.lrn", data, attrs=attrs)


__all__ = [
    "batch_flatten", "batch_norm", "dropout", "dropout_raw", "fast_softmax", "group_norm",
    "instance_norm", "l2_normalize", "leaky_relu", "log_softmax", "prelu",
]  # fmt: skip
