"""nn.matmul(tensor_a, tensor_b): matrix product with a matrix.

    out[..., m, n] = sum over k of A[..., m, k] * B[k, n]

tensor_a is (d1, ..., dn, K), n >= 0, or (d1, ..., K, M) if transpose_a; tensor_b is (K, N), or (N, K) if transpose_b.
Operands have one dtype, or are int8 and uint8 with a signed out_dtype of 16 bits or more; result (d1, ..., dn, N) in
`out_dtype`, or the operands' dtype if that is empty. The operands are converted to `out_dtype` first; integers wrap;
float16 is accumulated in float32. K = 0 gives zeros. Attrs: units (must equal N if given), out_dtype, transpose_a,
transpose_b. Source: Relay's nn/_nn.py.
Differs from numpy: tensor_b has rank 2; transposition by attribute; integers are not widened.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
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
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class MatmulAttrs(Attrs):
    """units: columns of the result, or None. out_dtype: dtype of the result, "" = the operands'. transpose_a/b: the
    operand's last two axes are swapped."""

    units: int | None = None
    out_dtype: str = ""
    transpose_a: bool = False
    transpose_b: bool = False


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: MatmulAttrs) -> Type:
    a = tensor_of(ctx, arg_types, 0, NUMERIC)
    b = tensor_of(ctx, arg_types, 1, NUMERIC)
    dtype = product_dtype(ctx, a, b, attrs.out_dtype)
    least = 2 if attrs.transpose_a else 1
    if len(a.shape) < least:
        raise ctx.fail(f"tensor_a must have rank {least} or more, not {len(a.shape)}", 0)
    if len(b.shape) != 2:
        raise ctx.fail(f"tensor_b must have rank 2, not {len(b.shape)}", 1)
    depth = len(a.shape) - least
    k_axis, n_axis = (1, 0) if attrs.transpose_b else (0, 1)
    require_same(ctx, (0, depth, a.shape[depth]), (1, k_axis, b.shape[k_axis]))
    outer = (*a.shape[:-2], a.shape[-1]) if attrs.transpose_a else a.shape[:-1]
    units = b.shape[n_axis] if attrs.units is None else ctx.require_dim(1, n_axis, attrs.units)
    return TensorType((*outer, units), dtype)


def _reference(inputs: tuple[Array, ...], attrs: MatmulAttrs, result: Type) -> Array:
    dtype = attrs.out_dtype or dtype_name(inputs[0])
    a, b = (as_wide(rounded(value, dtype)) for value in inputs)
    a = np.swapaxes(a, -1, -2) if attrs.transpose_a else a
    b = b.T if attrs.transpose_b else b
    if a.shape[-1] != b.shape[0]:
        raise ShapeMismatch(f"nn.matmul: {a.shape} and {b.shape} do not multiply")
    with np.errstate(all="ignore"):
        return rounded(np.matmul(a, b), dtype)


register(
    Op(
        name="nn.matmul",
        args=("tensor_a", "tensor_b"),
        attrs=MatmulAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.TOTAL,
        dtypes=(NUMERIC,),
        doc=__doc__,
        tolerance=ACCUMULATED,
    )
)
