"""nn.conv2d_backward_weight(grad, data): how a convolution's weight is to change for its result to change by grad.

    out[o, i, r, s] = sum over n, y, x of grad[n, o, y, x]
                          * data[n, g * I + i, y * stride - before + r * dilation, x * stride - before + s * dilation]

grad: (N, O, Y, X), as nn.conv2d gives it of data (N, groups * I, H, W) and a weight of kernel_size; g is o's group.
Floats of one dtype; result (O, I, R, S) in `out_dtype`, or their dtype if that is empty. Elements outside of data count
as 0. float16 is accumulated in float32. Attrs: strides, padding, dilation, groups and channels (O, checked if given) as
nn.conv2d has them, kernel_size (R, S), which must be given, and three layouts by TVM's names: data_layout is grad's,
kernel_layout data's and out_layout the result's. The Python function has grad_layout, data_layout and kernel_layout.
Source: Relay's nn.conv2d_backward_weight. Differs from numpy: there is no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    as_wide,
    dtype_name,
    require_same,
    rounded,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.conv import require_multiple
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import (
    Window,
    arranged,
    check_rank,
    layout_of,
    numbers,
    padding_of,
    padding_pairs,
    per_axis,
    require_fits,
    to_order,
)
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class BackwardWeightAttrs(Attrs):
    """See the module's docstring."""

    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCHW"
    kernel_layout: str = "NCHW"
    out_layout: str = "OIHW"
    out_dtype: str = ""


def windows(attrs: BackwardWeightAttrs, sizes: tuple[Dim, ...]) -> list[Window]:
    """The windows of data's H and W that grad is of, of attributes that are right."""
    assert attrs.kernel_size is not None
    lists = [per_axis(v, 2) for v in (attrs.kernel_size, attrs.strides, attrs.dilation)]
    pairs = padding_pairs(attrs.padding, 2)
    return [
        Window(size, k, s, d, *pads)
        for size, k, s, d, pads in zip(sizes, *lists, pairs, strict=True)
    ]


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: BackwardWeightAttrs) -> Type:
    grad, data = (tensor_of(ctx, arg_types, index, FLOATS) for index in range(2))
    same_dtype(ctx, grad, data, 1)
    layouts = [
        layout_of(ctx, name, getattr(attrs, name), letters)
        for name, letters in (
            ("data_layout", "NCHW"),
            ("kernel_layout", "NCHW"),
            ("out_layout", "OIHW"),
        )
    ]
    for name in ("strides", "dilation"):
        numbers(ctx, name, getattr(attrs, name), 2, 1)
    numbers(ctx, "groups", attrs.groups, 1, 1)
    padding_of(ctx, attrs.padding, 2)
    if attrs.kernel_size is None:
        raise ctx.fail("kernel_size must be given: grad and data may be those of several kernels")
    kernel = numbers(ctx, "kernel_size", attrs.kernel_size, 2, 1)
    if attrs.out_dtype not in ("", *FLOATS):
        raise ctx.fail(f"out_dtype must be a float, not {attrs.out_dtype!r}")
    places: list[dict[str, tuple[int, Dim]]] = []
    for index, (found, layout) in enumerate(zip((grad, data), layouts, strict=False)):
        check_rank(ctx, found, layout, index)
        places.append({c: (axis, found.shape[axis]) for axis, c in enumerate(layout)})
    of_grad, of_data = places
    require_same(ctx, (0, *of_grad["N"]), (1, *of_data["N"]))
    for letter, window in zip(
        "HW", windows(attrs, (of_data["H"][1], of_data["W"][1])), strict=True
    ):
        require_fits(ctx, 1, of_data[letter][0], window)
        ctx.require_dim(0, of_grad[letter][0], window.out)
    out = of_grad["C"][1]
    if attrs.channels is not None:
        out = ctx.require_dim(0, of_grad["C"][0], attrs.channels)
    require_multiple(ctx, 0, of_grad["C"][0], out, attrs.groups)
    each = require_multiple(ctx, 1, *of_data["C"], attrs.groups)
    sizes = {"O": out, "I": each, "H": kernel[0], "W": kernel[1]}
    return TensorType(arranged(layouts[2], sizes), attrs.out_dtype or data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: BackwardWeightAttrs, result: Type) -> Array:
    grad = as_wide(to_order(inputs[0], attrs.data_layout, "NCHW"))
    data = as_wide(to_order(inputs[1], attrs.kernel_layout, "NCHW"))
    found = windows(attrs, data.shape[2:])
    padded = np.pad(data, ((0, 0), (0, 0), *((w.before, w.after) for w in found)))
    grads = np.split(grad, attrs.groups, 1)
    parts = np.split(padded, attrs.groups, 1)
    kernel = tuple(int(w.kernel) for w in found)  # type: ignore[arg-type]
    out = np.zeros((grad.shape[1], parts[0].shape[1], *kernel))
    with np.errstate(all="ignore"):
        for r, s in np.ndindex(*kernel):
            cut = [
                slice(k * w.dilation, k * w.dilation + (size - 1) * w.stride + 1, w.stride)
                for k, w, size in zip((r, s), found, grad.shape[2:], strict=True)
            ]
            sums = [
                np.einsum("noyx,niyx->oi", g, part[:, :, cut[0], cut[1]])
                for g, part in zip(grads, parts, strict=True)
            ]
            out[:, :, r, s] = np.concatenate(sums)
    dtype = attrs.out_dtype or dtype_name(inputs[1])
    return rounded(np.ascontiguousarray(to_order(out, "OIHW", attrs.out_layout)), dtype)


register(
    Op(
        name="nn.conv2d_backward_weight",
        args=("grad", "data"),
        attrs=BackwardWeightAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.TOTAL,
        dtypes=(FLOATS,),
        doc=__doc__ or "",
        tolerance=ACCUMULATED,
    )
)
