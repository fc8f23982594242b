"""nn.batch_norm, nn.instance_norm, nn.group_norm, nn.l2_normalize: statistics of rows, then the scaled element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type, wide
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
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim


@dataclass(frozen=True, slots=True)
class Rows:
    """A partition of data's elements.

    shape, extents  one row for each index of `shape`, its elements numbered by `extents`
    element         (row, inner index) -> index into data
    row             index into data -> row
    several         several positions on one axis belong to a row: the loop over them would compute it anew each time
    """

    shape: tuple[Dim, ...]
    extents: tuple[Dim, ...]
    element: Callable[[Index, Index], Index]
    row: Callable[[Index], Index]
    several: bool = False


def _over(shape: Sequence[Dim], axes: Sequence[int]) -> Rows:
    """Rows along `axes`."""
    kept = [a for a in range(len(shape)) if a not in axes]

    def element(row: Index, inner: Index) -> Index:
        found = dict(zip(kept, row, strict=True)) | dict(zip(axes, inner, strict=True))
        return tuple(found[a] for a in range(len(shape)))

    def row(index: Index) -> Index:
        return tuple(index[a] for a in kept)

    return Rows(tuple(shape[a] for a in kept), tuple(shape[a] for a in axes), element, row)


def _groups(em: Emitter, shape: tuple[Dim, ...], axis: int, groups: int) -> Rows:
    """Rows along a part of `axis` and what is behind it."""
    part = dims.floordiv(shape[axis], groups)

    def element(row: Index, inner: Index) -> Index:
        place = em.b.add(em.b.mul(row[axis], em.dim(part)), inner[0])
        return (*row[:axis], place, *inner[1:])

    def row(index: Index) -> Index:
        # A part is empty only where no element exists; max tells the code generator so.
        size = em.dim(part)
        if not isinstance(part, int) or part == 0:
            size = em.b.binary("max", size, em.b.i64(1))
        return (*index[:axis], em.b.binary("floordiv", index[axis], size))

    return Rows((*shape[:axis], groups), (part, *shape[axis + 1 :]), element, row, several=True)


def _sum(
    em: Emitter, data: TensorExpr, rows: Rows, term: Callable[[Index, Value], Steps]
) -> Callable[[Index], Steps]:
    """row -> the sum of term(row, element) over the row, in the wide dtype."""
    dtype = wide(data.dtype)

    def total_at(row: Index) -> Steps:
        def one(inner: Index) -> Steps:
            value = yield data, rows.element(row, inner)
            return (yield from term(row, em.b.cast(value, dtype)))

        return em.accumulate("add", em.b.const(0.0, dtype), row, rows.extents, one)

    return total_at


def _moments(em: Emitter, data: TensorExpr, rows: Rows) -> tuple[TensorExpr, TensorExpr]:
    """Mean and variance of each row."""
    b, dtype = em.b, wide(data.dtype)

    def plain(row: Index, value: Value) -> Steps:
        return value
        yield

    def square(row: Index, value: Value) -> Steps:
        middle = yield mean, row
        centred = b.sub(value, middle)
        return b.mul(centred, centred)

    def averaged(total_at: Callable[[Index], Steps]) -> Callable[[Index], Steps]:
        def at(row: Index) -> Steps:
            total = yield from total_at(row)
            return b.binary("div", total, b.cast(em.size(rows.extents), dtype))

        return at

    mean_at, variance_at = (averaged(_sum(em, data, rows, term)) for term in (plain, square))
    mean, variance = (
        TensorExpr(rows.shape, dtype, at, 1 << 20, costly=True, stored=rows.several)
        for at in (mean_at, variance_at)
    )
    return mean, variance


def _scaled(
    em: Emitter,
    operands: Sequence[TensorExpr],
    attrs: Any,
    index: Index,
    moments: tuple[Value, Value],
) -> Steps:
    """The element of the result: (data - mean) / sqrt(variance + epsilon) * gamma + beta."""
    b = em.b
    data, gamma, beta = operands
    dtype, channel = wide(data.dtype), (index[axis_of(attrs.axis, data.rank)],)
    middle, spread = (b.cast(m, dtype) for m in moments)
    value = yield data, index
    deviation = b.unary("sqrt", b.add(spread, b.const(attrs.epsilon, dtype)))
    found = b.binary("div", b.sub(b.cast(value, dtype), middle), deviation)
    if attrs.scale:
        factor = yield gamma, channel
        found = b.mul(found, b.cast(factor, dtype))
    if attrs.center:
        shift = yield beta, channel
        found = b.add(found, b.cast(shift, dtype))
    return b.cast(found, data.dtype)


def _batch(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, gamma, beta, mean, variance = (single(arg) for arg in args)
    axis = axis_of(attrs.axis, data.rank)

    def at(index: Index) -> Steps:
        middle = yield mean, (index[axis],)
        spread = yield variance, (index[axis],)
        return (yield from _scaled(em, (data, gamma, beta), attrs, index, (middle, spread)))

    result = TensorExpr(
        tensor_type(out.fields[0]).shape, data.dtype, at, data.cost + 10, same=(data,)
    )
    return result, mean, variance


def _normalized(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any, rows: Rows) -> Tensors:
    operands = tuple(single(arg) for arg in args)
    data = operands[0]
    mean, variance = _moments(em, data, rows)

    def at(index: Index) -> Steps:
        yield from em.cheap(data)
        row = rows.row(index)
        middle = yield mean, row
        spread = yield variance, row
        return (yield from _scaled(em, operands, attrs, index, (middle, spread)))

    return TensorExpr(tensor_type(out).shape, data.dtype, at, 1 << 20, costly=True)


def _instance(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    shape = tensor_type(out).shape
    axis = axis_of(attrs.axis, len(shape))
    rows = _over(shape, [a for a in range(len(shape)) if a not in (0, axis)])
    return _normalized(em, args, attrs, out, rows)


def _group(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    shape = tensor_type(out).shape
    axis = axis_of(attrs.axis, len(shape))
    return _normalized(em, args, attrs, out, _groups(em, shape, axis, attrs.num_groups))


def _l2_normalize(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    b, dtype, rank = em.b, wide(data.dtype), data.rank
    rows = _over(data.shape, sorted({a % rank for a in attrs.axis or range(rank)}))

    def square(row: Index, value: Value) -> Steps:
        return b.mul(value, value)
        yield

    total = TensorExpr(rows.shape, dtype, _sum(em, data, rows, square), 1 << 20, costly=True)

    def at(index: Index) -> Steps:
        yield from em.cheap(data)
        found = yield total, rows.row(index)
        value = yield data, index
        length = b.unary("sqrt", b.binary("max", found, b.const(attrs.eps, dtype)))
        return b.cast(b.binary("div", b.cast(value, dtype), length), data.dtype)

    return TensorExpr(tensor_type(out).shape, data.dtype, at, 1 << 20, costly=True)


register_compute("nn.batch_norm", _batch)
register_compute("nn.instance_norm", _instance)
register_compute("nn.group_norm", _group)
register_compute("nn.l2_normalize", _l2_normalize)
