"""The types of weights that a program leaves open: an operator's data and attributes say what they must be.

    x = relay.var("x", shape=(1, 3, 224, 224)); w = relay.var("weight")
    relay.nn.conv2d(x, w, channels=64, kernel_size=(7, 7))          # w: Tensor[(64, 3, 7, 7), float32]

Scripts written for TVM leave weights, biases and the vectors of normalizations so. Where an argument is a parameter
of unknown type and the operator has a row in RULES, inference binds it; everything else waits for what is known later.
A parameter's type has static dims only: one that is no number becomes `?`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op import conv, deformable_conv2d
from nimblevm.relay.op.attr_types import attribute_fault
from nimblevm.relay.op.registry import Op
from nimblevm.relay.op.windows import per_axis
from nimblevm.relay.types import IncompleteType, TensorType, Type
from nimblevm.relay.unify import Solver

Rule = Callable[[TensorType, Any], tuple[Dim, ...] | None]
"""(type of the first argument, attributes) -> the shape of the argument that the rule is about; None: not known."""


def _dense(data: TensorType, attrs: Any) -> tuple[Dim, ...] | None:
    return None if attrs.units is None or not data.shape else (attrs.units, data.shape[-1])


def _matmul(data: TensorType, attrs: Any) -> tuple[Dim, ...] | None:
    if attrs.units is None or not data.shape or (attrs.transpose_a and len(data.shape) < 2):
        return None
    depth = data.shape[-2 if attrs.transpose_a else -1]
    return (attrs.units, depth) if attrs.transpose_b else (depth, attrs.units)


def _vector(data: TensorType, attrs: Any) -> tuple[Dim, ...] | None:
    rank = len(data.shape)
    inside = isinstance(attrs.axis, int) and -rank <= attrs.axis < rank
    return (data.shape[attrs.axis],) if inside else None


def _convolution(row: conv.Row) -> Rule:
    def rule(data: TensorType, attrs: Any) -> tuple[Dim, ...] | None:
        layout, kernel = attrs.data_layout, attrs.kernel_layout
        known = attrs.channels is not None and attrs.kernel_size is not None
        groups = attrs.groups
        if not known or len(data.shape) != len(layout) or "C" not in layout or groups < 1:
            return None
        size = per_axis(attrs.kernel_size, row.rank)
        inputs = data.shape[layout.index("C")]
        each = dims.floordiv(inputs, groups) if groups != 1 else inputs
        letters: dict[str, Dim] = dict(zip(row.spatial, size, strict=False))
        letters["O"] = attrs.channels // groups if row.transposed else attrs.channels
        letters["I"] = inputs if row.transposed else each
        return tuple(letters[c] for c in kernel) if set(kernel) <= set(letters) else None

    return rule


def _offset(data: TensorType, attrs: Any) -> tuple[Dim, ...] | None:
    layout, kernel = attrs.data_layout, per_axis(attrs.kernel_size, 2)
    known = len(kernel) == 2 and all(isinstance(size, int) for size in kernel)
    if not known or len(data.shape) != len(layout) or {*layout} != {*"NCHW"}:
        return None
    letters = dict(zip(layout, data.shape, strict=True))
    found = deformable_conv2d.windows(attrs, data.shape, (kernel[0], kernel[1]))
    letters["H"], letters["W"] = (window.out for window in found)
    letters["C"] = 2 * kernel[0] * kernel[1] * attrs.deformable_groups
    return tuple(letters[letter] for letter in layout)


RULES: Mapping[str, Mapping[int, Rule]] = {
    "nn.dense": {1: _dense},
    "nn.matmul": {1: _matmul},
    "nn.bias_add": {1: _vector},
    "nn.prelu": {1: _vector},
    **dict.fromkeys(
        ("nn.layer_norm", "nn.instance_norm", "nn.group_norm"), dict.fromkeys((1, 2), _vector)
    ),
    "nn.batch_norm": dict.fromkeys((1, 2, 3, 4), _vector),
    "nn.deformable_conv2d": {1: _offset, 2: _convolution(conv.ROWS["nn.conv2d"])},
    **{row.name: {1: _convolution(row)} for row in conv.TABLE},
}
"""Operator -> argument -> the rule that gives its shape. Its dtype is the data's."""


def bind_weights(solver: Solver, op: Op, attrs: Any, args: tuple[Type, ...]) -> tuple[Type, ...]:
    """The arguments as far as they are known, after what the others say of weights that are variables."""
    args = tuple(solver.resolve(a) for a in args)
    if (
        op.name not in RULES
        or not isinstance(args[0], TensorType)
        or attribute_fault(op.attrs, attrs)
    ):
        return args
    for place, rule in RULES[op.name].items():
        hole = args[place] if place < len(args) else None
        if not isinstance(hole, IncompleteType) or not solver.is_parameter(hole):
            continue
        shape = rule(args[0], attrs)
        if shape is not None:
            solver.bind(hole, TensorType(shape, args[0].dtype))
    return tuple(solver.resolve(a) for a in args)


__all__ = ["RULES", "bind_weights"]
