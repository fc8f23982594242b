"""Walks over loop IR, iterative in expressions: substitute values, visit everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from nimblevm.kernels.loop_ir import (
    Accumulate,
    Barrier,
    Binary,
    ByteProduct,
    ByteWindows,
    Cast,
    CheckIndex,
    Compare,
    Const,
    DimRef,
    For,
    If,
    Load,
    Local,
    LoopVar,
    PackPanels,
    PanelProduct,
    Part,
    Product,
    Select,
    SetDim,
    SetLocal,
    Statement,
    Store,
    Unary,
    Value,
    WindowProduct,
)


def parts(value: Value) -> tuple[Value, ...]:
    """The operands of a value."""
    match value:
        case Const() | LoopVar() | Local() | DimRef():
            return ()
        case Load(indices=indices):
            return indices
        case Unary(operand=operand) | Cast(operand=operand):
            return (operand,)
        case Binary(lhs=lhs, rhs=rhs) | Compare(lhs=lhs, rhs=rhs):
            return (lhs, rhs)
        case Select(cond=cond, if_true=true, if_false=false):
            return (cond, true, false)
        case CheckIndex(index=index, bound=bound):
            return (index, bound)
    raise TypeError(f"unknown value {type(value).__name__}")


def with_parts(value: Value, new: Sequence[Value]) -> Value:
    """The same operation on other operands."""
    match value:
        case Const() | LoopVar() | Local() | DimRef():
            return value
        case Load(dtype=dtype, buffer=buffer):
            return Load(dtype, buffer, tuple(new))
        case Unary(dtype=dtype, op=op):
            return Unary(dtype, op, new[0])
        case Cast(dtype=dtype):
            return Cast(dtype, new[0])
        case Binary(dtype=dtype, op=op):
            return Binary(dtype, op, new[0], new[1])
        case Compare(dtype=dtype, op=op):
            return Compare(dtype, op, new[0], new[1])
        case Select(dtype=dtype):
            return Select(dtype, new[0], new[1], new[2])
        case CheckIndex(dtype=dtype, operand=operand):
            return CheckIndex(dtype, new[0], new[1], operand)
    raise TypeError(f"unknown value {type(value).__name__}")


def values_of(statement: Statement) -> tuple[Value, ...]:
    """The values that a statement itself evaluates (not those of statements inside)."""
    match statement:
        case For(extent=extent):
            return (extent,)
        case Store(indices=indices, value=value):
            return (*indices, value)
        case SetLocal(value=value) | Accumulate(value=value) | SetDim(value=value):
            return (value,)
        case If(cond=cond):
            return (cond,)
        case Barrier() | Part():
            return ()
        case PackPanels():
            both = (statement.target, statement.source)
            return (*both, statement.panel, statement.row, statement.count, statement.depth)
        case PanelProduct():
            sizes = (statement.depth, statement.rows, statement.panels)
            strides = (statement.x_row, statement.w_step, statement.w_panel)
            following = () if statement.following is None else (statement.following,)
            blocks = () if statement.blocks is None else (statement.blocks,)
            other = statement.beside
            beside: tuple[Value, ...] = ()
            if other is not None:
                sizes2 = (other.depth, other.rows, other.panels)
                beside = (other.x, other.w, other.x_row, other.w_step, other.w_panel, *sizes2)
            return (statement.x, statement.w, *strides, *sizes, *following, *blocks, *beside)
        case ByteProduct():
            counts = (statement.depth, statement.rows, statement.columns)
            return (statement.x, statement.x_row, statement.w, statement.w_row, *counts)
        case ByteWindows():
            counts = (statement.depth, statement.rows, statement.panels)
            return (statement.x, statement.w, statement.w_row, *counts, statement.more)
        case WindowProduct():
            steps = [value for step in statement.steps for value in step]
            counts = (statement.depth, statement.rows, statement.panels)
            return (statement.x, statement.w, statement.w_panel, *steps, *counts)
    raise TypeError(f"unknown statement {type(statement).__name__}")


def tiles(statement: Product) -> set[int]:
    """The tiles that a product writes."""
    beside = statement.beside if isinstance(statement, PanelProduct) else None
    return {statement.tile} if beside is None else {statement.tile, beside.tile}


def blocks_of(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The blocks inside a statement."""
    match statement:
        case For(body=body) | Part(body=body):
            return (body,)
        case If(then=then, otherwise=otherwise):
            return (then, otherwise)
        case _:
            return ()


def all_statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """Every statement, outer ones first."""
    stack = list(reversed(body))
    while stack:
        statement = stack.pop()
        yield statement
        for block in reversed(blocks_of(statement)):
            stack.extend(reversed(block))


def replace_loops(
    body: Sequence[Statement], made: Callable[[For], Sequence[Statement] | None]
) -> tuple[Statement, ...]:
    """The statements with what `made` gives for a loop in its place; where that is None the loop's body is looked at.

    Loops and branches nest at most 32 deep, so this recurses.
    """
    found: list[Statement] = []
    for statement in body:
        match statement:
            case For():
                new = made(statement)
                if new is None:
                    new = (statement.around(replace_loops(statement.body, made)),)
                found += new
            case If(cond=cond, then=then, otherwise=otherwise):
                found.append(If(cond, replace_loops(then, made), replace_loops(otherwise, made)))
            case _:
                found.append(statement)
    return tuple(found)


def all_values(roots: Sequence[Value], seen: set[Value] | None = None) -> Iterator[Value]:
    """Every value under `roots` once, operands before users."""
    done = set() if seen is None else seen
    stack: list[tuple[Value, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        value, ready = stack.pop()
        if value in done:
            continue
        if ready:
            done.add(value)
            yield value
            continue
        stack.append((value, True))
        stack.extend((part, False) for part in reversed(parts(value)) if part not in done)


class Rewriter:
    """Replaces values in statements: `leaf` maps a value to its replacement or None; results are memoised."""

    def __init__(self, replace: Callable[[Value], Value | None]) -> None:
        self._replace = replace
        self._memo: dict[Value, Value] = {}
        self._done: set[Value] = set()  # its keys, as all_values takes them

    def value(self, root: Value) -> Value:
        for value in all_values((root,), self._done):
            found = self._replace(value)
            if found is None:
                old = parts(value)
                new = [self._memo[part] for part in old]
                same = all(a is b for a, b in zip(old, new, strict=True))
                found = value if same else with_parts(value, new)
            self._memo[value] = found
        return self._memo[root]

    def block(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        """Statements nest at most as deep as loops do (32), so this recurses."""
        return tuple(self.statement(s) for s in body)

    def statement(self, statement: Statement) -> Statement:
        match statement:
            case For(var=var, extent=extent, body=body, parallel=parallel, masked=masked):
                new_var = self._replace(var)
                bound = new_var if isinstance(new_var, LoopVar) else var
                return For(
                    bound, self.value(extent), self.block(body), parallel=parallel, masked=masked
                )
            case Store(buffer=buffer, indices=indices, value=value):
                return Store(buffer, tuple(map(self.value, indices)), self.value(value))
            case SetLocal(local=local, value=value):
                return SetLocal(self._local(local), self.value(value))
            case Accumulate(local=local, op=op, value=value):
                return Accumulate(self._local(local), op, self.value(value))
            case If(cond=cond, then=then, otherwise=otherwise):
                return If(self.value(cond), self.block(then), self.block(otherwise))
            case Part(body=body):
                return Part(self.block(body))
            case SetDim(index=index, value=value):
                return SetDim(index, self.value(value))
            case Barrier():
                return statement
        raise TypeError(f"unknown statement {type(statement).__name__}")

    def _local(self, local: Local) -> Local:
        found = self._replace(local)
        return found if isinstance(found, Local) else local


__all__ = [
    "Rewriter", "all_statements", "all_values", "blocks_of", "parts", "replace_loops", "tiles", "values_of",
    "with_parts",
]  # fmt: skip
