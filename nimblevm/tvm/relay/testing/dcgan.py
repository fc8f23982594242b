"""tvm.relay.testing.dcgan: a generator of images by transposed convolutions (arXiv 1511.06434)."""

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
from nimblevm.tvm.relay.testing.layers import batch_norm_infer, conv2d_transpose


def _doubled(data: Expr, channels: int, name: str) -> Expr:
    """A transposed convolution that doubles height and width."""
    return conv2d_transpose(
        data, channels=channels, kernel_size=(4, 4), strides=(2, 2), padding=(1, 1), name=name
    )


def get_net(
    batch_size: int,
    random_len: int = 100,
    oshape: Sequence[int] = (3, 64, 64),
    ngf: int = 128,
    code: int | None = None,
    dtype: str = "float32",
) -> Function:
    """data (batch, random_len) -> images (batch, 3, 64, 64) between -1 and 1. InvalidInput for other images."""
    if tuple(oshape[-2:]) != (64, 64):
        raise InvalidInput(f"the generator makes images of 64 x 64, not {tuple(oshape[-2:])}")
    data = relay.var("data", shape=(batch_size, random_len if code is None else code), dtype=dtype)
    weight = relay.var("g1_weight")
    net: Expr = relay.nn.dense(data, weight, units=4 * 4 * ngf * 8)
    net = relay.nn.relu(relay.reshape(net, (-1, ngf * 8, 4, 4)))
    for number, channels in enumerate((ngf * 4, ngf * 2, ngf), 2):
        net = _doubled(net, channels, f"g{number}")
        net = relay.nn.relu(
            batch_norm_infer(net, epsilon=1e-5, scale=False, name=f"g{number}_batch")
        )
    net = relay.tanh(_doubled(net, oshape[0], "g5"))
    return Function(free_vars(net), net)


def get_workload(
    batch_size: int,
    oshape: Sequence[int] = (3, 64, 64),
    ngf: int = 128,
    random_len: int = 100,
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and values of its parameters."""
    return create_workload(get_net(batch_size, random_len, oshape, ngf, dtype=dtype))


__all__ = ["get_net", "get_workload"]

explain_arguments(globals(), __all__)
