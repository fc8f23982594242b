"""nn.batch_matmul(tensor_a, tensor_b): a matrix product per batch element.

    out[b, m, n] = sum over k of A[b, m, k] * B[b, k, n]

tensor_a is (B, M, K), or (B, K, M) if transpose_a; tensor_b is (B, K, N), or (B, N, K) if transpose_b. The batch
sizes are equal or one of them is 1. Operands have one dtype, or are int8 and uint8 with a signed out_dtype of 16 bits
or more; result (B, M, N) in `out_dtype`, or the operands' dtype if that is empty. The operands are converted to
`out_dtype` first; integers wrap; float16 is accumulated in float32. The Python function has transpose_b=True by
default, the text form (these attrs) False, as in TVM. Source: Relay's nn/_nn.py.
Differs from numpy: rank 3 only; transposition by attribute.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ACCUMULATED,
    NUMERIC,
    Array,
    Attrs,
    as_wide,
    dtype_name,
    product_dtype,
    require_same,
    rounded,
    tensor_of,
    unless_one,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class BatchMatmulAttrs(Attrs):
    """out_dtype: dtype of the result, "" = the operands'. transpose_a/b: the operand's last two axes are swapped."""

    out_dtype: str = ""
    transpose_a: bool = False
    transpose_b: bool = False


def _batch(ctx: TypeContext, first: Dim, second: Dim) -> Dim:
    """The batch size of the result; equal, or one of them is 1."""
    if first is second or first == second or second == 1:
        return first
    if first == 1:
        return second
    if isinstance(first, int) and isinstance(second, int):
        raise ctx.fail(f"batch sizes {first} and {second} are neither equal nor 1", 1)
    if isinstance(second, int):
        ctx.require_dim(0, 0, dims.add(first, unless_one(first, second)))
        return second
    ctx.require_dim(1, 0, dims.add(second, unless_one(first, second)))
    return first if isinstance(first, int) else dims.bcast(first, second)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: BatchMatmulAttrs) -> Type:
    a = tensor_of(ctx, arg_types, 0, NUMERIC)
    b = tensor_of(ctx, arg_types, 1, NUMERIC)
    dtype = product_dtype(ctx, a, b, attrs.out_dtype)
    for index, operand in enumerate((a, b)):
        if len(operand.shape) != 3:
            raise ctx.fail(f"argument {index} must have rank 3, not {len(operand.shape)}", index)
    m_axis, ka_axis = (2, 1) if attrs.transpose_a else (1, 2)
    n_axis, kb_axis = (1, 2) if attrs.transpose_b else (2, 1)
    require_same(ctx, (0, ka_axis, a.shape[ka_axis]), (1, kb_axis, b.shape[kb_axis]))
    batch = _batch(ctx, a.shape[0], b.shape[0])
    return TensorType((batch, a.shape[m_axis], b.shape[n_axis]), dtype)


def _reference(inputs: tuple[Array, ...], attrs: BatchMatmulAttrs, result: Type) -> Array:
    a, b = inputs
    dtype = attrs.out_dtype or dtype_name(a)
    a, b = as_wide(rounded(a, dtype)), as_wide(rounded(b, dtype))
    if attrs.transpose_a:
        a = np.swapaxes(a, 1, 2)
    if attrs.transpose_b:
        b = np.swapaxes(b, 1, 2)
    try:
        with np.errstate(all="ignore"):
            return rounded(np.matmul(a, b), dtype)
    except ValueError:
        raise ShapeMismatch(f"nn.batch_matmul: {a.shape} and {b.shape} do not multiply") from None


register(
    Op(
        name="nn.batch_matmul",
        args=("tensor_a", "tensor_b"),
        attrs=BatchMatmulAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.TOTAL,
        dtypes=(NUMERIC,),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
