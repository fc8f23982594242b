"""Pools of a given size: a loop over each window, whose bounds depend on its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import least, tensor_type
from nimblevm.kernels.compute.pool import quotient, sum_dtype
from nimblevm.kernels.loop_ir import Accumulate, SetLocal, Value
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
from nimblevm.relay.op.adaptive_pool import TABLE, Row
from nimblevm.relay.op.windows import arranged


def _bounds(em: Emitter, at: Value, size: Value, out: Value) -> tuple[Value, Value]:
    """First element of the window at `at`, and how many it has."""
    b = em.b
    out = b.binary("max", out, b.i64(1))
    first = b.binary("floordiv", b.mul(at, size), out)
    up = b.add(b.mul(b.add(at, b.i64(1)), size), b.sub(out, b.i64(1)))
    return first, b.sub(b.binary("floordiv", up, out), first)


def _compute(row: Row) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        b = em.b
        data = single(args[0])
        dtype = tensor_type(out).dtype
        inner = sum_dtype(dtype) if row.mean else dtype
        layout, out_layout = attrs.layout, attrs.out_layout or attrs.layout
        of_data = dict(zip(layout, data.shape, strict=True))
        of_out = dict(zip(out_layout, out.shape, strict=True))

        def at(index: Index) -> Steps:
            yield from em.cheap(data)
            where = dict(zip(out_layout, index, strict=True))
            spans = [
                _bounds(em, where[c], em.dim(of_data[c]), em.dim(of_out[c])) for c in row.spatial
            ]
            with em.hoisted(index):
                total = em.local(inner, index)
                em.emit(SetLocal(total, b.const(0 if row.mean else least(dtype), inner)))
                with em.loops([count for _, count in spans]) as turn:
                    place = (b.add(first, t) for (first, _), t in zip(spans, turn, strict=True))
                    here = {**where, **dict(zip(row.spatial, place, strict=True))}
                    value = yield data, arranged(layout, here)
                    em.emit(Accumulate(total, "add" if row.mean else "max", b.cast(value, inner)))
            if not row.mean:
                return total
            count = b.i64(1)
            for _, size in spans:
                count = b.mul(count, size)
            return quotient(em, total, b.binary("max", count, b.i64(1)), dtype)

        return TensorExpr(out.shape, dtype, at, 1 << 20, costly=True)

    return compute


for _row in TABLE:
    register_compute(_row.name, _compute(_row))
