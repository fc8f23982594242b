"""What each operator computes. Importing the package fills the table that `find_compute` reads."""

from nimblevm.kernels.compute import (
    arange,
    batch_matmul,
    bias_add,
    binary,
    broadcast_to,
    cast,
    clip,
    compare,
    concatenate,
    dense,
    expand_dims,
    full,
    layer_norm,
    reduce,
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
    where,
)

__all__ = [
    "arange", "batch_matmul", "bias_add", "binary", "broadcast_to", "cast", "clip", "compare",
    "concatenate", "dense",
    "expand_dims", "full", "layer_norm", "reduce", "reshape", "shape_of", "softmax", "split",
    "squeeze", "stack",
    "strided_slice", "take", "transpose", "unary", "where",
]  # fmt: skip
