"""tvm.relay.testing.layers: layers with parameters of their own, named after the layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm import relay
from nimblevm.arguments import explain_arguments
from nimblevm.errors import InvalidInput
from nimblevm.relay.ir import Call, Expr, TupleGetItem, Var


def _parameter(given: Expr | None, name: str) -> Expr:
    """A parameter whose type follows from what it meets."""
    return Var(name) if given is None else given


def dense_add_bias(
    data: Expr,
    weight: Expr | None = None,
    bias: Expr | None = None,
    units: int | None = None,
    *,
    name: str,
    **kwargs: Any,
) -> Call:
    """nn.dense and nn.bias_add, with the parameters NAME_weight and NAME_bias."""
    product = relay.nn.dense(data, _parameter(weight, f"{name}_weight"), units, **kwargs)
    return relay.nn.bias_add(product, _parameter(bias, f"{name}_bias"), axis=-1)


def conv2d(data: Expr, weight: Expr | None = None, *, name: str, **kwargs: Any) -> Call:
    """nn.conv2d with the weight NAME_weight."""
    return relay.nn.conv2d(data, _parameter(weight, f"{name}_weight"), **kwargs)


def conv2d_transpose(data: Expr, weight: Expr | None = None, *, name: str, **kwargs: Any) -> Call:
    """nn.conv2d_transpose with the weight NAME_weight."""
    return relay.nn.conv2d_transpose(data, _parameter(weight, f"{name}_weight"), **kwargs)


def batch_norm_infer(
    data: Expr,
    gamma: Expr | None = None,
    beta: Expr | None = None,
    moving_mean: Expr | None = None,
    moving_var: Expr | None = None,
    *,
    name: str,
    **kwargs: Any,
) -> TupleGetItem:
    """The normalized data of nn.batch_norm; NAME_gamma, NAME_beta, NAME_moving_mean, NAME_moving_var."""
    normal = relay.nn.batch_norm(
        data, _parameter(gamma, f"{name}_gamma"), _parameter(beta, f"{name}_beta"),
        _parameter(moving_mean, f"{name}_moving_mean"), _parameter(moving_var, f"{name}_moving_var"), **kwargs,
    )  # fmt: skip
    found: TupleGetItem = normal[0]
    return found


def conv_kernel_layout(data_layout: str, is_depthwise: bool = False) -> str:
    """The layout of a kernel that goes with one of data. InvalidInput for layouts but NCHW and NHWC."""
    if data_layout not in ("NCHW", "NHWC"):
        raise InvalidInput(f'layout must be "NCHW" or "NHWC", not {data_layout!r}')
    return "OIHW" if data_layout == "NCHW" else "HWOI" if is_depthwise else "HWIO"


def data_shape(batch_size: int, image_shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of images in a batch."""
    return (batch_size, *image_shape)


__all__ = [
    "batch_norm_infer", "conv2d", "conv2d_transpose", "conv_kernel_layout", "data_shape", "dense_add_bias",
]  # fmt: skip

explain_arguments(globals(), __all__)
