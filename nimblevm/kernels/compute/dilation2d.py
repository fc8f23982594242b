"""image.dilation2d: padded data, then the greatest sum of each window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import scalar, tensor_type, wide
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    find_compute,
    register_compute,
    single,
)
from nimblevm.relay import dims
from nimblevm.relay.op.dilation2d import windows
from nimblevm.relay.op.pad import PadAttrs
from nimblevm.relay.op.windows import arranged
from nimblevm.relay.types import TensorType


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, weight = (single(arg) for arg in args)
    b, dtype, type_ = em.b, wide(data.dtype), tensor_type(out)
    sizes = dict(zip(attrs.data_layout, data.shape, strict=True))
    kernel = dict(zip(attrs.kernel_layout, weight.shape, strict=True))
    found = windows(attrs, (sizes["H"], sizes["W"]), (kernel["H"], kernel["W"]))
    pads = {"N": (0, 0), "C": (0, 0)}
    pads |= {c: (w.before, w.after) for c, w in zip("HW", found, strict=True)}
    shape = [dims.add(sizes[c], sum(pads[c])) for c in attrs.data_layout]
    pad = find_compute("nn.pad")
    assert pad is not None
    width = PadAttrs(arranged(attrs.data_layout, pads))
    zero = scalar(b.const(0, data.dtype))
    padded = single(pad(em, (data, zero), width, TensorType(shape, data.dtype)))

    def at(index: Index) -> Steps:
        yield from em.cheap(padded)
        yield from em.cheap(weight)
        where = dict(zip(attrs.data_layout, index, strict=True))

        def term(turn: Index) -> Steps:
            places, offsets = dict(where), {"I": where["C"]}
            for c, k, w in zip("HW", turn, found, strict=True):
                offsets[c] = k
                reach = b.mul(k, b.i64(w.dilation))
                places[c] = b.add(b.mul(where[c], b.i64(w.stride)), reach)
            value = yield padded, arranged(attrs.data_layout, places)
            more = yield weight, arranged(attrs.kernel_layout, offsets)
            return b.add(b.cast(value, dtype), b.cast(more, dtype))

        extents = [w.kernel for w in found]
        lowest = b.const(float("-inf"), dtype)
        value = yield from em.accumulate("max", lowest, index, extents, term)
        return b.cast(value, type_.dtype)

    return TensorExpr(type_.shape, type_.dtype, at, 1 << 20, costly=True)


register_compute("image.dilation2d", _compute)
