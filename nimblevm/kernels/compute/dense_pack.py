"""nn.contrib_dense_pack: a dot product an element; schedule/panels.py makes register tiles of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import known, tensor_type
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
from nimblevm.relay.op.dense_pack import LANES, PAIRED, WIDTHS, block_panels


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, weight = (single(arg) for arg in args)
    dtype = tensor_type(out).dtype
    depth = known(data.shape[-1], weight.shape[1])

    def at(index: Index) -> Steps:
        yield from em.cheap(data)
        panel, *lanes = _place(em, attrs, index[-1])

        def term(inner: Index) -> Steps:
            x = yield data, (*index[:-1], *inner)
            w = yield weight, (panel, *inner, *lanes)
            return em.b.mul(x, _widened(em, w, dtype))

        return (yield from em.accumulate("add", em.b.const(0, dtype), index, (depth,), term))

    return TensorExpr(out.shape, dtype, at, 1 << 20, costly=True)


def _place(em: Emitter, attrs: Any, column: Value) -> tuple[Value, ...]:
    """The panel that a column lies in, and where; schedule/panels.py knows these forms."""
    lanes = em.b.i64(WIDTHS[attrs.weight_layout])
    if attrs.weight_layout == PAIRED:
        return em.b.binary("floordiv", column, lanes), *_in_pairs(em, column)
    if attrs.piece is None:
        return em.b.binary("floordiv", column, lanes), em.b.binary("floormod", column, lanes)
    number, pieces, size = attrs.piece
    block = em.b.binary("floordiv", column, em.b.i64(size))
    inside = em.b.binary("floormod", column, em.b.i64(size))
    inside = em.b.binary("add", inside, em.b.i64(number * size))
    first = em.b.binary("mul", block, em.b.i64(block_panels(pieces, size)))
    panel = em.b.binary("add", first, em.b.binary("floordiv", inside, lanes))
    return panel, em.b.binary("floormod", inside, lanes)


def _in_pairs(em: Emitter, column: Value) -> tuple[Value, ...]:
    """The block of 32 columns, the lane, and which one of the lane's pair."""

    def bit(of: int) -> Value:
        number = em.b.binary("floordiv", column, em.b.i64(of))
        return em.b.binary("floormod", number, em.b.i64(2))

    return bit(2 * LANES), em.b.binary("floormod", column, em.b.i64(LANES)), bit(LANES)


def _widened(em: Emitter, w: Value, dtype: str) -> Value:
    """An element of the weight; uint16 are the bits of a bfloat16."""
    if w.dtype == "uint16":
        shifted = em.b.binary("shl", em.b.cast(w, "int32"), em.b.const(16, "int32"))
        return em.b.bits(shifted, dtype)
    return em.b.cast(w, dtype)


register_compute("nn.contrib_dense_pack", _compute)
