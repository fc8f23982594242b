"""arange(start, stop, step): evenly spaced values.

    out[i] = start + i * step,   i in [0, max(0, ceil((stop - start) / step)))

start, stop, step: rank-0 tensors of the dtype in the attribute. Result: rank 1, that dtype; the size is
known where all three are constants, else it depends on data. The quotient is exact for integers and
float64 for floats; NaN counts as 0. Attrs: dtype. Errors: DivisionByZero for step 0; DimOverflow for a size or
a positive difference of integers that is no int64, or a result of more than 2**56 bytes. Source: Relay's arange.
Differs from numpy: float32 unless dtype says otherwise; float elements are start + i * step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nimblevm.errors import DimOverflow, DivisionByZero
from nimblevm.relay.op.common import (
    NUMERIC,
    Array,
    Attrs,
    as_compute,
    dtype_name,
    rounded,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class ArangeAttrs(Attrs):
    """dtype: the dtype of the operands and of the result."""

    dtype: str = "float32"


def size_of(start: Array, stop: Array, step: Array) -> int:
    """The number of elements, from rank-0 operands."""
    if step == 0:
        raise DivisionByZero("arange: step is 0")
    count = 0
    if start.dtype.kind != "f":
        span = (int(stop) - int(start)) * (1 if step > 0 else -1)
        count = max(0, -(-span // abs(int(step)))) if span < 2**63 else 2**63
    else:
        with np.errstate(all="ignore"):
            quotient = (float(stop) - float(start)) / float(step)
        if not math.isnan(quotient):
            count = math.ceil(min(max(0.0, quotient), 2.0**63))
    if count * start.dtype.itemsize > 2**56:
        raise DimOverflow(f"arange({start}, {stop}, {step}) is too large")
    return count


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ArangeAttrs) -> Type:
    if attrs.dtype not in NUMERIC:
        raise ctx.fail(f"dtype must be numeric, not {attrs.dtype!r}")
    for index in range(3):
        operand = tensor_of(ctx, arg_types, index, NUMERIC)
        if operand.shape or operand.dtype != attrs.dtype:
            raise ctx.fail(
                f"argument {index} must be a {attrs.dtype} scalar, not {operand!r}", index
            )
    start, stop, step = (ctx.constant(index) for index in range(3))
    if start is None or stop is None or step is None:
        return TensorType((ctx.fresh_dim(),), attrs.dtype)
    try:
        return TensorType((size_of(start, stop, step),), attrs.dtype)
    except (DimOverflow, DivisionByZero) as error:
        raise ctx.fail(str(error)) from None


def _reference(inputs: tuple[Array, ...], attrs: ArangeAttrs, result: Type) -> Array:
    start, stop, step = inputs
    dtype = dtype_name(start)
    wide = as_compute(start)
    with np.errstate(all="ignore"):
        steps = np.arange(size_of(start, stop, step)).astype(wide.dtype)
        return rounded(wide + steps * as_compute(step), dtype)


register(
    Op(
        name="arange",
        args=("start", "stop", "step"),
        attrs=ArangeAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(NUMERIC,),
        doc=__doc__,
        shape_values=(0, 1, 2),
    )
)
