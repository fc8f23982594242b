"""relay.nn: pools and upsampling, with TVM's argument order and defaults."""

from __future__ import annotations

from typing import Any

from nimblevm.arguments import shown
from nimblevm.errors import InvalidInputType
from nimblevm.relay import ir, op
from nimblevm.relay.builder_sizes import is_computed
from nimblevm.relay.call import Operand, call_op, constant
from nimblevm.relay.nn_conv import Sizes, sizes
from nimblevm.relay.nn_conv import padding as padding_of


def _pool(name: str, data: Operand, **given: Any) -> ir.Call:
    rank = op.pool.ROWS[name].rank
    for key in ("pool_size", "strides", "dilation"):
        given[key] = sizes(given[key], rank)
    given["padding"] = padding_of(given["padding"], rank)
    return call_op(name, data, attrs=op.pool.ATTRS[name](**given))


def max_pool1d(
    data: Operand,
    pool_size: Sizes = (1,),
    strides: Sizes = (1,),
    dilation: Sizes = (1,),
    padding: Sizes = (0,),
    layout: str = "NCW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> ir.Call:
    """The greatest element of each window along one axis."""
    return _pool(
        "nn.max_pool1d", data, pool_size=pool_size, strides=strides, dilation=dilation, padding=padding,
        layout=layout, out_layout=out_layout, ceil_mode=ceil_mode,
    )  # fmt: skip


def max_pool2d(
    data: Operand,
    pool_size: Sizes = (1, 1),
    strides: Sizes = (1, 1),
    dilation: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> ir.Call:
    """The greatest element of each window along two axes."""
    return _pool(
        "nn.max_pool2d", data, pool_size=pool_size, strides=strides, dilation=dilation, padding=padding,
        layout=layout, out_layout=out_layout, ceil_mode=ceil_mode,
    )  # fmt: skip


def max_pool3d(
    data: Operand,
    pool_size: Sizes = (1, 1, 1),
    strides: Sizes = (1, 1, 1),
    dilation: Sizes = (1, 1, 1),
    padding: Sizes = (0, 0, 0),
    layout: str = "NCDHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> ir.Call:
    """The greatest element of each window along three axes."""
    return _pool(
        "nn.max_pool3d", data, pool_size=pool_size, strides=strides, dilation=dilation, padding=padding,
        layout=layout, out_layout=out_layout, ceil_mode=ceil_mode,
    )  # fmt: skip


def avg_pool1d(
    data: Operand,
    pool_size: Sizes = (1,),
    strides: Sizes = (1,),
    dilation: Sizes = (1,),
    padding: Sizes = (0,),
    layout: str = "NCW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> ir.Call:
    """The mean of each window along one axis."""
    return _pool(
        "nn.avg_pool1d", data, pool_size=pool_size, strides=strides, dilation=dilation, padding=padding,
        layout=layout, out_layout=out_layout, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
    )  # fmt: skip


def avg_pool2d(
    data: Operand,
    pool_size: Sizes = (1, 1),
    strides: Sizes = (1, 1),
    dilation: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> ir.Call:
    """The mean of each window along two axes."""
    return _pool(
        "nn.avg_pool2d", data, pool_size=pool_size, strides=strides, dilation=dilation, padding=padding,
        layout=layout, out_layout=out_layout, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
    )  # fmt: skip


def avg_pool3d(
    data: Operand,
    pool_size: Sizes = (1, 1, 1),
    strides: Sizes = (1, 1, 1),
    dilation: Sizes = (1, 1, 1),
    padding: Sizes = (0, 0, 0),
    layout: str = "NCDHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> ir.Call:
    """The mean of each window along three axes."""
    return _pool(
        "nn.avg_pool3d", data, pool_size=pool_size, strides=strides, dilation=dilation, padding=padding,
        layout=layout, out_layout=out_layout, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
    )  # fmt: skip


def _adaptive(name: str, data: Operand, *attrs: Any) -> ir.Call:
    return call_op(name, data, attrs=op.adaptive_pool.attrs_of(op.adaptive_pool.ROWS[name])(*attrs))


def adaptive_max_pool1d(
    data: Operand, output_size: Sizes | None = None, layout: str = "NCW", out_layout: str = ""
) -> ir.Call:
    """The greatest elements of `output_size` windows."""
    return _adaptive("nn.adaptive_max_pool1d", data, sizes(output_size, 1), layout, out_layout)


def adaptive_avg_pool1d(
    data: Operand, output_size: Sizes | None = None, layout: str = "NCW", out_layout: str = ""
) -> ir.Call:
    """The means of `output_size` windows."""
    return _adaptive("nn.adaptive_avg_pool1d", data, sizes(output_size, 1), layout, out_layout)


def adaptive_max_pool2d(
    data: Operand, output_size: Sizes | None = None, layout: str = "NCHW", out_layout: str = ""
) -> ir.Call:
    """The greatest elements of `output_size` windows."""
    return _adaptive("nn.adaptive_max_pool2d", data, sizes(output_size, 2), layout, out_layout)


def adaptive_avg_pool2d(
    data: Operand, output_size: Sizes | None = None, layout: str = "NCHW", out_layout: str = ""
) -> ir.Call:
    """The means of `output_size` windows."""
    return _adaptive("nn.adaptive_avg_pool2d", data, sizes(output_size, 2), layout, out_layout)


def adaptive_max_pool3d(
    data: Operand, output_size: Sizes | None = None, layout: str = "NCDHW", out_layout: str = ""
) -> ir.Call:
    """The greatest elements of `output_size` windows."""
    return _adaptive("nn.adaptive_max_pool3d", data, sizes(output_size, 3), layout, out_layout)


def adaptive_avg_pool3d(
    data: Operand, output_size: Sizes | None = None, layout: str = "NCDHW", out_layout: str = ""
) -> ir.Call:
    """The means of `output_size` windows."""
    return _adaptive("nn.adaptive_avg_pool3d", data, sizes(output_size, 3), layout, out_layout)


def global_max_pool1d(data: Operand, layout: str = "NCW", out_layout: str = "") -> ir.Call:
    """The greatest element of each channel."""
    return _adaptive("nn.global_max_pool1d", data, layout, out_layout)


def global_avg_pool1d(data: Operand, layout: str = "NCW", out_layout: str = "") -> ir.Call:
    """The mean of each channel."""
    return _adaptive("nn.global_avg_pool1d", data, layout, out_layout)


def global_max_pool2d(data: Operand, layout: str = "NCHW", out_layout: str = "") -> ir.Call:
    """The greatest element of each channel."""
    return _adaptive("nn.global_max_pool2d", data, layout, out_layout)


def global_avg_pool2d(data: Operand, layout: str = "NCHW", out_layout: str = "") -> ir.Call:
    """The mean of each channel."""
    return _adaptive("nn.global_avg_pool2d", data, layout, out_layout)


def global_max_pool3d(data: Operand, layout: str = "NCDHW", out_layout: str = "") -> ir.Call:
    """The greatest element of each channel."""
    return _adaptive("nn.global_max_pool3d", data, layout, out_layout)


def global_avg_pool3d(data: Operand, layout: str = "NCDHW", out_layout: str = "") -> ir.Call:
    """The mean of each channel."""
    return _adaptive("nn.global_avg_pool3d", data, layout, out_layout)


def max_pool2d_grad(
    out_grad: Operand,
    data: Operand,
    pool_size: Sizes = (1, 1),
    strides: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> ir.Call:
    """How data is to change for max_pool2d's result to change by out_grad."""
    attrs = op.pool.ATTRS["nn.max_pool2d"](
        pool_size=sizes(pool_size, 2), strides=sizes(strides, 2), padding=padding_of(padding, 2), layout=layout,
        out_layout=out_layout, ceil_mode=ceil_mode,
    )  # fmt: skip
    return call_op("nn.max_pool2d_grad", out_grad, data, attrs=attrs)


def avg_pool2d_grad(
    out_grad: Operand,
    data: Operand,
    pool_size: Sizes = (1, 1),
    strides: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> ir.Call:
    """How data is to change for avg_pool2d's result to change by out_grad."""
    attrs = op.pool.ATTRS["nn.avg_pool2d"](
        pool_size=sizes(pool_size, 2), strides=sizes(strides, 2), padding=padding_of(padding, 2), layout=layout,
        out_layout=out_layout, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
    )  # fmt: skip
    return call_op("nn.avg_pool2d_grad", out_grad, data, attrs=attrs)


def _number(scale: Any, function: str, wanted: str) -> float:
    try:
        return float(scale.data.item() if isinstance(scale, ir.Constant) else scale)
    except (TypeError, ValueError):
        raise InvalidInputType(
            f"{function}: a scale must be {wanted}, not {shown(scale)}"
        ) from None


def upsampling(
    data: Operand,
    scale_h: Operand = 1,
    scale_w: Operand = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> ir.Call:
    """An image with sizes times the scales, which may be expressions."""
    if is_computed(scale_h) or is_computed(scale_w):
        scales = (
            s if isinstance(s, ir.Expr) else constant(s, "float32") for s in (scale_h, scale_w)
        )
        made = op.dyn_image.DynUpSamplingAttrs(layout, method, align_corners)
        return call_op("dyn.nn.upsampling", data, *scales, attrs=made)
    height, width = (
        _number(scale, "upsampling", "a number or an expression") for scale in (scale_h, scale_w)
    )
    attrs = op.resize.UpSamplingAttrs(height, width, layout, method, align_corners)
    return call_op("nn.upsampling", data, attrs=attrs)


def upsampling3d(
    data: Operand,
    scale_d: Operand = 1,
    scale_h: Operand = 1,
    scale_w: Operand = 1,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> ir.Call:
    """A volume with sizes times the scales."""
    depth, height, width = (
        _number(scale, "upsampling3d", "a number") for scale in (scale_d, scale_h, scale_w)
    )
    attrs = op.resize.UpSampling3DAttrs(
        depth, height, width, layout, method, coordinate_transformation_mode
    )
    return call_op("nn.upsampling3d", data, attrs=attrs)
