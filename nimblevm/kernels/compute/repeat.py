"""repeat: the index divided by the repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type
from nimblevm.kernels.tensor_expr import Emitter, Index, Tensors, moved, register_compute, single


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    axis = axis_of(attrs.axis, data.rank)

    def where(index: Index) -> Index:
        place = em.b.binary("floordiv", index[axis], em.b.i64(attrs.repeats))
        return (*index[:axis], place, *index[axis + 1 :])

    return moved(data, tensor_type(out).shape, where)


register_compute("repeat", _compute)
