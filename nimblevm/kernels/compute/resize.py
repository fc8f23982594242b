"""Sampled images: places along each axis, the elements around them, and their weights; see relay/op/resize.py."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.expr import Builder
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.resize import (
    EPSILON,
    OPERATORS,
    Sampling,
    cubic_weights,
    rounding_of,
    sampling,
)
from nimblevm.relay.op.windows import arranged

Tap = tuple[Value, Value | None]


@dataclass(frozen=True, slots=True)
class Number:
    """A value with operators, so that a formula can be written once for arrays and for kernels."""

    b: Builder
    value: Value

    def __add__(self, other: Number) -> Number:
        return Number(self.b, self.b.add(self.value, other.value))

    def __sub__(self, other: Number) -> Number:
        return Number(self.b, self.b.sub(self.value, other.value))

    def __mul__(self, other: Number) -> Number:
        return Number(self.b, self.b.mul(self.value, other.value))

    def __truediv__(self, other: Number) -> Number:
        return Number(self.b, self.b.binary("div", self.value, other.value))


class Axis:
    """Sampling along one axis, in floats of `dtype`."""

    def __init__(
        self, em: Emitter, spec: Sampling, axis: int, sizes: tuple[Dim, Dim], dtype: str
    ) -> None:
        self.b, self.spec, self.axis, self.dtype = em.b, spec, axis, dtype
        self.size, self.out = (em.dim(size) for size in sizes)

    def const(self, value: float) -> Number:
        return Number(self.b, self.b.const(value, self.dtype))

    def float_of(self, value: Value) -> Number:
        return Number(self.b, self.b.cast(value, self.dtype))

    def place(self, index: Value) -> Number:
        """Where in data an element of the result lies."""
        b = self.b
        x, half = self.float_of(index), self.const(0.5)
        size, out = self.float_of(self.size), self.float_of(self.out)
        last = self.float_of(b.sub(self.size, b.i64(1)))
        steps = self.float_of(b.binary("max", b.sub(self.out, b.i64(1)), b.i64(1)))
        single_ = b.compare("le", self.out, b.i64(1))
        match self.spec.mode:
            case "align_corners":
                return x * (last / steps)
            case "asymmetric":
                return x * (size / out)
            case "tf_half_pixel_for_nn":
                return (x + half) * (size / out)
            case "tf_crop_and_resize":
                start = self.const(self.spec.roi[self.axis])
                end = self.const(self.spec.roi[self.axis + len(self.spec.letters)])
                middle = half * (start + end) * last
                found = x * ((end - start) * last / steps) + start * last
                return Number(b, b.select(single_, middle.value, found.value))
            case "pytorch_half_pixel":
                found = (x + half) * (size / out) - half
                return Number(b, b.select(single_, self.const(0).value, found.value))
            case _:
                return (x + half) * (size / out) - half

    def _nearest(self, x: Number) -> Value:
        b = self.b
        match rounding_of(self.spec):
            case "round":
                return b.unary("round", x.value)
            case "round_prefer_floor":
                return b.unary("ceil", (x - self.const(0.5)).value)
            case "round_prefer_ceil":
                return b.unary("floor", (x + self.const(0.5)).value)
            case "ceil":
                return b.unary("ceil", (x - self.const(EPSILON)).value)
            case _:
                return b.unary("floor", (x + self.const(EPSILON)).value)

    def inside(self, place: Value) -> Value:
        b = self.b
        low = b.binary("max", b.cast(place, "int64"), b.i64(0))
        return b.binary("min", low, b.sub(self.size, b.i64(1)))

    def points(self, x: Number) -> list[tuple[Number, Number | None]]:
        """(place, weight or None for 1) of the elements around x; a place may lie outside."""
        one = self.const(1)
        if self.spec.method == "nearest_neighbor":
            return [(Number(self.b, self._nearest(x)), None)]
        low = Number(self.b, self.b.unary("floor", x.value))
        t = x - low
        if self.spec.method == "linear":
            return [(low, one - t), (low + one, t)]
        weights = cubic_weights(t, self.const(self.spec.alpha), self.const(2), self.const(3), one)
        return [(low + self.const(k), w) for k, w in zip((-1, 0, 1, 2), weights, strict=True)]

    def taps(self, x: Number) -> list[Tap]:
        """(position, weight or None for 1) of the elements that make one of the result."""
        found = self.points(x)
        if self.spec.method == "cubic" and self.spec.exclude:
            kept = [(p, self._kept(p, w)) for p, w in found if w is not None]
            total = kept[0][1] + kept[1][1] + kept[2][1] + kept[3][1]
            found = [(p, w / total) for p, w in kept]
        return [(self.inside(p.value), None if w is None else w.value) for p, w in found]

    def _kept(self, place: Number, weight: Number) -> Number:
        outside = self.outside(place)
        return Number(self.b, self.b.select(outside, self.const(0).value, weight.value))

    def within(self, place: Number) -> Value:
        """Whether a place is within data; a NaN is not."""
        b = self.b
        last = self.float_of(b.sub(self.size, b.i64(1)))
        low = b.compare("ge", place.value, self.const(0).value)
        return b.binary("and", low, b.compare("le", place.value, last.value))

    def outside(self, place: Number) -> Value:
        """Whether a place is not within data."""
        b = self.b
        last = self.float_of(b.sub(self.size, b.i64(1)))
        low = b.compare("lt", place.value, self.const(0).value)
        return b.binary("or", low, b.compare("gt", place.value, last.value))


def weighted(
    em: Emitter,
    data: TensorExpr,
    layout: str,
    calc: str,
    where: dict[str, Value],
    taps: Sequence[tuple[str, list[Tap]]],
) -> Generator[Any, Value, Value]:
    """The weighted sum over the taps of the first axis (letter) of those over the others; axes are three at most."""
    b = em.b
    if not taps:
        value = yield data, arranged(layout, where)
        return value if calc == data.dtype else b.cast(value, calc)
    (letter, here), *others = taps
    found: Value | None = None
    for position, weight in here:
        part = yield from weighted(em, data, layout, calc, {**where, letter: position}, others)
        part = part if weight is None else b.mul(part, weight)
        found = part if found is None else b.add(found, part)
    assert found is not None
    return found


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    b = em.b
    data = single(args[0])
    dtype = tensor_type(out).dtype
    spec = sampling(attrs)
    calc = "float64" if data.dtype == "float64" else "float32"
    of_data = dict(zip(spec.layout, data.shape, strict=True))
    of_out = dict(zip(spec.layout, out.shape, strict=True))
    axes = [Axis(em, spec, n, (of_data[c], of_out[c]), calc) for n, c in enumerate(spec.letters)]

    def at(index: Index) -> Steps:
        yield from em.cheap(data)
        where = dict(zip(spec.layout, index, strict=True))
        places = [axis.place(where[c]) for axis, c in zip(axes, spec.letters, strict=True)]
        taps = [(c, axis.taps(x)) for c, axis, x in zip(spec.letters, axes, places, strict=True)]
        kind = data.dtype if spec.method == "nearest_neighbor" else calc
        value = yield from weighted(em, data, spec.layout, kind, where, taps)
        if spec.mode == "tf_crop_and_resize":
            fill = b.cast(b.const(spec.extrapolation, calc), value.dtype)
            for axis, x in zip(axes, places, strict=True):
                value = b.select(axis.outside(x), fill, value)
        return b.cast(value, dtype)

    # As loops that read it often should see it: every element takes tens of operations.
    return TensorExpr(out.shape, dtype, at, data.cost + 32)


for _name in OPERATORS:
    register_compute(_name, _compute)


def weighted_inside(
    em: Emitter,
    data: TensorExpr,
    layout: str,
    calc: str,
    where: dict[str, Value],
    points: Sequence[tuple[str, Axis, list[tuple[Number, Number | None]]]],
    inside: Value | None = None,
) -> Generator[Any, Value, Value]:
    """As `weighted`, of places (letter, axis, what `Axis.points` gives) that may lie outside of data, where it is 0."""
    b = em.b
    if not points:
        value = yield data, arranged(layout, where)
        value = b.cast(value, calc)
        return value if inside is None else b.select(inside, value, b.const(0, calc))
    (letter, axis, here), *others = points
    found: Value | None = None
    for place, weight in here:
        hit = axis.within(place)
        both = hit if inside is None else b.binary("and", inside, hit)
        there = {**where, letter: axis.inside(place.value)}
        part = yield from weighted_inside(em, data, layout, calc, there, others, both)
        part = part if weight is None else b.mul(part, weight.value)
        found = part if found is None else b.add(found, part)
    assert found is not None
    return found


__all__ = ["Axis", "Number", "Tap", "weighted", "weighted_inside"]
