"""Elementwise functions of one tensor: one table.

    out[i] = f(data[i])             same shape and dtype

float16 is computed in float32 and rounded once; integers wrap. Source: Relay's `_tensor.py`, `nn/_nn.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay.op.common import (
    ALL,
    BOOL,
    FLOATS,
    NUMERIC,
    Array,
    as_compute,
    dtype_name,
    rounded,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type


def _is_float(x: Array) -> bool:
    return x.dtype.kind == "f"


def _round(x: Array) -> Any:
    """Half away from zero. Adding 0.5 would be wrong for the float just below 0.5, so compare the fraction."""
    if not _is_float(x):
        return x
    whole = np.trunc(x)
    return np.copysign(
        whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(x.dtype.type(1), x), 0), x
    )


def _sign(x: Array) -> Any:
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


def _sigmoid(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


def _relu(x: Array) -> Any:
    return np.maximum(x, x.dtype.type(0))


@dataclass(frozen=True, slots=True)
class Row:
    """One elementwise function."""

    name: str
    formula: str
    function: Callable[[Array], Any]
    differs: str = "none"
    dtypes: tuple[str, ...] = NUMERIC


TABLE: tuple[Row, ...] = (
    Row("negative", "-x", np.negative),
    Row("abs", "|x|; the least integer stays itself", np.abs),
    Row("sign", "1 if x > 0, -1 if x < 0, else 0", _sign, "NaN gives 0"),
    Row("floor", "the greatest integer <= x", lambda x: np.floor(x) if _is_float(x) else x),
    Row("ceil", "the least integer >= x", lambda x: np.ceil(x) if _is_float(x) else x),
    Row("round", "the nearest integer, half away from zero", _round, "numpy rounds half to even"),
    Row("exp", "e ** x", np.exp, dtypes=FLOATS),
    Row("log", "natural logarithm; 0 gives -inf, x < 0 NaN", np.log, dtypes=FLOATS),
    Row("sqrt", "square root; x < 0 gives NaN", np.sqrt, dtypes=FLOATS),
    Row("rsqrt", "1 / sqrt(x)", lambda x: 1 / np.sqrt(x), "numpy has no such function", FLOATS),
    Row("tanh", "hyperbolic tangent", np.tanh, dtypes=FLOATS),
    Row("sigmoid", "1 / (1 + e ** -x)", _sigmoid, "numpy has no such function", FLOATS),
    Row("nn.relu", "max(x, 0); NaN stays NaN", _relu, "numpy has no such function"),
    Row("copy", "x", lambda x: x, dtypes=ALL),
    Row("logical_not", "not x", np.logical_not, "bool operands only", BOOL),
)


def _relation(allowed: tuple[str, ...]) -> Callable[[TypeContext, tuple[Type, ...], Any], Type]:
    def relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
        return tensor_of(ctx, arg_types, 0, allowed)

    return relation


def _reference(row: Row) -> Callable[[tuple[Array, ...], Any, Type], Array]:
    def reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
        (data,) = inputs
        with np.errstate(all="ignore"):
            return rounded(row.function(as_compute(data)), dtype_name(data))

    return reference


def _doc(row: Row) -> str:
    return (
        f"{row.name}(data): out = {row.formula}   (x = data)\n\n"
        "data: a tensor of any shape; result: the same shape and dtype.\n"
        f"Dtypes: {', '.join(row.dtypes)}.\nDiffers from numpy: {row.differs}."
    )


for _row in TABLE:
    register(
        Op(
            name=_row.name,
            args=("data",),
            relation=_relation(_row.dtypes),
            reference=_reference(_row),
            pattern=OpPattern.ELEMWISE,
            effect=Effect.TOTAL,
            dtypes=(_row.dtypes,),
            doc=_doc(_row),
        )
    )
