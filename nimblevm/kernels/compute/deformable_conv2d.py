"""nn.deformable_conv2d: what the moved places read, as the image of a convolution without overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import tensor_type, wide
from nimblevm.kernels.compute.resize import Axis, Number, weighted_inside
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
from nimblevm.relay.op.deformable_conv2d import kernel_of, plain, windows
from nimblevm.relay.op.resize import Sampling
from nimblevm.relay.op.windows import arranged


def _compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, offset, weight = (single(arg) for arg in args)
    b, dtype, layout = em.b, wide(data.dtype), attrs.data_layout
    kernel = kernel_of(attrs, weight.shape)
    found = windows(attrs, data.shape, kernel)
    sizes = dict(zip(layout, data.shape, strict=True))
    of_out = dict(zip(attrs.out_layout or layout, tensor_type(out).shape, strict=True))
    each = dims.floordiv(sizes["C"], attrs.deformable_groups)
    spec = Sampling("HW", layout, "linear", "align_corners")
    axes = [Axis(em, spec, n, (sizes[c], sizes[c]), dtype) for n, c in enumerate("HW")]
    image = (
        sizes["N"],
        sizes["C"],
        *(dims.mul(of_out[c], k) for c, k in zip("HW", kernel, strict=True)),
    )

    def at(index: Index) -> Steps:
        yield from em.cheap(data)
        yield from em.cheap(offset)
        n, channel, *turns = index
        places, inner = [], []
        for turn, size in zip(turns, kernel, strict=True):
            places.append(b.binary("floordiv", turn, em.dim(size)))
            inner.append(b.binary("floormod", turn, em.dim(size)))
        # Channels are none where the groups are empty; max tells the code generator so.
        shared = b.binary("max", em.dim(each), b.i64(1))
        position = b.binary("floordiv", channel, shared)
        for part, size in zip(inner, kernel, strict=True):
            position = b.add(b.mul(position, em.dim(size)), part)
        points, inside = [], b.const(value=True, dtype="bool")
        for k, (axis, letter, w) in enumerate(zip(axes, "HW", found, strict=True)):
            field = b.add(b.mul(position, b.i64(2)), b.i64(k))
            where = {"N": n, "C": field, "H": places[0], "W": places[1]}
            moved = yield offset, arranged(layout, where)
            start = b.add(b.mul(places[k], b.i64(w.stride)), b.mul(inner[k], b.i64(w.dilation)))
            first = axis.float_of(b.sub(start, b.i64(w.before)))
            x = Number(b, b.cast(moved, dtype)) + first
            low = b.compare("lt", x.value, axis.const(0).value)
            high = b.compare("ge", x.value, axis.float_of(axis.size).value)
            inside = b.binary("and", inside, b.unary("not", b.binary("or", low, high)))
            points.append((letter, axis, axis.points(x)))
        lead = {"N": n, "C": channel}
        value = yield from weighted_inside(em, data, layout, dtype, lead, points)
        return b.cast(b.select(inside, value, b.const(0, dtype)), data.dtype)

    sampled = TensorExpr(image, data.dtype, at, 64)
    conv2d = find_compute("nn.conv2d")
    assert conv2d is not None
    other = plain(
        attrs, strides=kernel, padding=(0, 0), dilation=(1, 1), data_layout="NCHW",
        out_layout=attrs.out_layout or layout,
    )  # fmt: skip
    return conv2d(em, (sampled, weight), other, out)


register_compute("nn.deformable_conv2d", _compute)
