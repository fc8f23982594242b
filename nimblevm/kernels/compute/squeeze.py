"""squeeze: index 0 on the removed axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type
from nimblevm.kernels.tensor_expr import Emitter, Index, Tensors, moved, register_compute, single


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    if attrs.axis is None:
        removed = {a for a, d in enumerate(data.shape) if isinstance(d, int) and d == 1}
    else:
        removed = {a % data.rank for a in attrs.axis}

    def where(index: Index) -> Index:
        kept = iter(index)
        return tuple(em.b.i64(0) if a in removed else next(kept) for a in range(data.rank))

    kept = [a for a in range(data.rank) if a not in removed]
    return moved(
        data,
        tensor_type(out).shape,
        where,
        forward=lambda index: tuple([index[a] for a in kept]),
        rows=data.rank >= 2 and kept[-2:] == [data.rank - 2, data.rank - 1],
    )


register_compute("squeeze", _compute)
