"""strided_set: at each element, whether the slice has it, and then the element of v."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.compute.gather import operand_of
from nimblevm.kernels.expr import INDEX
from nimblevm.kernels.loop_ir import SetLocal, Statement, Value
from nimblevm.kernels.tensor_expr import (
    RECOMPUTE_LIMIT,
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)


def bound(em: Emitter, given: Value, size: Value, forward: Value) -> Value:
    """A begin or end as Python reads it: from the end if negative, then clamped to where slices may begin and end."""
    b = em.b
    wide = b.cast(given, INDEX)
    # Clamped before the size is added: no sum overflows.
    low = b.binary("max", wide, b.sub(b.i64(-1), size))
    place = b.select(b.compare("lt", low, b.i64(0)), b.add(low, size), low)
    least = b.select(forward, b.i64(0), b.i64(-1))
    most = b.select(forward, size, b.sub(size, b.i64(1)))
    return b.binary("min", b.binary("max", place, least), most)


class _Axis:
    """One axis of the slice: whether index i belongs to it, and at which place."""

    def __init__(self, em: Emitter, i: Value, size: Value, given: tuple[Value, ...]) -> None:
        b = em.b
        begin, end, stride = given[0], given[1], b.cast(given[2], INDEX)
        forward = b.compare("gt", stride, b.i64(0))
        first, last = bound(em, begin, size, forward), bound(em, end, size, forward)
        offset = b.sub(i, first)
        met = b.compare("eq", b.binary("floormod", offset, stride), b.i64(0))
        above = b.binary("and", b.compare("ge", i, first), b.compare("lt", i, last))
        below = b.binary("and", b.compare("le", i, first), b.compare("gt", i, last))
        self.inside = b.binary("and", met, b.select(forward, above, below))
        self.place = b.binary("floordiv", offset, stride)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, v, begin, end, strides = (single(arg) for arg in args)
    named, with_stride = begin.shape[0], strides.shape[0]
    assert isinstance(named, int)
    assert isinstance(with_stride, int)

    def at(index: Index) -> Steps:
        b = em.b
        value = yield data, index
        inside: Value | None = None
        place = list(index)
        for axis in range(named):
            given = []
            for source in (begin, end, strides):
                if source is strides and axis >= with_stride:
                    given.append(b.i64(1))
                else:
                    given.append((yield source, (b.i64(axis),)))
            found = _Axis(em, index[axis], em.dim(data.shape[axis]), tuple(given))
            inside = found.inside if inside is None else b.binary("and", inside, found.inside)
            place[axis] = found.place
        with em.hoisted(index):
            result = em.local(data.dtype, index)
            em.emit(SetLocal(result, value))
            body: list[Statement] = []
            with em.block(body):
                operand = operand_of(v, data)
                where = tuple(
                    b.check_index(p, em.dim(size), operand)
                    for p, size in zip(place, v.shape, strict=True)
                )
                element = yield v, where
                em.emit(SetLocal(result, element))
            em.branches([inside or b.const(value=True, dtype="bool")], [body, []])
        return result

    return TensorExpr(tensor_type(out).shape, data.dtype, at, data.cost + RECOMPUTE_LIMIT + 1)


register_compute("strided_set", _compute)
