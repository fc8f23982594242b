"""vision.multibox_prior: a row of constants a box; multibox_transform_loc: one walk over the anchors of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type, unflattened, wide
from nimblevm.kernels.compute.resize import Number
from nimblevm.kernels.compute.scatter import filled
from nimblevm.kernels.expr import INDEX
from nimblevm.kernels.loop_ir import Accumulate, SetLocal, Statement, Store, Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Filling,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)
from nimblevm.relay import dims
from nimblevm.relay.op.multibox import boxes_of
from nimblevm.relay.types import TensorType


def _chosen(em: Emitter, number: Value, values: Sequence[Value]) -> Value:
    """values[number]."""
    found = values[-1]
    for k, value in enumerate(values[:-1]):
        found = em.b.select(em.b.compare("eq", number, em.b.i64(k)), value, found)
    return found


def _cut(em: Emitter, value: Value) -> Value:
    """A value cut to 0..1."""
    zero, one = (em.b.const(v, value.dtype) for v in (0, 1))
    return em.b.binary("min", em.b.binary("max", value, zero), one)


def _prior(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    b, data = em.b, single(args[0])
    dtype = wide(data.dtype)
    boxes = boxes_of(attrs)
    sizes = data.shape[2:]

    def number(value: float) -> Number:
        return Number(b, b.const(value, dtype))

    def at(index: Index) -> Steps:
        i, j, k = unflattened(em, (*sizes, len(boxes)), index[1])
        height, width = (Number(b, b.cast(em.dim(size), dtype)) for size in sizes)
        middle = []
        for place, size, step, offset in zip(
            (i, j), (height, width), attrs.steps, attrs.offsets, strict=True
        ):
            scale = number(step) if step > 0 else number(1) / size
            middle.append((Number(b, b.cast(place, dtype)) + number(offset)) * scale)
        wides, highs = ([b.const(box[side], dtype) for box in boxes] for side in (0, 1))
        w = Number(b, _chosen(em, k, wides)) * height / width
        h = Number(b, _chosen(em, k, highs))
        y, x = middle
        corners = [edge.value for edge in (x - w, y - h, x + w, y + h)]
        value = _chosen(em, index[2], corners)
        return b.cast(_cut(em, value) if attrs.clip else value, data.dtype)
        yield

    return TensorExpr(tensor_type(out).shape, data.dtype, at, 32)


class _Best:
    """The class and the probability of every anchor, in scratch."""

    def __init__(self, em: Emitter, probability: TensorExpr, attrs: Any) -> None:
        self.em, self.probability, self.attrs = em, probability, attrs
        self.dtype = wide(probability.dtype)
        batch, _, anchors = probability.shape
        self.labels = filled(TensorType((batch, anchors), INDEX), self._fill)
        self.scores: TensorExpr | None = None

    def _fill(self, buffer: int) -> Filling:
        em, b, attrs, probability = self.em, self.em.b, self.attrs, self.probability
        yield from em.cheap(probability)
        scores = em.new_scratch(self.labels.shape, self.dtype)
        first = 0 if attrs.keep_background else 1
        classes = dims.max_(dims.sub(probability.shape[1], first), 0)
        with em.loops(self.labels.shape, parallel=True) as index:
            label, score = em.local(INDEX, index), em.local(self.dtype, index)
            em.emit(SetLocal(label, b.i64(0)))
            em.emit(SetLocal(score, b.const(-1, self.dtype)))
            with em.loop(classes) as turn:
                k = b.add(turn, b.i64(first))
                found = yield probability, (index[0], k, index[1])
                found = b.cast(found, self.dtype)
                better = b.compare("gt", found, score)
                em.emit(SetLocal(label, b.select(better, k, label)))
                em.emit(SetLocal(score, b.select(better, found, score)))
            low = b.compare("lt", score, b.const(attrs.threshold, self.dtype))
            em.emit(Store(buffer, index, b.select(low, b.i64(0), label)))
            em.emit(Store(scores, index, score))
        self.scores = em.scratch[scores - em.first_scratch]
        self.scores.storage = scores


def _corners(em: Emitter, moved: TensorExpr, anchor: TensorExpr, attrs: Any, b_j: Index) -> Any:
    """The corners of anchor j as batch b moves it: a generator that returns four values."""
    b, (batch, j) = em.b, b_j
    dtype = wide(moved.dtype)
    deltas, edges = [], []
    for k in range(4):
        delta = yield moved, (batch, b.add(b.mul(j, b.i64(4)), b.i64(k)))
        edge = yield anchor, (b.i64(0), j, b.i64(k))
        scaled = b.mul(b.cast(delta, dtype), b.const(attrs.variances[k], dtype))
        deltas.append(Number(b, scaled))
        edges.append(Number(b, b.cast(edge, dtype)))
    low, high = [], []
    two = Number(b, b.const(2, dtype))
    for axis in (0, 1):
        size = edges[axis + 2] - edges[axis]
        middle = deltas[axis] * size + (edges[axis] + edges[axis + 2]) / two
        half = Number(b, b.unary("exp", deltas[axis + 2].value)) * size / two
        low.append((middle - half).value)
        high.append((middle + half).value)
    return [_cut(em, v) if attrs.clip else v for v in (*low, *high)]


def _transform(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    probability, moved, anchor = (single(arg) for arg in args)
    b, dtype = em.b, probability.dtype
    boxes, counts = out.fields
    best = _Best(em, probability, attrs)
    first = 0 if attrs.keep_background else 1

    def fill(buffer: int) -> Filling:
        for tensor in (best.labels, moved, anchor):
            yield from em.cheap(tensor)
        assert best.scores is not None
        with em.loop(boxes.shape[0], parallel=True) as batch:
            kept = em.local(INDEX, (batch,))
            em.emit(SetLocal(kept, b.i64(0)))
            with em.loop(boxes.shape[1]) as j:
                label = yield best.labels, (batch, j)
                body: list[Statement] = []
                with em.block(body):
                    score = yield best.scores, (batch, j)
                    corners = yield from _corners(em, moved, anchor, attrs, (batch, j))
                    shown = b.cast(b.sub(label, b.i64(first)), wide(dtype))
                    for k, value in enumerate((shown, score, *corners)):
                        em.emit(Store(buffer, (batch, kept, b.i64(k)), b.cast(value, dtype)))
                    em.emit(Accumulate(kept, "add", b.i64(1)))
                is_kept = b.compare("ge", label, b.i64(first))
                em.branches([is_kept], [body, []])
            rest = b.sub(em.dim(boxes.shape[1]), kept)
            with em.loops([rest, 6]) as (more, field):
                where = (batch, b.add(kept, more), field)
                em.emit(Store(buffer, where, b.const(-1, dtype)))

    def count(index: Index) -> Steps:
        yield from em.cheap(best.labels)

        def one(turn: Index) -> Steps:
            label = yield best.labels, (*index, *turn)
            return b.cast(b.compare("ge", label, b.i64(first)), INDEX)

        total = yield from em.accumulate("add", b.i64(0), index, [boxes.shape[1]], one)
        return b.cast(total, "int32")

    return filled(boxes, fill), TensorExpr(counts.shape, "int32", count, 1 << 20, costly=True)


register_compute("vision.multibox_prior", _prior)
register_compute("vision.multibox_transform_loc", _transform)
