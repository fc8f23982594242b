"""nn.conv2d_backward_weight: padded data, then a sum over images and places for each element of the weight."""

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
from nimblevm.relay.op.conv_backward_weight import windows
from nimblevm.relay.op.pad import PadAttrs
from nimblevm.relay.op.windows import arranged
from nimblevm.relay.types import TensorType


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    b, type_ = em.b, tensor_type(out)
    grad, data = (single(arg) for arg in args)
    dtype = wide(type_.dtype)
    sizes = dict(zip(attrs.kernel_layout, data.shape, strict=True))
    of_grad = dict(zip(attrs.data_layout, grad.shape, strict=True))
    found = windows(attrs, (sizes["H"], sizes["W"]))
    pads = dict(zip("HW", ((w.before, w.after) for w in found), strict=True))
    width = tuple([pads.get(letter, (0, 0)) for letter in attrs.kernel_layout])
    if any(map(any, width)):
        pad = find_compute("nn.pad")
        assert pad is not None
        shape = [dims.add(size, sum(pair)) for size, pair in zip(data.shape, width, strict=True)]
        zero = scalar(b.const(0, data.dtype))
        data = single(pad(em, (data, zero), PadAttrs(width), TensorType(shape, data.dtype)))
    share = dims.floordiv(of_grad["C"], attrs.groups)
    each = dims.floordiv(sizes["C"], attrs.groups)

    def at(index: Index) -> Steps:
        yield from em.cheap(grad)
        yield from em.cheap(data)
        where = dict(zip(attrs.out_layout, index, strict=True))
        channel = where["I"]
        if attrs.groups != 1:
            # Of no channels there is no element; max tells the code generator so.
            group = b.binary("floordiv", where["O"], b.binary("max", em.dim(share), b.i64(1)))
            channel = b.add(b.mul(group, em.dim(each)), channel)

        def term(turn: Index) -> Steps:
            n, *place = turn
            reads = {"N": n, "C": channel}
            for letter, at_, w in zip("HW", place, found, strict=True):
                inner = b.mul(where[letter], b.i64(w.dilation))
                reads[letter] = b.add(b.mul(at_, b.i64(w.stride)), inner)
            given = {"N": n, "C": where["O"], "H": place[0], "W": place[1]}
            one = yield grad, arranged(attrs.data_layout, given)
            other = yield data, arranged(attrs.kernel_layout, reads)
            return b.mul(b.cast(one, dtype), b.cast(other, dtype))

        extents = (of_grad["N"], of_grad["H"], of_grad["W"])
        total = yield from em.accumulate("add", b.const(0, dtype), index, extents, term)
        return b.cast(total, type_.dtype)

    return TensorExpr(type_.shape, type_.dtype, at, 1 << 20, costly=True)


register_compute("nn.conv2d_backward_weight", _compute)
