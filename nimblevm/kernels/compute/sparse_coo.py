"""sparse_reshape: the flat position, taken apart again; sparse_fill_empty_rows: a C kernel, whose sizes the pass
shape_functions finds.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from nimblevm.kernels.c_rules import CCall, register_c_call
from nimblevm.kernels.compute.sort import operand, results
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
from nimblevm.relay.ir import Call


def _chosen(em: Emitter, which: Value, values: Sequence[Value]) -> Value:
    """values[which], of one at least."""
    b, found = em.b, values[0]
    for place, value in enumerate(values[1:], 1):
        found = b.select(b.compare("eq", which, b.i64(place)), value, found)
    return found


def _reshape(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    b = em.b
    indices, before, after = (single(arg) for arg in args)
    places, shape = out.fields
    dtype = shape.dtype
    axes, count = before.shape[0], after.shape[0]
    assert isinstance(axes, int)
    assert isinstance(count, int)

    def size_at(index: Index) -> Steps:
        given = yield after, index
        open_, total, known = b.compare("eq", given, b.const(-1, dtype)), *[b.const(1, dtype)] * 2
        for axis in range(axes):
            size = yield before, (b.i64(axis),)
            total = b.mul(total, size)
        for axis in range(count):
            size = yield after, (b.i64(axis),)
            other = b.compare("eq", size, b.const(-1, dtype))
            known = b.mul(known, b.select(other, b.const(1, dtype), size))
        # Only where a size is open may what it is divided by not be 0.
        divisor = b.select(open_, known, b.const(1, dtype))
        return b.select(open_, b.binary("div", total, divisor), given)

    made = TensorExpr(shape.shape, dtype, size_at, 1 << 20, costly=True)

    def sizes() -> Generator[Any, Value, list[Value]]:
        found = []
        for axis in range(count):
            size = yield made, (b.i64(axis),)
            found.append(size)
        return found

    def at(index: Index) -> Steps:
        rest: Value = b.const(0, dtype)
        for axis in range(axes):
            size = yield before, (b.i64(axis),)
            place = yield indices, (index[0], b.i64(axis))
            rest = b.add(b.mul(rest, size), place)
        found = yield from sizes()
        parts = []
        for size in reversed(found[1:]):
            parts.append(b.binary("floormod", rest, size))
            rest = b.binary("floordiv", rest, size)
        return _chosen(em, index[1], [rest, *reversed(parts)])

    return TensorExpr(places.shape, dtype, at, 1 << 20), made


def _fill(call: Call) -> CCall:
    indices, values = operand(call, 0), operand(call, 1)
    (count, axes), _, (rows,) = (t.shape for t in results(call))
    wide = "64" if indices.dtype == "int64" else ""
    shapes = (indices.shape, values.shape, (axes,), (1,), (count, axes), (count,), (rows,))
    sizes = (values.shape[0], axes, count, rows)
    return CCall(f"fill_empty_rows{wide}_{values.dtype}", sizes, (), shapes)


register_compute("sparse_reshape", _reshape)
register_c_call("sparse_fill_empty_rows", _fill, only=True)
