"""concatenate: at an output of its own, one nest of loops a part (lower.py); elsewhere, branches.

A Select would read all parts, also outside their bounds, so the parts are guarded by If.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import axis_of, tensor_type
from nimblevm.kernels.loop_ir import SetLocal, Statement, Value
from nimblevm.kernels.tensor_expr import (
    RECOMPUTE_LIMIT,
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    several,
)


def joined(em: Emitter, parts: tuple[TensorExpr, ...], shape: Any, axis: int) -> TensorExpr:
    """Parts one after the other along `axis`."""

    def at(index: Index) -> Steps:
        if len(parts) == 1:
            return (yield parts[0], index)
        with em.hoisted(index):
            found = em.local(parts[0].dtype, index)
            place, conds, bodies = index[axis], list[Value](), list[list[Statement]]()
            for part in parts:
                body: list[Statement] = []
                with em.block(body):
                    value = yield part, (*index[:axis], place, *index[axis + 1 :])
                    em.emit(SetLocal(found, value))
                bodies.append(body)
                conds.append(em.b.compare("lt", place, em.dim(part.shape[axis])))
                place = em.b.sub(place, em.dim(part.shape[axis]))
            em.branches(conds[:-1], bodies)
        return found

    # Branches keep a loop that reads it from becoming vectors: a loop that reads it often stores it.
    cost = max((part.cost for part in parts), default=0) + RECOMPUTE_LIMIT + 1
    return TensorExpr(shape, parts[0].dtype, at, cost, pieces=(axis, parts))


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    parts = several(args[0])
    shape = tensor_type(out).shape
    return joined(em, parts, shape, axis_of(attrs.axis, len(shape)))


register_compute("concatenate", _compute)
