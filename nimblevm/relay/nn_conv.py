"""relay.nn: convolutions, with TVM's argument order and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.relay import ir, op
from nimblevm.relay.call import Operand, call_op, plain

Sizes = int | Sequence[int]


def sizes(value: Sizes | None, count: int) -> tuple[int, ...] | None:
    """An attribute that TVM's functions take as one number or one an axis."""
    value = plain(value)
    if value is None:
        return None
    return (value,) * count if isinstance(value, int) else tuple(value)


def padding(value: Sizes, count: int) -> tuple[int, ...]:
    """Befores and then afters, as TVM's functions write paddings of one number or one an axis."""
    value = plain(value)
    found = (value,) if isinstance(value, int) else tuple(value)
    if len(found) == 1:
        return found * (2 * count)
    return found * 2 if len(found) == count else found


pads = padding


def _conv(name: str, data: Operand, weight: Operand, **given: Any) -> ir.Call:
    row = op.conv.ROWS.get(name)
    rank = 2 if row is None else row.rank
    for key in ("strides", "dilation", "kernel_size", "output_padding"):
        if key in given:
            given[key] = sizes(given[key], rank)
    given["padding"] = padding(given["padding"], rank)
    attrs = op.conv2d_pack.Conv2DPackAttrs if row is None else op.conv.ATTRS[name]
    return call_op(name, data, weight, attrs=attrs(**given))


def conv1d(
    data: Operand,
    weight: Operand,
    strides: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sizes | None = None,
    data_layout: str = "NCW",
    kernel_layout: str = "OIW",
    out_layout: str = "",
    out_dtype: str = "",
) -> ir.Call:
    """Sums of windows along one axis times a kernel."""
    return _conv(
        "nn.conv1d", data, weight, strides=strides, padding=padding, dilation=dilation, groups=groups,
        channels=channels, kernel_size=kernel_size, data_layout=data_layout, kernel_layout=kernel_layout,
        out_layout=out_layout, out_dtype=out_dtype,
    )  # fmt: skip


def contrib_conv2d_pack(
    data: Operand,
    weight: Operand,
    channels: int,
    kernel_size: Sizes,
    strides: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    dilation: Sizes = (1, 1),
    data_layout: str = "NHWC",
    weight_layout: str = "NC16n",
) -> ir.Call:
    """A convolution whose weight lies in panels of 16 channels (weight_layout "NC16n"); the result is NHWC."""
    return _conv(
        "nn.contrib_conv2d_pack", data, weight, strides=strides, padding=padding, dilation=dilation,
        channels=channels, kernel_size=kernel_size, data_layout=data_layout, weight_layout=weight_layout,
    )  # fmt: skip


def contrib_conv2d_winograd_pack(
    data: Operand,
    weight: Operand,
    channels: int,
    padding: Sizes = (0, 0),
    data_layout: str = "NHWC",
) -> ir.Call:
    """A 3 x 3 convolution by Winograd's F(2 x 2, 3 x 3) with a transformed weight; the result is NHWC."""
    attrs = op.conv2d_winograd.WinogradAttrs(pads(padding, 2), channels, data_layout)
    return call_op("nn.contrib_conv2d_winograd_pack", data, weight, attrs=attrs)


def conv2d(
    data: Operand,
    weight: Operand,
    strides: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    dilation: Sizes = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sizes | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> ir.Call:
    """Sums of windows along two axes times a kernel."""
    return _conv(
        "nn.conv2d", data, weight, strides=strides, padding=padding, dilation=dilation, groups=groups,
        channels=channels, kernel_size=kernel_size, data_layout=data_layout, kernel_layout=kernel_layout,
        out_layout=out_layout, out_dtype=out_dtype,
    )  # fmt: skip


def conv3d(
    data: Operand,
    weight: Operand,
    strides: Sizes = (1, 1, 1),
    padding: Sizes = (0, 0, 0),
    dilation: Sizes = (1, 1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sizes | None = None,
    data_layout: str = "NCDHW",
    kernel_layout: str = "OIDHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> ir.Call:
    """Sums of windows along three axes times a kernel."""
    return _conv(
        "nn.conv3d", data, weight, strides=strides, padding=padding, dilation=dilation, groups=groups,
        channels=channels, kernel_size=kernel_size, data_layout=data_layout, kernel_layout=kernel_layout,
        out_layout=out_layout, out_dtype=out_dtype,
    )  # fmt: skip


def conv1d_transpose(
    data: Operand,
    weight: Operand,
    strides: Sizes = (1,),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sizes | None = None,
    data_layout: str = "NCW",
    kernel_layout: str = "IOW",
    out_layout: str = "",
    output_padding: Sizes = (0,),
    out_dtype: str = "",
) -> ir.Call:
    """Every element spreads the kernel over one axis."""
    return _conv(
        "nn.conv1d_transpose", data, weight, strides=strides, padding=padding, dilation=dilation, groups=groups,
        channels=channels, kernel_size=kernel_size, data_layout=data_layout, kernel_layout=kernel_layout,
        out_layout=out_layout, output_padding=output_padding, out_dtype=out_dtype,
    )  # fmt: skip


def conv2d_transpose(
    data: Operand,
    weight: Operand,
    strides: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    dilation: Sizes = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sizes | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Sizes = (0, 0),
    out_dtype: str = "",
) -> ir.Call:
    """Every element spreads the kernel over two axes."""
    return _conv(
        "nn.conv2d_transpose", data, weight, strides=strides, padding=padding, dilation=dilation, groups=groups,
        channels=channels, kernel_size=kernel_size, data_layout=data_layout, kernel_layout=kernel_layout,
        out_layout=out_layout, output_padding=output_padding, out_dtype=out_dtype,
    )  # fmt: skip


def conv3d_transpose(
    data: Operand,
    weight: Operand,
    strides: Sizes = (1, 1, 1),
    padding: Sizes = (0, 0, 0),
    dilation: Sizes = (1, 1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sizes | None = None,
    data_layout: str = "NCDHW",
    kernel_layout: str = "IODHW",
    out_layout: str = "",
    output_padding: Sizes = (0, 0, 0),
    out_dtype: str = "",
) -> ir.Call:
    """Every element spreads the kernel over three axes."""
    return _conv(
        "nn.conv3d_transpose", data, weight, strides=strides, padding=padding, dilation=dilation, groups=groups,
        channels=channels, kernel_size=kernel_size, data_layout=data_layout, kernel_layout=kernel_layout,
        out_layout=out_layout, output_padding=output_padding, out_dtype=out_dtype,
    )  # fmt: skip


def deformable_conv2d(
    data: Operand,
    offset: Operand,
    weight: Operand,
    strides: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    dilation: Sizes = (1, 1),
    deformable_groups: int = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sizes | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> ir.Call:
    """A convolution over two axes whose kernel's places are moved by offset."""
    attrs = op.deformable_conv2d.DeformableConv2DAttrs(
        sizes(strides, 2) or (), pads(padding, 2), sizes(dilation, 2) or (), deformable_groups, groups, channels,
        sizes(kernel_size, 2), data_layout, kernel_layout, out_layout, out_dtype,
    )  # fmt: skip
    return call_op("nn.deformable_conv2d", data, offset, weight, attrs=attrs)


def conv2d_backward_weight(
    grad: Operand,
    data: Operand,
    strides: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    dilation: Sizes = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sizes | None = None,
    grad_layout: str = "NCHW",
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_dtype: str = "",
) -> ir.Call:
    """How conv2d's weight is to change for its result to change by grad."""
    attrs = op.conv_backward_weight.BackwardWeightAttrs(
        sizes(strides, 2) or (1, 1), pads(padding, 2), sizes(dilation, 2) or (1, 1), groups, channels,
        sizes(kernel_size, 2), grad_layout, data_layout, kernel_layout, out_dtype,
    )  # fmt: skip
    return call_op("nn.conv2d_backward_weight", grad, data, attrs=attrs)


def correlation(
    data1: Operand,
    data2: Operand,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: Sizes,
    is_multiply: bool,
    layout: str,
) -> ir.Call:
    """How alike places of two images are, for displacements to all sides."""
    attrs = op.correlation.CorrelationAttrs(
        kernel_size, max_displacement, stride1, stride2, pads(padding, 2), is_multiply, layout
    )
    return call_op("nn.correlation", data1, data2, attrs=attrs)
