"""relay.nn: the functions of neural networks, with TVM's argument order and defaults."""

from __future__ import annotations

from nimblevm.relay import ir, op
from nimblevm.relay.builder_move import mirror_pad, pad
from nimblevm.relay.call import Operand, call_op
from nimblevm.relay.nn_blocks import (
    batch_to_space_nd,
    depth_to_space,
    dilate,
    fifo_buffer,
    space_to_batch_nd,
    space_to_depth,
)
from nimblevm.relay.nn_conv import (
    contrib_conv2d_pack,
    contrib_conv2d_winograd_pack,
    conv1d,
    conv1d_transpose,
    conv2d,
    conv2d_backward_weight,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
    correlation,
    deformable_conv2d,
)
from nimblevm.relay.nn_loss import cross_entropy, cross_entropy_with_logits, nll_loss
from nimblevm.relay.nn_norm import (
    batch_flatten,
    batch_norm,
    dropout,
    dropout_raw,
    fast_softmax,
    group_norm,
    instance_norm,
    l2_normalize,
    leaky_relu,
    log_softmax,
    lrn,
    prelu,
)
from nimblevm.relay.nn_pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool2d_grad,
    avg_pool3d,
    global_avg_pool1d,
    global_avg_pool2d,
    global_avg_pool3d,
    global_max_pool1d,
    global_max_pool2d,
    global_max_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool2d_grad,
    max_pool3d,
    upsampling,
    upsampling3d,
)
from nimblevm.relay.nn_sparse import sparse_add, sparse_dense, sparse_transpose


def dense(data: Operand, weight: Operand, units: int | None = None, out_dtype: str = "") -> ir.Call:
    """data times the transposed weight."""
    return call_op("nn.dense", data, weight, attrs=op.dense.DenseAttrs(units, out_dtype))


def contrib_dense_pack(
    data: Operand,
    weight: Operand,
    weight_layout: str = "NC",
    units: int | None = None,
    out_dtype: str = "",
) -> ir.Call:
    """data times a weight that lies in panels of columns (weight_layout "NC16n" or "NC64n")."""
    attrs = op.dense_pack.DensePackAttrs(weight_layout, units, out_dtype)
    return call_op("nn.contrib_dense_pack", data, weight, attrs=attrs)


def matmul(
    tensor_a: Operand,
    tensor_b: Operand,
    units: int | None = None,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> ir.Call:
    """tensor_a, of any rank, times a matrix."""
    attrs = op.matmul.MatmulAttrs(units, out_dtype, transpose_a, transpose_b)
    return call_op("nn.matmul", tensor_a, tensor_b, attrs=attrs)


def batch_matmul(
    tensor_a: Operand,
    tensor_b: Operand,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> ir.Call:
    """A matrix product per batch element; tensor_b is transposed by default."""
    attrs = op.batch_matmul.BatchMatmulAttrs(out_dtype, transpose_a, transpose_b)
    return call_op("nn.batch_matmul", tensor_a, tensor_b, attrs=attrs)


def bias_add(data: Operand, bias: Operand, axis: int = 1) -> ir.Call:
    """A vector added along an axis."""
    return call_op("nn.bias_add", data, bias, attrs=op.bias_add.BiasAddAttrs(axis))


def relu(data: Operand) -> ir.Call:
    """max(data, 0)."""
    return call_op("nn.relu", data)


def softmax(data: Operand, axis: int = -1) -> ir.Call:
    """Exponentials that sum to one along an axis."""
    return call_op("nn.softmax", data, attrs=op.softmax.SoftmaxAttrs(axis))


def layer_norm(
    data: Operand,
    gamma: Operand,
    beta: Operand,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> ir.Call:
    """data normalized along an axis."""
    attrs = op.layer_norm.LayerNormAttrs(axis, epsilon, center, scale)
    return call_op("nn.layer_norm", data, gamma, beta, attrs=attrs)


__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool2d_grad", "avg_pool3d",
    "batch_flatten", "batch_matmul", "batch_norm", "batch_to_space_nd", "bias_add", "contrib_conv2d_pack",
    "contrib_conv2d_winograd_pack", "conv1d", "conv1d_transpose", "conv2d", "conv2d_backward_weight",
    "conv2d_transpose", "conv3d", "conv3d_transpose", "correlation", "cross_entropy", "cross_entropy_with_logits",
    "deformable_conv2d", "dense", "depth_to_space", "dilate", "dropout", "dropout_raw", "fast_softmax",
    "fifo_buffer", "global_avg_pool1d", "global_avg_pool2d", "global_avg_pool3d", "global_max_pool1d",
    "global_max_pool2d", "global_max_pool3d", "group_norm", "instance_norm", "l2_normalize", "layer_norm",
    "leaky_relu", "log_softmax", "lrn", "matmul", "max_pool1d", "max_pool2d", "max_pool2d_grad", "max_pool3d",
    "mirror_pad", "nll_loss", "pad", "prelu", "relu", "softmax", "space_to_batch_nd", "space_to_depth",
    "sparse_add", "sparse_dense", "sparse_transpose", "upsampling", "upsampling3d",
]  # fmt: skip
