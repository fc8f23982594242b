"""Which operators have an integer form: one table for the pass fake_quantization_to_integer.

A rule takes the forms of a call's operands to that of its result (compiler/affine.py), or raises Refused. What moves
elements about, or takes the greatest of them, is the same operator of integers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nimblevm.compiler import integer_layers as layers
from nimblevm.compiler import integer_sums as sums
from nimblevm.compiler.affine import Form, Other, Quantized, Refused, Site
from nimblevm.relay.ir import Expr
from nimblevm.relay.op.qnn_unary import NAMES as FUNCTIONS


@dataclass(frozen=True, slots=True)
class Rule:
    """form: makes the result. passes: operands may be of the type that is wanted of the result, since the operator
    commutes with rounding. asks: the form depends on what is wanted.
    """

    form: Callable[[Site], Form]
    passes: bool = False
    asks: bool = False


def _moved(s: Site) -> Quantized:
    """An operator that moves elements of its first operand, of one scale."""
    form = s.flat(s.operand(), commutes=True)
    return form.like(s.again(_args(s, form), form.type.dtype))


def _args(s: Site, first: Quantized) -> list[Expr]:
    others: list[Expr] = []
    for form in s.forms[1:]:
        if not isinstance(form, Other):
            raise Refused("it takes a second float tensor")
        others.append(form.value)
    return [first.value, *others]


def _with_axis(axis_of: Callable[[Site, int, int], int | None]) -> Callable[[Site], Form]:
    """As _moved, where an axis may stay one. axis_of: the call, an axis, the rank -> the axis in the result."""

    def form(s: Site) -> Quantized:
        data = s.operand()
        place = None if data.type.is_scalar else axis_of(s, data.type.axis, len(data.shape))
        if place is None:
            return _moved(s)
        type_ = dataclasses.replace(data.type, axis=place)
        return data.like(s.again(_args(s, data), type_.dtype), type_)

    return form


def _transposed(s: Site, axis: int, rank: int) -> int:
    axes = s.attrs.axes or tuple(reversed(range(rank)))
    return [a % rank for a in axes].index(axis)


def _expanded(s: Site, axis: int, rank: int) -> int:
    at = s.attrs.axis % (rank + 1)
    return int(axis + s.attrs.num_newaxis if at <= axis else axis)


def _squeezed(s: Site, axis: int, rank: int) -> int | None:
    if s.attrs.axis is None:
        return None
    gone = {a % rank for a in s.attrs.axis}
    return None if axis in gone else axis - sum(a < axis for a in gone)


def _sliced(s: Site, axis: int, rank: int) -> int | None:
    return None if s.attrs.axes is None or axis in {a % rank for a in s.attrs.axes} else axis


def _split(s: Site) -> Form:
    form = s.operand()
    if not form.type.is_scalar and form.type.axis == s.attrs.axis % len(form.shape):
        form = s.flat(form, commutes=True)
    parts = s.parts([form.value], form.type.dtype)
    return tuple([form.like(part) for part in parts])


def _nearest(s: Site) -> Quantized:
    if s.attrs.method != "nearest_neighbor":
        raise Refused(f"its method is {s.attrs.method}; nearest_neighbor has an integer form")
    return _moved(s)


_MOVES = """broadcast_to copy dyn.broadcast_to dyn.expand_dims dyn.reshape dyn.squeeze dyn.strided_slice dyn.tile gather
    layout_transform nn.batch_flatten nn.batch_to_space_nd nn.depth_to_space nn.mirror_pad nn.space_to_depth repeat
    reshape reverse sliding_window take tile""".split()
_MAXIMA = """nn.adaptive_max_pool1d nn.adaptive_max_pool2d nn.adaptive_max_pool3d nn.global_max_pool1d
    nn.global_max_pool2d nn.global_max_pool3d nn.max_pool1d nn.max_pool2d nn.max_pool3d""".split()
_MEANS = """nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.avg_pool1d nn.avg_pool2d
    nn.avg_pool3d nn.global_avg_pool1d nn.global_avg_pool2d nn.global_avg_pool3d""".split()

RULES: Mapping[str, Rule] = {
    **{
        name: Rule(layers.product)
        for name in ("nn.dense", "nn.batch_matmul", "nn.conv2d", "nn.conv2d_transpose")
    },
    **{name: Rule(sums.total, asks=True) for name in ("add", "subtract")},
    "nn.bias_add": Rule(sums.bias_add, asks=True),
    "multiply": Rule(sums.product, asks=True),
    "divide": Rule(sums.quotient),
    "negative": Rule(sums.negative),
    **{name: Rule(sums.extremum, passes=True) for name in ("maximum", "minimum", "where")},
    **{name: Rule(sums.concatenated, passes=True) for name in ("concatenate", "stack")},
    **{
        name: Rule(layers.function, asks=True)
        for name in FUNCTIONS
        if name not in ("abs", "hardswish")
    },
    "abs": Rule(layers.absolute, asks=True),
    "nn.relu": Rule(layers.relu, passes=True),
    "nn.leaky_relu": Rule(layers.leaky_relu),
    "clip": Rule(layers.clip, passes=True),
    "nn.pad": Rule(layers.pad, passes=True),
    **{name: Rule(layers.pooled_mean) for name in _MEANS},
    "mean": Rule(layers.mean),
    "sum": Rule(layers.sum_over),
    **{name: Rule(layers.greatest, passes=True) for name in ("max", "min")},
    **{name: Rule(layers.pooled_maximum, passes=True) for name in _MAXIMA},
    **{name: Rule(_moved, passes=True) for name in _MOVES},
    "transpose": Rule(_with_axis(_transposed), passes=True),
    "expand_dims": Rule(_with_axis(_expanded), passes=True),
    "squeeze": Rule(_with_axis(_squeezed), passes=True),
    "strided_slice": Rule(_with_axis(_sliced), passes=True),
    "split": Rule(_split, passes=True),
    **{name: Rule(_nearest, passes=True) for name in ("image.resize2d", "nn.upsampling")},
}
"""Operator -> its rule."""

OPTIONAL: Mapping[str, Rule] = {"nn.softmax": Rule(layers.function, asks=True)}
"""Those that only optional_qnn_ops turns on: their integer forms are farther off than a step."""

__all__ = ["OPTIONAL", "RULES", "Rule"]
