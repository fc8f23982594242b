"""tvm.relay.testing.resnet: residual networks whose units normalize first (arXiv 1603.05027)."""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm import relay
from nimblevm.arguments import explain_arguments
from nimblevm.errors import InvalidInput
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

_UNITS = {
    18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3),
    200: (3, 24, 36, 3), 269: (3, 30, 48, 8),
}  # fmt: skip
_EPSILON = 2e-5


def _norm(data: Expr, name: str, layout: str, scale: bool = True) -> Expr:
    axis = layout.index("C")
    return batch_norm_infer(data, axis=axis, epsilon=_EPSILON, scale=scale, name=name)


def residual_unit(
    data: Expr,
    num_filter: int,
    stride: Sequence[int],
    dim_match: bool,
    name: str,
    bottle_neck: bool = True,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
) -> Expr:
    """data and what two or three convolutions make of it. dim_match: both have one shape; else data is projected."""
    quarter = num_filter // 4
    one, same = ((1, 1), (0, 0)), ((3, 3), (1, 1))
    steps = [(num_filter, same, stride), (num_filter, same, (1, 1))]
    if bottle_neck:
        steps = [(quarter, one, stride), (quarter, same, (1, 1)), (num_filter, one, (1, 1))]
    net, shortcut = data, data
    for number, (channels, (kernel, padding), step) in enumerate(steps, 1):
        net = relay.nn.relu(_norm(net, f"{name}_bn{number}", data_layout))
        if number == 1 and not dim_match:
            shortcut = conv2d(
                net, channels=num_filter, kernel_size=(1, 1), strides=stride, data_layout=data_layout,
                kernel_layout=kernel_layout, name=f"{name}_sc",
            )  # fmt: skip
        net = conv2d(
            net, channels=channels, kernel_size=kernel, strides=step, padding=padding, data_layout=data_layout,
            kernel_layout=kernel_layout, name=f"{name}_conv{number}",
        )  # fmt: skip
    return relay.add(net, shortcut)


def resnet(
    units: Sequence[int],
    num_stages: int,
    filter_list: Sequence[int],
    num_classes: int,
    data_shape: Sequence[int],
    bottle_neck: bool = True,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """A network of stages; filter_list has the channels of the first convolution and of each stage.

    InvalidInput if units or filter_list is too short for num_stages.
    """
    kernel = conv_kernel_layout(layout)
    if len(units) < num_stages or len(filter_list) <= num_stages:
        raise InvalidInput(
            f"{num_stages} stages need as many units and one more of filter_list,"
            f" not {len(units)} and {len(filter_list)}"
        )
    data = relay.var("data", shape=data_shape, dtype=dtype)
    small = data_shape[layout.index("H")] <= 32  # of CIFAR's size
    net = _norm(data, "bn_data", layout, scale=False)
    net = conv2d(
        net, channels=filter_list[0], kernel_size=(3, 3) if small else (7, 7), strides=(1, 1) if small else (2, 2),
        padding=(1, 1) if small else (3, 3), data_layout=layout, kernel_layout=kernel, name="conv0",
    )  # fmt: skip
    if not small:
        net = relay.nn.relu(_norm(net, "bn0", layout))
        net = relay.nn.max_pool2d(net, (3, 3), strides=(2, 2), padding=(1, 1), layout=layout)
    for stage in range(num_stages):
        for unit in range(units[stage]):
            stride = (1, 1) if stage == 0 or unit else (2, 2)
            net = residual_unit(
                net, filter_list[stage + 1], stride, unit > 0, f"stage{stage + 1}_unit{unit + 1}", bottle_neck,
                layout, kernel,
            )  # fmt: skip
    net = relay.nn.global_avg_pool2d(relay.nn.relu(_norm(net, "bn1", layout)), layout=layout)
    net = dense_add_bias(relay.nn.batch_flatten(net), units=num_classes, name="fc1")
    net = relay.nn.softmax(net)
    return Function(free_vars(net), net)


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: Sequence[int] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """data (batch, *image) -> probabilities (batch, classes). InvalidInput for a depth that there is no recipe for."""
    height = image_shape[layout.index("H") - 1]
    units: Sequence[int] = _UNITS.get(num_layers, ())
    bottle_neck = num_layers >= 50
    filters = [64, 256, 512, 1024, 2048] if bottle_neck else [64, 64, 128, 256, 512]
    if height <= 28:
        bottle_neck = num_layers >= 164
        convolutions = 9 if bottle_neck else 6  # of a unit in each of three stages
        filters = [16, 64, 128, 256] if bottle_neck else [16, 16, 32, 64]
        units = () if (num_layers - 2) % convolutions else ((num_layers - 2) // convolutions,) * 3
    if not units:
        raise InvalidInput(
            f"no residual network has {num_layers} layers for images of height {height}"
        )
    return resnet(
        units,
        len(units),
        filters,
        num_classes,
        data_shape(batch_size, image_shape),
        bottle_neck,
        layout,
        dtype,
    )


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: Sequence[int] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and values of its parameters."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype))


__all__ = ["get_net", "get_workload", "residual_unit", "resnet"]

explain_arguments(globals(), __all__)
