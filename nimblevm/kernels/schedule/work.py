"""How long loops take, roughly: for deciding what is worth handing to other threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nimblevm import dtypes
from nimblevm.kernels.facts import divides
from nimblevm.kernels.loop_ir import (
    Accumulate,
    Binary,
    ByteProduct,
    ByteWindows,
    Cast,
    CheckIndex,
    Const,
    For,
    If,
    Load,
    Local,
    LoopVar,
    PackPanels,
    PanelProduct,
    Part,
    SetLocal,
    Statement,
    Store,
    Unary,
    Value,
    WindowProduct,
)
from nimblevm.kernels.rewrite import all_statements, all_values, parts, values_of, with_parts
from nimblevm.kernels.schedule.index import INDEX, const, folded, mentions

Work = dict[tuple[Value, ...], float]
"""A sum of products: sizes (none of them a literal) -> ns a turn of loops of these sizes."""

# ns an element of float32 in a loop of vectors, measured on a core of Zen 4 (512-bit).
_SIMPLE, _MEMORY, _SUM, _STRIDED, _HALF = 0.015, 0.035, 0.015, 0.4, 0.2
_DIVISION, _CHECK, _TO_INTEGER = 0.45, 0.1, 0.7
_CHEAP_UNARY = ("neg", "abs", "sqrt", "rsqrt", "floor", "ceil", "trunc", "round", "sign", "bitnot",
                "not", "isnan", "isinf", "isfinite", "bits")  # fmt: skip
_MATH = {"exp": 0.3, "log": 0.4, "log2": 0.4, "log10": 0.4, "sigmoid": 0.4, "tanh": 0.5, "erf": 0.8}
_HARD = 4.0
"""The other functions: sin, pow, ..."""
_SCALAR = 3.0
"""How much longer elements take one by one."""
_UNKNOWN = const(16)
"""For a size that is read from memory."""
_WEIGHT, _PRODUCT, _PACK = 0.03, 0.018, 0.1
"""ns to read a float32 weight of a panel, to multiply it into one row's sum, and to copy one into a panel."""


def work_of(body: Sequence[Statement]) -> Work:
    """An estimate of the time that statements take once, in terms of dims and of locals that are set before."""
    found: Work = {}
    inside = {s.local for s in all_statements(body) if isinstance(s, SetLocal | Accumulate)}
    _add(body, dict.fromkeys(inside, _UNKNOWN), (), 1.0, found)
    return found


def _add(
    body: Sequence[Statement],
    middle: Mapping[Value, Value],
    sizes: tuple[Value, ...],
    factor: float,
    found: Work,
    inner: LoopVar | None = None,
) -> None:
    """Statements nest at most 32 deep, so this recurses. middle: a usual value of each loop variable, and of
    locals that are set inside; inner: the variable of the loop around, if no other is inside.
    """
    seen: set[Value] = set()
    for statement in body:
        match statement:
            case For(var=var, extent=extent, body=inside, parallel=parallel):
                size = _usual(extent, middle)
                half = _usual(folded("floordiv", size, const(2)), {})
                leaf = not any(isinstance(s, For) for s in all_statements(inside))
                slow = _SCALAR if leaf and not _is_vector(inside, parallel) else 1.0
                around, more = _times(sizes, size, factor * slow)
                _add(inside, {**middle, var: half}, around, more, found, var if leaf else None)
            case If(then=then, otherwise=otherwise):
                _add((*then, *otherwise), middle, sizes, factor, found, inner)
            case Part(body=inside):
                _add(inside, middle, sizes, factor, found, inner)
            case PackPanels():
                around, more = _times(sizes, _usual(statement.count, middle), factor)
                around, more = _times(around, _usual(statement.depth, middle), more)
                found[around] = found.get(around, 0.0) + more * _PACK
            case ByteProduct():
                around, more = _times(sizes, _usual(statement.depth, middle), factor / 4)
                around, more = _times(around, _usual(statement.columns, middle), more)
                found[around] = found.get(around, 0.0) + more * _WEIGHT
                around, more = _times(around, _usual(statement.rows, middle), more)
                found[around] = found.get(around, 0.0) + more * _PRODUCT
            case ByteWindows():
                around, more = _times(sizes, _usual(statement.depth, middle), factor / 4 * 16)
                for size in (statement.panels, statement.rows):
                    around, more = _times(around, _usual(size, middle), more)
                found[around] = found.get(around, 0.0) + more * _PRODUCT
            case WindowProduct(steps=((outer, _), (inner_count, _))):
                around, more = _times(sizes, _usual(statement.depth, middle), factor * 16)
                for size in (outer, inner_count, statement.panels, statement.rows):
                    around, more = _times(around, _usual(size, middle), more)
                found[around] = found.get(around, 0.0) + more * _PRODUCT
            case PanelProduct():
                around, more = _times(sizes, _usual(statement.depth, middle), factor * 16)
                around, more = _times(around, _usual(statement.panels, middle), more)
                found[around] = found.get(around, 0.0) + more * _WEIGHT
                around, more = _times(around, _usual(statement.rows, middle), more)
                found[around] = found.get(around, 0.0) + more * _PRODUCT
                # What is beside takes half as long as by itself; mostly there is something.
                if statement.beside is not None and isinstance(statement.beside.depth, Const):
                    depth = float(statement.beside.depth.value)
                    found[sizes] = found.get(sizes, 0.0) + factor * depth * 256 * _PRODUCT / 2
            case _:
                found[sizes] = found.get(sizes, 0.0) + factor * _once(statement, inner, seen)


def _times(sizes: tuple[Value, ...], size: Value, factor: float) -> tuple[tuple[Value, ...], float]:
    if isinstance(size, Const):
        return sizes, factor * float(size.value)
    return (*sizes, size), factor


def _is_vector(body: Sequence[Statement], parallel: bool) -> bool:
    """Whether LLVM makes vectors of a loop with this body, probably."""
    if any(isinstance(s, If) or (isinstance(s, Store) and not parallel) for s in body):
        return False
    values = all_values([v for s in body for v in values_of(s)])
    return not any(isinstance(v, CheckIndex) for v in values)


def _once(statement: Statement, inner: LoopVar | None, seen: set[Value]) -> float:
    """ns that a statement without blocks takes."""
    values = list(all_values(values_of(statement), seen))
    if isinstance(statement, Accumulate) or _adds_to_tile(statement):
        # What sums read is mostly in the first-level cache or in registers, read for several sums at once.
        return _SUM + sum(_cost(v) for v in values if not isinstance(v, Load))
    cost = sum(map(_cost, values))
    rows = [v.indices for v in values if isinstance(v, Load)]
    if isinstance(statement, Store):
        cost += _MEMORY * dtypes.dtype(statement.value.dtype).itemsize / 4
        cost += _HALF if statement.value.dtype == "float16" else 0.0
        rows.append(statement.indices)
    if inner is not None:
        strided = [row for row in rows if any(mentions(index, inner) for index in row[:-1])]
        cost += _STRIDED * len(strided)
    return cost


def _adds_to_tile(statement: Statement) -> bool:
    """Whether this is a sum in a tile on the stack, as lanes.py makes them."""
    if not isinstance(statement, Store) or not isinstance(statement.value, Binary):
        return False
    old = statement.value.lhs
    return (
        isinstance(old, Load)
        and old.buffer == statement.buffer
        and all(a is b for a, b in zip(old.indices, statement.indices, strict=True))
    )


def _cost(value: Value) -> float:
    row = dtypes.dtype(value.dtype)
    wide = row.itemsize / 4
    match value:
        case Load():
            return _HALF if value.dtype == "float16" else _MEMORY * wide
        case Unary(op=op):
            return (_SIMPLE if op in _CHEAP_UNARY else _MATH.get(op, _HARD)) * wide
        case Binary(op=op):
            if op == "pow" or (op in ("mod", "floormod", "floordiv") and row.is_float):
                return _HARD * wide
            if divides(value) and not isinstance(value.rhs, Const):
                return _DIVISION
            # Index arithmetic is moved out of loops, or part of an address.
            return 0.0 if value.dtype == INDEX else _SIMPLE * wide
        case Cast(operand=operand) if dtypes.dtype(operand.dtype).is_float and not row.is_float:
            return _TO_INTEGER
        case CheckIndex():
            return _CHECK
        case _:
            return 0.0


def _usual(size: Value, middle: Mapping[Value, Value]) -> Value:
    """A size in terms of dims and locals from outside: loop variables are in the middle of their ranges."""
    memo: dict[Value, Value] = {}
    for value in all_values((size,)):
        new = [memo[part] for part in parts(value)]
        match value:
            case LoopVar():
                memo[value] = middle.get(value, _UNKNOWN)
            case Local():
                memo[value] = middle.get(value, value)
            case Load():
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
