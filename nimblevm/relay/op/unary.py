"""Elementwise functions of one tensor: one table.

    out[i] = f(data[i])             same shape; same dtype, bool for isnan, isinf and isfinite

float16 is computed in float32 and rounded once; integers wrap. Source: Relay's `_tensor.py`, `nn/_nn.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay.op.common import (
    ALL,
    BOOL,
    FLOATS,
    INTEGERS,
    NUMERIC,
    Array,
    as_compute,
    dtype_name,
    rounded,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


def _is_float(x: Array) -> bool:
    return x.dtype.kind == "f"


def round_away(x: Array) -> Any:
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


def _erf(x: Array) -> Any:
    """numpy has none; computed in float64 by Python's."""
    return np.vectorize(math.erf, otypes=["float64"])(x.astype("float64")).astype(x.dtype)


@dataclass(frozen=True, slots=True)
class Row:
    """One elementwise function. result: its dtype if it is not the operand's."""

    name: str
    formula: str
    function: Callable[[Array], Any]
    differs: str = "none"
    dtypes: tuple[str, ...] = NUMERIC
    result: str = ""


TABLE: tuple[Row, ...] = (
    Row("negative", "-x", np.negative),
    Row("abs", "|x|; the least integer stays itself", np.abs),
    Row("sign", "1 if x > 0, -1 if x < 0, else 0", _sign, "NaN gives 0"),
    Row("floor", "the greatest integer <= x", lambda x: np.floor(x) if _is_float(x) else x),
    Row("ceil", "the least integer >= x", lambda x: np.ceil(x) if _is_float(x) else x),
    Row("trunc", "x without its fraction", lambda x: np.trunc(x) if _is_float(x) else x),
    Row("round", "the nearest integer, half away from zero", round_away, "numpy rounds half to even"),
    Row("exp", "e ** x", np.exp, dtypes=FLOATS),
    Row("log", "natural logarithm; 0 gives -inf, x < 0 NaN", np.log, dtypes=FLOATS),
    Row("log2", "binary logarithm; 0 gives -inf, x < 0 NaN", np.log2, dtypes=FLOATS),
    Row("log10", "decimal logarithm; 0 gives -inf, x < 0 NaN", np.log10, dtypes=FLOATS),
    Row("sin", "sine", np.sin, dtypes=FLOATS),
    Row("cos", "cosine", np.cos, dtypes=FLOATS),
    Row("tan", "tangent", np.tan, dtypes=FLOATS),
    Row("sinh", "hyperbolic sine", np.sinh, dtypes=FLOATS),
    Row("cosh", "hyperbolic cosine", np.cosh, dtypes=FLOATS),
    Row("asin", "arc sine; |x| > 1 gives NaN", np.arcsin, "numpy's arcsin", FLOATS),
    Row("acos", "arc cosine; |x| > 1 gives NaN", np.arccos, "numpy's arccos", FLOATS),
    Row("atan", "arc tangent", np.arctan, "numpy's arctan", FLOATS),
    Row("asinh", "inverse hyperbolic sine", np.arcsinh, "numpy's arcsinh", FLOATS),
    Row("acosh", "inverse hyperbolic cosine; x < 1 gives NaN", np.arccosh, "numpy's arccosh", FLOATS),
    Row("atanh", "inverse hyperbolic tangent; |x| > 1 gives NaN", np.arctanh, "numpy's arctanh", FLOATS),
    Row("erf", "the error function", _erf, "numpy has no such function", FLOATS),
    Row("sqrt", "square root; x < 0 gives NaN", np.sqrt, dtypes=FLOATS),
    Row("rsqrt", "1 / sqrt(x)", lambda x: 1 / np.sqrt(x), "numpy has no such function", FLOATS),
    Row("tanh", "hyperbolic tangent", np.tanh, dtypes=FLOATS),
    Row("sigmoid", "1 / (1 + e ** -x)", _sigmoid, "numpy has no such function", FLOATS),
    Row("nn.relu", "max(x, 0); NaN stays NaN", _relu, "numpy has no such function"),
    Row("copy", "x", lambda x: x, dtypes=ALL),
    Row("logical_not", "not x", np.logical_not, "bool operands only", BOOL),
    Row("bitwise_not", "~x; bool: not x", np.bitwise_not, dtypes=INTEGERS + BOOL),
    Row("isnan", "whether x is NaN; an integer never is", np.isnan, result="bool"),
    Row("isinf", "whether x is infinite; an integer never is", np.isinf, result="bool"),
    Row("isfinite", "whether x is neither NaN nor infinite", np.isfinite, result="bool"),
)  # fmt: skip
ROWS = {row.name: row for row in TABLE}


def _relation(row: Row) -> Callable[[TypeContext, tuple[Type, ...], Any], Type]:
    def relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
        data = tensor_of(ctx, arg_types, 0, row.dtypes)
        return TensorType(data.shape, row.result or data.dtype)

    return relation


def _reference(row: Row) -> Callable[[tuple[Array, ...], Any, Type], Array]:
    def reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
        (data,) = inputs
        with np.errstate(all="ignore"):
            return rounded(row.function(as_compute(data)), row.result or dtype_name(data))

    return reference


def _doc(row: Row) -> str:
    return (
        f"{row.name}(data): out = {row.formula}   (x = data)\n\n"
        f"data: a tensor of any shape; result: the same shape and {row.result or 'dtype'}.\n"
        f"Dtypes: {', '.join(row.dtypes)}.\nDiffers from numpy: {row.differs}."
    )


for _row in TABLE:
    register(
        Op(
            name=_row.name,
            args=("data",),
            relation=_relation(_row),
            reference=_reference(_row),
            pattern=OpPattern.ELEMWISE,
            effect=Effect.TOTAL,
            dtypes=(_row.dtypes,),
            doc=_doc(_row),
        )
    )
