"""reverse and reverse_sequence: the index counted from the other end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type
from nimblevm.kernels.expr import INDEX
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    moved,
    register_compute,
    single,
)


def _reverse(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    axis = axis_of(attrs.axis, data.rank)

    def where(index: Index) -> Index:
        last = em.b.sub(em.dim(data.shape[axis]), em.b.i64(1))
        return (*index[:axis], em.b.sub(last, index[axis]), *index[axis + 1 :])

    return moved(data, tensor_type(out).shape, where)


def _sequence(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, lengths = (single(arg) for arg in args)
    axis, batch = axis_of(attrs.seq_axis, data.rank), axis_of(attrs.batch_axis, data.rank)

    def at(index: Index) -> Steps:
        b = em.b
        found = yield lengths, (index[batch],)
        length = b.binary("min", b.cast(found, INDEX), em.dim(data.shape[axis]))
        mirrored = b.sub(b.sub(length, b.i64(1)), index[axis])
        place = b.select(b.compare("lt", index[axis], length), mirrored, index[axis])
        return (yield data, (*index[:axis], place, *index[axis + 1 :]))

    return TensorExpr(tensor_type(out).shape, data.dtype, at, data.cost + lengths.cost + 2)


register_compute("reverse", _reverse)
register_compute("reverse_sequence", _sequence)
