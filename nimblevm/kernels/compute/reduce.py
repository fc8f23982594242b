"""Reductions: rows of relay/op/reduce.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nimblevm import dtypes
from nimblevm.kernels.compute.common import (
    flat_position,
    greatest,
    least,
    reduced_axes,
    tensor_type,
    wide,
)
from nimblevm.kernels.loop_ir import SetLocal, Value
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
from nimblevm.relay.dims import Dim

# name -> (operation, start value of a dtype)
TABLE: dict[str, tuple[str, Callable[[str], bool | int | float]]] = {
    "sum": ("add", lambda dtype: 0),
    "prod": ("mul", lambda dtype: 1),
    "mean": ("add", lambda dtype: 0),
    "max": ("max", least),
    "min": ("min", greatest),
    "all": ("and", lambda dtype: True),
    "any": ("or", lambda dtype: False),
}
OF_BOOLS = {"max": "any", "min": "all"}


class Reduced:
    """Which axes are reduced, and how an index of the result and one of the reduced axes make one of data."""

    def __init__(self, em: Emitter, data: TensorExpr, attrs: Any) -> None:
        rank = data.rank
        self.axes = reduced_axes(attrs, rank)
        self.extents: tuple[Dim, ...] = tuple(data.shape[a] for a in self.axes)
        self._rank = rank
        self._keepdims = attrs.keepdims

    def index(self, index: Index, inner: Index) -> Index:
        outer = iter(index)
        reduced = iter(inner)
        found: list[Value] = []
        for axis in range(self._rank):
            if axis in self.axes:
                found.append(next(reduced))
                if self._keepdims:
                    next(outer)
            else:
                found.append(next(outer))
        return tuple(found)


def _mean(em: Emitter, total: Value, extents: Sequence[Dim]) -> Value:
    if dtypes.dtype(total.dtype).is_float:
        return em.b.binary("div", total, em.b.cast(em.size(extents), total.dtype))
    # In 64 bits: a count that does not fit the dtype would wrap, to 0 even.
    exact = "uint64" if total.dtype == "uint64" else "int64"
    return em.b.binary("div", em.b.cast(total, exact), em.b.cast(em.size(extents), exact))


def _compute(name: str) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        data = single(args[0])
        op, start = TABLE[OF_BOOLS.get(name, name) if data.dtype == "bool" else name]
        reduced = Reduced(em, data, attrs)
        dtype = wide(data.dtype)

        def at(index: Index) -> Steps:
            def term(inner: Index) -> Steps:
                value = yield data, reduced.index(index, inner)
                return em.b.cast(value, dtype)

            first = em.b.const(start(dtype), dtype)
            total = yield from em.accumulate(op, first, index, reduced.extents, term)
            if name == "mean":
                total = _mean(em, total, reduced.extents)
            return em.b.cast(total, data.dtype)

        return TensorExpr(tensor_type(out).shape, data.dtype, at, 1 << 20, costly=True)

    return compute


def _better(em: Emitter, value: Value, best: Value, greater: bool, last: bool) -> Value:
    """Whether `value` takes the place of `best`; a NaN does, as in numpy."""
    b = em.b
    better = b.compare(
        ("ge" if last else "gt") if greater else ("le" if last else "lt"), value, best
    )
    if not dtypes.dtype(value.dtype).is_float:
        return better
    nan = b.test("isnan", value)
    if not last:
        nan = b.binary("and", nan, b.unary("not", b.test("isnan", best)))
        return b.binary("or", better, nan)
    return b.binary("or", better, nan)


def _arg_compute(greater: bool) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        data = single(args[0])
        reduced = Reduced(em, data, attrs)

        def at(index: Index) -> Steps:
            b = em.b
            with em.hoisted(index):
                best, place = em.local(data.dtype, index), em.local("int64", index)
                start = least(data.dtype) if greater else greatest(data.dtype)
                em.emit(SetLocal(best, b.const(start, data.dtype)))
                em.emit(SetLocal(place, b.i64(0)))
                with em.loops(reduced.extents) as inner:
                    value = yield data, reduced.index(index, inner)
                    wins = em.local("bool", (*index, *inner))
                    better = _better(em, value, best, greater, attrs.select_last_index)
                    em.emit(SetLocal(wins, better))
                    flat = flat_position(em, reduced.extents, inner)
                    em.emit(SetLocal(place, b.select(wins, flat, place)))
                    em.emit(SetLocal(best, b.select(wins, value, best)))
            return b.cast(place, tensor_type(out).dtype)

        return TensorExpr(out.shape, out.dtype, at, 1 << 20, costly=True)

    return compute


for _name in TABLE:
    register_compute(_name, _compute(_name))
register_compute("argmax", _arg_compute(greater=True))
register_compute("argmin", _arg_compute(greater=False))
