"""transpose: the index permuted back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import Emitter, Index, Tensors, moved, register_compute, single


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    rank = data.rank
    axes = (
        tuple(reversed(range(rank))) if attrs.axes is None else tuple(a % rank for a in attrs.axes)
    )

    def where(index: Index) -> Index:
        found: list[Value] = [em.b.i64(0)] * rank
        for position, axis in enumerate(axes):
            found[axis] = index[position]
        return tuple(found)

    return moved(
        data,
        tensor_type(out).shape,
        where,
        forward=lambda index: tuple([index[axis] for axis in axes]),
        rows=axes[-2:] == (rank - 2, rank - 1),
    )


register_compute("transpose", _compute)
