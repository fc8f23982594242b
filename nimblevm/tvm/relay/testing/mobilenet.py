"""tvm.relay.testing.mobilenet: convolutions by channel, then across (arXiv 1704.04861)."""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm import relay
from nimblevm.arguments import explain_arguments
from nimblevm.relay.analysis import free_vars
from nimblevm.relay.ir import Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.tvm.nd import NDArray
from nimblevm.tvm.relay.testing.init import create_workload
from nimblevm.tvm.relay.testing.layers import (
    batch_norm_infer,
    conv2d,
    conv_kernel_layout,
    data_shape,
    dense_add_bias,
)

# (channels that come, channels that leave, stride of the convolution by channel)
_BLOCKS = (
    (32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), *[(512, 512, 1)] * 5,
    (512, 1024, 2), (1024, 1024, 1),
)  # fmt: skip


def conv_block(
    data: Expr,
    name: str,
    channels: int,
    kernel_size: Sequence[int] = (3, 3),
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (1, 1),
    epsilon: float = 1e-5,
    layout: str = "NCHW",
    groups: int = 1,
) -> Expr:
    """A convolution, a normalization, relu."""
    depthwise = groups > 1
    net: Expr = conv2d(
        data, channels=channels, kernel_size=kernel_size, strides=strides, padding=padding, groups=groups,
        data_layout=layout, kernel_layout=conv_kernel_layout(layout, depthwise), name=f"{name}_conv",
    )  # fmt: skip
    net = batch_norm_infer(net, epsilon=epsilon, axis=layout.index("C"), name=f"{name}_bn")
    return relay.nn.relu(net)


def get_net(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    layout: str = "NCHW",
) -> Function:
    """data (batch, *image) -> probabilities (batch, classes). alpha scales the channels."""
    net: Expr = relay.var("data", shape=data_shape(batch_size, image_shape), dtype=dtype)
    net = conv_block(net, "conv_block_1", round(32 * alpha), strides=(2, 2), layout=layout)
    for number, (before, after, stride) in enumerate(_BLOCKS, 1):
        each, name = round(before * alpha), f"separable_conv_block_{number}"
        net = conv_block(
            net, f"{name}_depthwise", each, strides=(stride, stride), layout=layout, groups=each
        )
        net = conv_block(net, name, round(after * alpha), (1, 1), padding=(0, 0), layout=layout)
    net = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(net, layout=layout))
    net = relay.nn.softmax(dense_add_bias(net, units=num_classes, name="fc"))
    return Function(free_vars(net), net)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and values of its parameters."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype, layout=layout))


__all__ = ["conv_block", "get_net", "get_workload"]

explain_arguments(globals(), __all__)
