"""How an operator call becomes code: as integer instructions, as a view, as shape instructions, or
as a kernel.

fuse_ops and emit must agree on this, so it stands here once.
"""

from __future__ import annotations

import enum

from nimblevm import dtypes
from nimblevm.compiler.rewrite import type_of
from nimblevm.relay.ir import Call, Expr
from nimblevm.relay.op.device import ANNOTATIONS
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, Type


class OpClass(enum.Enum):
    """What emit does with an operator call."""

    SCALAR = "integer instructions"
    VIEW = "ReshapeTensor"
    DIRECT = "instructions of its own (vm.*, memory.*, shape_of)"
    KERNEL = "a kernel"


ARITHMETIC: dict[str, str] = {
    "add": "IntAdd", "subtract": "IntSub", "multiply": "IntMul", "divide": "IntDiv", "trunc_divide": "IntDiv",
    "mod": "IntMod", "trunc_mod": "IntMod", "floor_divide": "IntFloorDiv", "floor_mod": "IntFloorMod",
    "minimum": "IntMin", "maximum": "IntMax", "bitwise_and": "IntAnd", "bitwise_or": "IntOr", "bitwise_xor": "IntXor",
    "logical_and": "IntAnd", "logical_or": "IntOr", "logical_xor": "IntXor",
}  # fmt: skip
"""Operators of two scalars whose instruction carries the dtype."""

COMPARISON: dict[str, tuple[str, bool]] = {
    "equal": ("IntEq", False), "not_equal": ("IntNe", False), "less": ("IntLt", False),
    "less_equal": ("IntLe", False), "greater": ("IntLt", True), "greater_equal": ("IntLe", True),
}  # fmt: skip
"""Operators of two scalars that give a bool; True: operands change places."""

UNARY = frozenset(
    {
        "logical_not",
        "negative",
        "abs",
        "bitwise_not",
        "copy",
        "cast",
        "floor",
        "ceil",
        "round",
        "trunc",
    }
)
SCALAR_OPS = frozenset({*ARITHMETIC, *COMPARISON, *UNARY, "where"})

DIRECT_OPS = frozenset({"shape_of", *ANNOTATIONS})


def is_int(type_: Type | None) -> bool:
    """Whether a value of this type may live in an int register: a rank-0 integer or bool, uint64
    excepted.
    """
    return isinstance(type_, TensorType) and not type_.shape and dtypes.dtype(type_.dtype).unboxable


def is_direct(op: Op) -> bool:
    return op.name.startswith(("vm.", "memory.")) or op.name in DIRECT_OPS


def class_of(value: Expr, unbox: bool) -> OpClass | None:
    """The class of an operator call; None for everything else."""
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return None
    op = value.op
    if is_direct(op):
        return OpClass.DIRECT
    if (
        unbox
        and op.name in SCALAR_OPS
        and is_int(value.checked_type)
        and all(is_int(type_of(a)) for a in value.args)
    ):
        return OpClass.SCALAR
    if op.views and isinstance(type_of(value.args[0]), TensorType):
        return OpClass.VIEW
    return OpClass.KERNEL
