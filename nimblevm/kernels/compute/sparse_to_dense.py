"""sparse_to_dense: the default everywhere, then one guarded write after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.cast import convert
from nimblevm.kernels.compute.common import all_of, tensor_type, within
from nimblevm.kernels.compute.scatter import filled
from nimblevm.kernels.expr import INDEX
from nimblevm.kernels.loop_ir import Statement, Store, Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Filling,
    Tensors,
    register_compute,
    single,
)


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    indices, values, default = (single(arg) for arg in args)
    type_ = tensor_type(out)

    def fill(buffer: int) -> Filling:
        b = em.b
        with em.loops(type_.shape, parallel=True) as index:
            value = yield default, ()
            em.emit(Store(buffer, index, convert(em, value, type_.dtype)))
        with em.loops(indices.shape[:1]) as row:
            places: list[Value] = []
            for axis in range(len(type_.shape)):
                where = (*row, b.i64(axis)) if indices.rank == 2 else row
                place = yield indices, where
                places.append(b.cast(place, INDEX))
            value = yield values, row[: values.rank]
            body: list[Statement] = [Store(buffer, tuple(places), value)]
            inside = [
                c for place, size in zip(places, type_.shape, strict=True)
                for c in within(em, place, em.dim(size))
            ]  # fmt: skip
            if inside:
                em.branches([all_of(em, inside)], [body, []])
            else:  # rows of no numbers: all name the one element
                em.emit(body[0])

    return filled(type_, fill)


register_compute("sparse_to_dense", _compute)
