"""expand_dims: the new axes' indices are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type
from nimblevm.kernels.tensor_expr import Emitter, Tensors, moved, register_compute, single


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    axis = axis_of(attrs.axis, data.rank + 1)
    end = axis + attrs.num_newaxis
    new = (em.b.i64(0),) * attrs.num_newaxis
    return moved(
        data,
        tensor_type(out).shape,
        lambda index: (*index[:axis], *index[end:]),
        forward=lambda index: (*index[:axis], *new, *index[axis:]),
        rows=axis <= data.rank - 2,
    )


register_compute("expand_dims", _compute)
