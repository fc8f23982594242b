"""vision.roi_align and vision.roi_pool: loops over the places of a bin, whose number depends on the region."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from nimblevm.kernels.compute.common import least, named, tensor_type, wide
from nimblevm.kernels.compute.gather import operand_of
from nimblevm.kernels.compute.resize import Axis, Number, weighted
from nimblevm.kernels.expr import INDEX
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Compute,
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)
from nimblevm.relay.op.resize import Sampling
from nimblevm.relay.op.roi import EPSILON, MOST_SAMPLES
from nimblevm.relay.op.windows import arranged, per_axis

Bin = Callable[["_Region", Index, dict[str, Value]], Steps]


class _Region:
    """Region `r` of rois, and the image that it is of."""

    def __init__(
        self, em: Emitter, data: TensorExpr, rois: TensorExpr, attrs: Any, index: Index
    ) -> None:
        self.em, self.data, self.rois, self.attrs = em, data, rois, attrs
        self.index, self.dtype = index, wide(data.dtype)
        self.r = dict(zip(attrs.layout, index, strict=True))["N"]
        self.sizes = dict(zip(attrs.layout, data.shape, strict=True))

    def field(self, number: int) -> Generator[Any, Value, Number]:
        """Number `number` of the region, in the wide dtype."""
        value = yield self.rois, (self.r, self.em.b.i64(number))
        return Number(self.em.b, self.em.b.cast(value, self.dtype))

    def corners(self, number: int) -> Generator[Any, Value, tuple[Number, Number]]:
        """Numbers `number` and `number` + 2: where the region starts and ends."""
        start = yield from self.field(number)
        end = yield from self.field(number + 2)
        return start, end

    def image(self) -> Generator[Any, Value, Value]:
        """The number of the image in the batch, checked."""
        em = self.em
        value = yield from self.field(0)
        number = em.b.cast(value.value, INDEX)
        checked = em.b.check_index(number, em.dim(self.sizes["N"]), operand_of(self.rois))
        return named(em, checked, self.index)

    def const(self, value: float) -> Number:
        return Number(self.em.b, self.em.b.const(value, self.dtype))

    def float_of(self, value: Value) -> Number:
        return Number(self.em.b, self.em.b.cast(value, self.dtype))

    def int_of(self, op: str, value: Number) -> Value:
        """floor, ceil or round of a place, as an index."""
        return self.em.b.cast(self.em.b.unary(op, value.value), INDEX)


def _compute(one_bin: Bin, cost: int) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        data, rois = (single(arg) for arg in args)

        def at(index: Index) -> Steps:
            yield from em.cheap(data)
            yield from em.cheap(rois)
            region = _Region(em, data, rois, attrs, index)
            where = dict(zip(attrs.layout, index, strict=True))
            number = yield from region.image()
            return (yield from one_bin(region, index, {**where, "N": number}))

        return TensorExpr(tensor_type(out).shape, data.dtype, at, cost, costly=True)

    return compute


def _align(region: _Region, index: Index, where: dict[str, Value]) -> Steps:
    em, b, attrs = region.em, region.em.b, region.attrs
    axes, counts, firsts, steps = [], [], [], []
    for n, (letter, bins) in enumerate(zip("HW", per_axis(attrs.pooled_size, 2), strict=True)):
        start, end = yield from region.corners(2 - n)
        scale = region.const(attrs.spatial_scale)
        start, end = start * scale, end * scale
        long = b.binary("max", (end - start).value, region.const(1).value)
        size = Number(b, long) / region.const(bins)
        count = b.i64(attrs.sample_ratio)
        if attrs.sample_ratio <= 0:
            found = region.int_of("ceil", size)
            found = b.check_index(found, b.i64(MOST_SAMPLES), operand_of(region.rois))
            count = named(em, found, (region.r,))
        first = start + region.float_of(where[letter]) * size
        firsts.append(Number(b, named(em, first.value, index)))
        steps.append(Number(b, named(em, size.value, (region.r,))))
        counts.append(count)
        spec = Sampling("HW", attrs.layout, "linear", "align_corners")
        size_of = region.sizes[letter]
        axes.append(Axis(em, spec, n, (size_of, size_of), region.dtype))

    def sample(turn: Index) -> Steps:
        taps, outside = [], b.const(value=False, dtype="bool")
        for axis, letter, k, count, first, step in zip(
            axes, "HW", turn, counts, firsts, steps, strict=True
        ):
            offset = (region.float_of(k) + region.const(0.5)) * step / region.float_of(count)
            place = first + offset
            size = region.float_of(axis.size)
            beyond = b.compare("gt", place.value, size.value)
            below = b.compare("lt", place.value, region.const(-1).value)
            outside = b.binary("or", outside, b.binary("or", below, beyond))
            low = b.binary("max", place.value, region.const(0).value)
            clipped = b.binary("min", low, (size - region.const(1)).value)
            taps.append((letter, axis.taps(Number(b, clipped))))
        value = yield from weighted(em, region.data, attrs.layout, region.dtype, where, taps)
        return b.select(outside, region.const(0).value, value)

    mean = attrs.mode == "avg"
    neutral = region.const(0 if mean else float("-inf")).value
    total = yield from em.accumulate("add" if mean else "max", neutral, index, counts, sample)
    if mean:
        samples = region.float_of(b.mul(counts[0], counts[1])).value
        total = b.binary("div", total, samples)
    return b.cast(total, region.data.dtype)


def _pool(region: _Region, index: Index, where: dict[str, Value]) -> Steps:
    em, b, attrs, data = region.em, region.em.b, region.attrs, region.data
    scale, epsilon = region.const(attrs.spatial_scale), region.const(EPSILON)
    firsts, counts = [], []
    for n, (letter, bins) in enumerate(zip("HW", per_axis(attrs.pooled_size, 2), strict=True)):
        corners = yield from region.corners(2 - n)
        start, end = (region.int_of("round", corner * scale) for corner in corners)
        long = b.binary("max", b.add(b.sub(end, start), b.i64(1)), b.i64(1))
        step = region.float_of(long) / region.const(bins)
        turn = where[letter]
        low = region.int_of("floor", region.float_of(turn) * step + epsilon)
        after = region.float_of(b.add(turn, b.i64(1)))
        high = region.int_of("ceil", after * step - epsilon)
        size = em.dim(region.sizes[letter])
        edges = [
            b.binary("min", b.binary("max", b.add(edge, start), b.i64(0)), size)
            for edge in (low, high)
        ]
        firsts.append(named(em, edges[0], index))
        count = b.binary("max", b.sub(edges[1], edges[0]), b.i64(0))
        counts.append(named(em, count, index))

    def element(turn: Index) -> Steps:
        places = {
            letter: b.add(first, k) for letter, first, k in zip("HW", firsts, turn, strict=True)
        }
        return (yield data, arranged(attrs.layout, where | places))

    start = b.const(least(data.dtype), data.dtype)
    found = yield from em.accumulate("max", start, index, counts, element)
    some = [b.compare("gt", count, b.i64(0)) for count in counts]
    return b.select(b.binary("and", *some), found, b.const(0, data.dtype))


register_compute("vision.roi_align", _compute(_align, 1 << 20))
register_compute("vision.roi_pool", _compute(_pool, 1 << 20))
