"""How long loops take, roughly: for deciding what is worth handing to other threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nimblevm import dtypes
from nimblevm.kernels.facts import divides
from nimblevm.kernels.loop_ir import (
    Binary,
    CheckIndex,
    Const,
    For,
    If,
    Load,
    Local,
    LoopVar,
    PackPanels,
    PanelProduct,
    Statement,
    Unary,
    Value,
)
from nimblevm.kernels.rewrite import all_statements, all_values, parts, values_of, with_parts
from nimblevm.kernels.schedule.index import INDEX, const, folded

Work = dict[tuple[Value, ...], float]
"""A sum of products: sizes (none of them a literal) -> ns a turn of loops of these sizes."""

# ns an element of float32 in a loop of vectors, measured on a core of Zen 4 (512-bit) at 3.7 GHz.
_SIMPLE, _MEMORY, _MATH, _HARD, _DIVISION, _CHECK = 0.015, 0.04, 0.35, 1.5, 1.0, 0.4
_CHEAP_UNARY = ("neg", "abs", "sqrt", "rsqrt", "floor", "ceil", "trunc", "round", "sign", "bitnot",
                "not", "isnan", "isinf", "isfinite", "bits")  # fmt: skip
_LIKE_EXP = ("exp", "log", "log2", "log10", "tanh", "sigmoid", "erf")
_SCALAR = 6.0
"""How much longer elements take one by one."""
_UNKNOWN = const(16)
"""For a size that is read from memory."""
_WEIGHT, _PRODUCT, _PACK = 0.03, 0.018, 0.1
"""ns to read a float32 weight of a panel, to multiply it into one row's sum, and to copy one into a panel."""


def work_of(body: Sequence[Statement]) -> Work:
    """An estimate of the time that statements take once."""
    found: Work = {}
    _add(body, {}, (), 1.0, found)
    return found


def _add(
    body: Sequence[Statement],
    middle: Mapping[LoopVar, Value],
    sizes: tuple[Value, ...],
    factor: float,
    found: Work,
) -> None:
    """Statements nest at most 32 deep, so this recurses. middle: a usual value of each loop variable."""
    seen: set[Value] = set()
    for statement in body:
        match statement:
            case For(var=var, extent=extent, body=inside):
                size = _usual(extent, middle)
                half = _usual(folded("floordiv", size, const(2)), {})
                leaf = not any(isinstance(s, For) for s in all_statements(inside))
                slow = _SCALAR if leaf and not _is_vector(inside) else 1.0
                around, more = _times(sizes, size, factor * slow)
                _add(inside, {**middle, var: half}, around, more, found)
            case If(then=then, otherwise=otherwise):
                _add((*then, *otherwise), middle, sizes, factor, found)
            case PackPanels():
                around, more = _times(sizes, _usual(statement.count, middle), factor)
                around, more = _times(around, _usual(statement.depth, middle), more)
                found[around] = found.get(around, 0.0) + more * _PACK
            case PanelProduct():
                around, more = _times(sizes, _usual(statement.depth, middle), factor * 16)
                around, more = _times(around, _usual(statement.panels, middle), more)
                found[around] = found.get(around, 0.0) + more * _WEIGHT
                around, more = _times(around, _usual(statement.rows, middle), more)
                found[around] = found.get(around, 0.0) + more * _PRODUCT
            case _:
                wide = _MEMORY + sum(map(_cost, all_values(values_of(statement), seen)))
                found[sizes] = found.get(sizes, 0.0) + factor * wide


def _times(sizes: tuple[Value, ...], size: Value, factor: float) -> tuple[tuple[Value, ...], float]:
    if isinstance(size, Const):
        return sizes, factor * float(size.value)
    return (*sizes, size), factor


def _is_vector(body: Sequence[Statement]) -> bool:
    """Whether LLVM makes vectors of a loop with this body, probably."""
    if any(isinstance(s, If) for s in body):
        return False
    values = all_values([v for s in body for v in values_of(s)])
    return not any(isinstance(v, CheckIndex) for v in values)


def _cost(value: Value) -> float:
    row = dtypes.dtype(value.dtype)
    wide = row.itemsize / 4
    match value:
        case Load():
            return _MEMORY * wide
        case Unary(op=op):
            if op in _CHEAP_UNARY:
                return _SIMPLE * wide
            return (_MATH if op in _LIKE_EXP else _HARD) * wide
        case Binary(op=op):
            if op == "pow" or (op in ("mod", "floormod", "floordiv") and row.is_float):
                return _HARD * wide
            if divides(value) and not isinstance(value.rhs, Const):
                return _DIVISION
            # Index arithmetic is moved out of loops, or part of an address.
            return 0.0 if value.dtype == INDEX else _SIMPLE * wide
        case CheckIndex():
            return _CHECK
        case _:
            return 0.0


def _usual(size: Value, middle: Mapping[LoopVar, Value]) -> Value:
    """A size in terms of dims: loop variables are in the middle of their ranges."""
    memo: dict[Value, Value] = {}
    for value in all_values((size,)):
        new = [memo[part] for part in parts(value)]
        match value:
            case LoopVar():
                memo[value] = middle.get(value, _UNKNOWN)
            case Local() | Load():
                memo[value] = _UNKNOWN
            case CheckIndex():
                memo[value] = new[0]
            case Binary(op=op, dtype="int64"):
                memo[value] = _folded(op, new[0], new[1])
            case _:
                same = all(a is b for a, b in zip(new, parts(value), strict=True))
                memo[value] = value if same else with_parts(value, new)
    return memo[size]


def _folded(op: str, lhs: Value, rhs: Value) -> Value:
    if isinstance(lhs, Const) and isinstance(rhs, Const):
        a, b = int(lhs.value), int(rhs.value)
        if op in ("min", "max"):
            return const(min(a, b) if op == "min" else max(a, b))
        if op in ("div", "mod", "floordiv", "floormod") and b <= 0:
            return _UNKNOWN
    # A divisor that may be 0 would be a fault of the estimate.
    if op in ("div", "mod", "floordiv", "floormod") and not isinstance(rhs, Const):
        return _UNKNOWN
    return folded(op, lhs, rhs)


__all__ = ["Work", "work_of"]
