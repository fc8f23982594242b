"""The operators: importing this package fills the registry (op/registry.py) with every record."""

from nimblevm.relay.op import (
    arange,
    batch_matmul,
    bias_add,
    binary,
    broadcast_to,
    cast,
    clip,
    compare,
    concatenate,
    conv,
    dense,
    expand_dims,
    full,
    layer_norm,
    reduce,
    registry,
    reshape,
    shape_of,
    softmax,
    split,
    squeeze,
    stack,
    strided_slice,
    take,
    transpose,
    unary,
    vm,
    where,
)
from nimblevm.relay.op.registry import Op, all_ops, find, get

__all__ = [
    "Op", "all_ops", "arange", "batch_matmul", "bias_add", "binary", "broadcast_to", "cast", "clip", "compare",
    "concatenate", "conv", "dense", "expand_dims", "find", "full", "get", "layer_norm", "reduce", "registry", "reshape",
    "shape_of", "softmax", "split", "squeeze", "stack", "strided_slice", "take", "transpose", "unary", "vm", "where",
]  # fmt: skip
