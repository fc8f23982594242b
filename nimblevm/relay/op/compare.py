"""Comparisons with broadcasting: one table.

    out[i] = lhs[i] ? rhs[i]        shapes broadcast by numpy's rule; operands of one dtype, result bool

A comparison with NaN is False, not_equal is True. Source: Relay's `_tensor.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay.op.common import (
    ALL,
    BOOL,
    Array,
    check_broadcastable,
    rounded,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class Row:
    """One operator with a bool result."""

    name: str
    formula: str
    function: Callable[[Array, Array], Any]
    dtypes: tuple[str, ...] = ALL


TABLE: tuple[Row, ...] = (
    Row("equal", "lhs == rhs", np.equal),
    Row("not_equal", "lhs != rhs", np.not_equal),
    Row("less", "lhs < rhs", np.less),
    Row("less_equal", "lhs <= rhs", np.less_equal),
    Row("greater", "lhs > rhs", np.greater),
    Row("greater_equal", "lhs >= rhs", np.greater_equal),
    Row("logical_and", "lhs and rhs", np.logical_and, BOOL),
    Row("logical_or", "lhs or rhs", np.logical_or, BOOL),
    Row("logical_xor", "lhs != rhs", np.logical_xor, BOOL),
)


def _relation(allowed: tuple[str, ...]) -> Callable[[TypeContext, tuple[Type, ...], Any], Type]:
    def relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
        lhs = tensor_of(ctx, arg_types, 0, allowed)
        rhs = tensor_of(ctx, arg_types, 1, allowed)
        same_dtype(ctx, lhs, rhs, 1)
        return TensorType(ctx.broadcast(((0, lhs.shape), (1, rhs.shape))), "bool")

    return relation


def _reference(row: Row) -> Callable[[tuple[Array, ...], Any, Type], Array]:
    def reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
        lhs, rhs = inputs
        check_broadcastable(row.name, lhs, rhs)
        with np.errstate(all="ignore"):
            return rounded(row.function(lhs, rhs), "bool")

    return reference


def _doc(row: Row) -> str:
    differs = "none" if row.dtypes is ALL else "bool operands only"
    return (
        f"{row.name}(lhs, rhs): out = {row.formula}\n\n"
        "lhs, rhs: tensors of one dtype whose shapes broadcast; result: the broadcast shape, bool.\n"
        f"Dtypes: {', '.join(row.dtypes)}.\nDiffers from numpy: {differs}."
    )


for _row in TABLE:
    register(
        Op(
            name=_row.name,
            args=("lhs", "rhs"),
            relation=_relation(_row.dtypes),
            reference=_reference(_row),
            pattern=OpPattern.BROADCAST,
            effect=Effect.TOTAL,
            dtypes=(_row.dtypes,),
            doc=_doc(_row),
        )
    )
