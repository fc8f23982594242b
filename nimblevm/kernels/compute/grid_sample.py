"""image.crop_and_resize, image.affine_grid, image.grid_sample: images at places that tensors give."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from nimblevm.kernels.compute.common import named, tensor_type, wide
from nimblevm.kernels.compute.gather import operand_of
from nimblevm.kernels.compute.resize import Axis, Number, weighted, weighted_inside
from nimblevm.kernels.expr import INDEX
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
from nimblevm.relay.op import crop_and_resize
from nimblevm.relay.op.grid_sample import ALPHA, SPAN
from nimblevm.relay.op.resize import Sampling
from nimblevm.relay.op.windows import per_axis


def _crop(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, boxes, indices = (single(arg) for arg in args)
    b, type_ = em.b, tensor_type(out)
    calc = "float64" if data.dtype == "float64" else "float32"
    spec = crop_and_resize.sampling(attrs)
    of_data, of_out = (dict(zip(attrs.layout, t.shape, strict=True)) for t in (data, type_))
    axes = [Axis(em, spec, n, (of_data[c], of_out[c]), calc) for n, c in enumerate("HW")]

    def place(axis: Axis, number: int, box: Value, turn: Value) -> Generator[Any, Value, Number]:
        start = yield boxes, (box, b.i64(number))
        end = yield boxes, (box, b.i64(number + 2))
        low, high = (Number(b, b.cast(v, calc)) for v in (start, end))
        last = axis.float_of(b.sub(axis.size, b.i64(1)))
        if of_out["HW"[number]] == 1:
            return axis.const(0.5) * (low + high) * last
        step = (high - low) * last / axis.float_of(b.sub(axis.out, b.i64(1)))
        return axis.float_of(turn) * step + low * last

    def at(index: Index) -> Steps:
        yield from em.cheap(data)
        where = dict(zip(attrs.layout, index, strict=True))
        box = where["N"]
        number = yield indices, (box,)
        size = em.dim(of_data["N"])
        checked = b.check_index(b.cast(number, INDEX), size, operand_of(indices))
        where["N"] = named(em, checked, index)
        taps, inside = [], []
        for n, (axis, letter) in enumerate(zip(axes, "HW", strict=True)):
            x = yield from place(axis, n, box, where[letter])
            taps.append((letter, axis.taps(x)))
            inside.append(axis.within(x))
        kind = data.dtype if spec.method == "nearest_neighbor" else calc
        value = yield from weighted(em, data, attrs.layout, kind, where, taps)
        fill = b.cast(b.const(attrs.extrapolation_value, calc), kind)
        return b.cast(b.select(b.binary("and", *inside), value, fill), type_.dtype)

    return TensorExpr(type_.shape, type_.dtype, at, data.cost + 32)


def _affine(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, b = single(args[0]), em.b
    dtype = wide(data.dtype)

    def at(index: Index) -> Steps:
        n, k, *turns = index
        places = []
        for turn, size in zip(turns, per_axis(attrs.target_shape, 2), strict=True):
            step = b.const(SPAN / max(size - 1, 1), dtype)
            places.append(b.sub(b.mul(b.cast(turn, dtype), step), b.const(1, dtype)))
        y, x = places
        terms = []
        for column, place in enumerate((x, y, None)):
            factor = yield data, (n, k, b.i64(column))
            factor = b.cast(factor, dtype)
            terms.append(factor if place is None else b.mul(factor, place))
        return b.cast(b.add(b.add(terms[0], terms[1]), terms[2]), data.dtype)

    return TensorExpr(tensor_type(out).shape, data.dtype, at, data.cost + 8)


class _GridAxis(Axis):
    """Places along one axis as grid_sample's attributes have them; spec.method is linear, cubic or nearest."""

    def __init__(self, em: Emitter, spec: Sampling, n: int, size: Any, dtype: str, attrs: Any):
        super().__init__(em, spec, n, (size, size), dtype)
        self.attrs = attrs

    def _select(self, cond: Value, yes: Number, no: Number) -> Number:
        return Number(self.b, self.b.select(cond, yes.value, no.value))

    def source(self, x: Number) -> Number:
        """The place in data of a coordinate in -1..1."""
        half, size = self.const(0.5), self.float_of(self.size)
        if self.attrs.align_corners:
            return (x + self.const(1)) * self.float_of(self.last()) * half
        return (x + self.const(1)) * size * half - half

    def last(self) -> Value:
        return self.b.sub(self.size, self.b.i64(1))

    def _reflected(self, x: Number) -> Number:
        b = self.b
        if self.attrs.align_corners:
            span, start = self.float_of(b.binary("max", self.last(), b.i64(1))), self.const(0)
        else:
            span, start = self.float_of(self.size), self.const(-0.5)
        away = Number(b, b.unary("abs", (start - x).value))
        times = Number(b, b.unary("trunc", (away / span).value))
        more = away - times * span
        even = b.compare(
            "eq", b.binary("floormod", times.value, self.const(2).value), self.const(0).value
        )
        turned = self._select(even, more + start, span - more + start)
        low = b.compare("ge", x.value, start.value)
        high = b.compare("le", x.value, (span + start).value)
        return self._select(b.binary("and", low, high), x, turned)

    def bounded(self, x: Number) -> Number:
        """A place as the padding mode has it."""
        if self.attrs.padding_mode == "zeros":
            return x
        if self.attrs.padding_mode == "reflection":
            x = self._reflected(x)
        low = self.b.binary("max", x.value, self.const(0).value)
        return Number(self.b, self.b.binary("min", low, self.float_of(self.last()).value))

    def found(self, coordinate: Number) -> list[tuple[Number, Number | None]]:
        """(place, weight) of the elements around a coordinate of the grid."""
        x = self.source(coordinate)
        if self.attrs.method == "bicubic":
            return [(self.bounded(place), weight) for place, weight in self.points(x)]
        x = self.bounded(x)
        return [(self._even(x), None)] if self.attrs.method == "nearest" else self.points(x)

    def _even(self, x: Number) -> Number:
        """x rounded, half to even."""
        b = self.b
        low = Number(b, b.unary("floor", x.value))
        t, half = x - low, self.const(0.5)
        odd = b.compare(
            "ne", b.binary("floormod", low.value, self.const(2).value), self.const(0).value
        )
        tie = b.binary("and", b.compare("eq", t.value, half.value), odd)
        up = b.binary("or", b.compare("gt", t.value, half.value), tie)
        return low + self._select(up, self.const(1), self.const(0))


def _sample(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, grid = (single(arg) for arg in args)
    b, dtype, space = em.b, wide(data.dtype), data.shape[2:]
    method = {"bilinear": "linear", "bicubic": "cubic"}.get(attrs.method, attrs.method)
    spec = Sampling(attrs.layout[2:], attrs.layout, method, "align_corners", alpha=ALPHA)
    axes = [_GridAxis(em, spec, n, size, dtype, attrs) for n, size in enumerate(space)]

    def at(index: Index) -> Steps:
        yield from em.cheap(data)
        yield from em.cheap(grid)
        where = dict(zip(attrs.layout[:2], index, strict=False))
        around = []
        for n, (letter, axis) in enumerate(zip(attrs.layout[2:], axes, strict=True)):
            # x is first in the grid and last in data.
            coordinate = yield grid, (index[0], b.i64(len(axes) - 1 - n), *index[2:])
            around.append((letter, axis, axis.found(Number(b, b.cast(coordinate, dtype)))))
        value = yield from weighted_inside(em, data, attrs.layout, dtype, where, around)
        return b.cast(value, data.dtype)

    return TensorExpr(tensor_type(out).shape, data.dtype, at, data.cost + 64)


register_compute("image.crop_and_resize", _crop)
register_compute("image.affine_grid", _affine)
register_compute("image.grid_sample", _sample)
