"""broadcast_to_like, slice_like, reshape_like, full_like, collapse_sum_*: the result's type has the shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.cast import convert
from nimblevm.kernels.compute.common import tensor_type, wide
from nimblevm.kernels.loop_ir import Accumulate, SetLocal, Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    elementwise,
    find_compute,
    moved,
    register_compute,
    single,
)
from nimblevm.relay.dims import Dim


def _broadcast(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    return elementwise(em, [single(args[0])], tensor_type(out), lambda x: x, 0)


def _slice(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    return moved(single(args[0]), tensor_type(out).shape, lambda index: index)


def _reshape(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    reshape = find_compute("reshape")
    assert reshape is not None
    return reshape(em, args[:1], attrs, out)


def _full(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    value = single(args[1])
    type_ = tensor_type(out)

    def at(index: Index) -> Steps:
        found = yield value, ()
        return convert(em, found, type_.dtype)

    return TensorExpr(type_.shape, type_.dtype, at, value.cost)


def _collapse(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    type_ = tensor_type(out)
    first = data.rank - len(type_.shape)
    dtype = wide(data.dtype)

    def turns(size: Dim, target: Dim) -> Value:
        """How many elements one of the result sums up along an axis."""
        if target is size or (isinstance(target, int) and target != 1):
            return em.b.i64(1)
        one = em.b.compare("eq", em.dim(target), em.b.i64(1))
        return em.b.select(one, em.dim(size), em.b.i64(1))

    targets = (*(1,) * first, *type_.shape)

    def at(index: Index) -> Steps:
        b = em.b
        outer = (*(b.i64(0),) * first, *index)
        extents = [turns(s, t) for s, t in zip(data.shape, targets, strict=True)]
        with em.hoisted(index):
            total = em.local(dtype, index)
            em.emit(SetLocal(total, b.const(0, dtype)))
            with em.loops(extents) as inner:
                # Where an axis is summed the outer index is 0, else the inner one is.
                where = tuple(b.add(i, k) for i, k in zip(outer, inner, strict=True))
                found = yield data, where
                em.emit(Accumulate(total, "add", b.cast(found, dtype)))
        return b.cast(total, data.dtype)

    return TensorExpr(type_.shape, data.dtype, at, 1 << 20, costly=True)


register_compute("broadcast_to_like", _broadcast)
register_compute("slice_like", _slice)
register_compute("reshape_like", _reshape)
register_compute("full_like", _full)
register_compute("collapse_sum_like", _collapse)
register_compute("collapse_sum_to", _collapse)
