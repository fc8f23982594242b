"""tvm.relay.testing.mlp: three dense layers over images."""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm import relay
from nimblevm.arguments import explain_arguments
from nimblevm.relay.analysis import free_vars
from nimblevm.relay.ir import Function
from nimblevm.relay.module import IRModule
from nimblevm.tvm.nd import NDArray
from nimblevm.tvm.relay.testing.init import create_workload
from nimblevm.tvm.relay.testing.layers import data_shape, dense_add_bias


def get_net(
    batch_size: int,
    num_classes: int = 10,
    image_shape: Sequence[int] = (1, 28, 28),
    dtype: str = "float32",
) -> Function:
    """data (batch, *image) -> probabilities (batch, classes), through 128 and 64 units."""
    data = relay.var("data", shape=data_shape(batch_size, image_shape), dtype=dtype)
    net = relay.nn.relu(dense_add_bias(relay.nn.batch_flatten(data), units=128, name="fc1"))
    net = relay.nn.relu(dense_add_bias(net, units=64, name="fc2"))
    net = relay.nn.softmax(dense_add_bias(net, units=num_classes, name="fc3"))
    return Function(free_vars(net), net)


def get_workload(
    batch_size: int,
    num_classes: int = 10,
    image_shape: Sequence[int] = (1, 28, 28),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and values of its parameters."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))


__all__ = ["get_net", "get_workload"]

explain_arguments(globals(), __all__)
