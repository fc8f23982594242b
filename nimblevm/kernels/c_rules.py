"""Which operators C kernels compute: rules by operator name, entered by the modules of kernels/compute.

A rule says for one call which kernel of kernels/c_kernels.py computes it and in which shapes it takes the
operands. For some operators the C kernel is the only computation (sort, non_max_suppression): fuse_ops gives each
operand of such a call a parameter of its own, and no loop IR is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nimblevm.kernels.c_kernels import BY_VARIANT
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call, Expr, Function
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType


@dataclass(frozen=True, slots=True)
class CCall:
    """A C kernel that computes the same (kernels/c_kernels.py).

    name            its variant, as the file's kernel table and the registry name it
    dims, attrs     what to pass: dims of the function, and constants for the kernel table entry
    shapes          the shapes in which the operands (flat parameters, then outputs) are to be
    viewed
    """

    name: str
    dims: tuple[Dim, ...]
    attrs: tuple[int, ...]
    shapes: tuple[tuple[Dim, ...], ...]

    @property
    def scratch(self) -> tuple[TensorType, ...]:
        """The scratch buffers to allocate, in the dims of the function."""
        row, dtype = BY_VARIANT[self.name]
        sizes: dict[str, Dim] = dict(
            zip((*row.dims, *row.attrs), (*self.dims, *self.attrs), strict=True)
        )
        return tuple(
            TensorType(
                tuple(a if isinstance(a, int) else sizes[a] for a in operand.axes),
                dtype if operand.dtype == "T" else operand.dtype,
            )
            for operand in row.operands
            if operand.role == "scratch"
        )


Rule = Callable[[Call], CCall | None]

_RULES: dict[str, Rule] = {}
_ONLY: set[str] = set()


def register_c_call(op: str, rule: Rule, only: bool = False) -> None:
    """Say which C kernel computes an operator; `only`: nothing else does."""
    if op in _RULES:
        raise ValueError(f"operator {op} has two rules for C kernels")
    _RULES[op] = rule
    if only:
        _ONLY.add(op)


def find_c_rule(op: str) -> Rule | None:
    """The rule of an operator, or None."""
    return _RULES.get(op)


def is_c_only(op: str) -> bool:
    """Whether only a C kernel computes an operator."""
    return op in _ONLY


def calls_c_only(expr: Expr) -> bool:
    """Whether an expression, or the body of a fused function, is a call of such an operator."""
    body = expr.body if isinstance(expr, Function) else expr
    return isinstance(body, Call) and isinstance(body.op, Op) and body.op.name in _ONLY


__all__ = ["CCall", "Rule", "calls_c_only", "find_c_rule", "is_c_only", "register_c_call"]
