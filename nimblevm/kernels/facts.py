"""What can be read off a kernel's body: what it loads and stores, which operands may share storage, whether it can
fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nimblevm import dtypes
from nimblevm.kernels.loop_ir import (
    Accumulate,
    Binary,
    CheckIndex,
    Const,
    For,
    Kernel,
    Load,
    Local,
    LoopVar,
    SetLocal,
    Statement,
    Store,
    Value,
)
from nimblevm.kernels.panel_tile import LANES
from nimblevm.kernels.rewrite import all_statements, all_values, parts, values_of
from nimblevm.relay.types import TensorType


def loads_of(body: Sequence[Statement]) -> Iterator[Load]:
    """Every load once, in order."""
    seen: set[Value] = set()
    for statement in all_statements(body):
        for value in all_values(values_of(statement), seen):
            if isinstance(value, Load):
                yield value


def stored(body: Sequence[Statement]) -> set[int]:
    """Numbers of the buffers that Stores write."""
    return {s.buffer for s in all_statements(body) if isinstance(s, Store)}


def touched(body: Sequence[Statement]) -> set[int]:
    """Numbers of the buffers that are loaded or stored."""
    return stored(body) | {load.buffer for load in loads_of(body)}


def is_of_dims(extent: Value) -> bool:
    """Whether a size is known before any loop."""
    stack = [extent]
    while stack:
        value = stack.pop()
        if isinstance(value, LoopVar | Local | Load):
            return False
        stack.extend(parts(value))
    return True


def at_most(value: Value, limit: int) -> bool:
    """Whether a size is provably not above a limit."""
    if isinstance(value, Const):
        return value.value <= limit
    return (
        isinstance(value, Binary)
        and value.op == "min"
        and any(isinstance(v, Const) and v.value <= limit for v in (value.lhs, value.rhs))
    )


def lanes_of(body: Sequence[Statement]) -> int:
    """Elements of a vector of 64 bytes, of the widest kind that a loop's body writes."""
    sizes = [4]
    for statement in all_statements(body):
        if isinstance(statement, SetLocal | Accumulate):
            sizes.append(dtypes.dtype(statement.local.dtype).itemsize)
        elif isinstance(statement, Store):
            sizes.append(dtypes.dtype(statement.value.dtype).itemsize)
    return 64 // max(sizes)


def is_of_vectors(loop: For) -> bool:
    """Whether a loop's turns are whole vectors of 16 elements, however many: written as x * 16. Sizes of operands are
    not, whatever their dims: callers compute them. So these are loops over padded scratch, as attention's over keys.
    """
    extent = loop.extent
    if not isinstance(extent, Binary) or extent.op != "mul" or isinstance(extent.lhs, Const):
        return False
    return isinstance(extent.rhs, Const) and extent.rhs.value == LANES


def pitches(kernel: Kernel) -> dict[tuple[int, int], int]:
    """(buffer, axis) of each broadcast axis -> its place among the dims of a call, behind the kernel's own."""
    axes = (
        (n, a)
        for n, b in enumerate(kernel.buffers)
        for a, axis in enumerate(b.axes)
        if axis.broadcast
    )
    return {axis: len(kernel.dims) + number for number, axis in enumerate(axes)}


def aliases(
    body: tuple[Statement, ...],
    params: Sequence[TensorType],
    outs: Sequence[TensorType],
    last_stored: Sequence[int],
    single_nest: bool,
) -> tuple[tuple[int, int], ...]:
    """Output and input pairs where each element is read only at its own index, before it is written.

    An output that is stored in several places (scatter copies data and then writes updates) shares with none: what is
    read in the later place is gone after the first.
    """
    stores: dict[int, tuple[Value, ...]] = {}
    twice: set[int] = set()
    for statement in all_statements(body):
        if isinstance(statement, Store):
            if statement.buffer in stores:
                twice.add(statement.buffer)
            stores[statement.buffer] = statement.indices
    loads: dict[int, set[tuple[Value, ...]]] = {}
    for load in loads_of(body):
        loads.setdefault(load.buffer, set()).add(load.indices)
    found: list[tuple[int, int]] = []
    taken: set[int] = set()
    for position in last_stored:
        out = len(params) + position
        index = stores.get(out)
        varies = index is not None and any(not isinstance(i, Const) for i in index)
        if index is None or out in twice or not (varies or single_nest):
            continue
        for number, type_ in enumerate(params):
            if type_ is outs[position] and number not in taken and loads.get(number) == {index}:
                found.append((out, number))
                taken.add(number)
                break
    return tuple(found)


def may_fail(kernel: Kernel) -> bool:
    """Whether a kernel can report a fault: a checked index, or an integer division by what may be zero."""
    seen: set[Value] = set()
    for statement in all_statements(kernel.body):
        for value in all_values(values_of(statement), seen):
            if isinstance(value, CheckIndex):
                return True
            if isinstance(value, Binary) and divides(value) and not nonzero(value.rhs):
                return True
    return False


def divides(value: Binary) -> bool:
    """Whether this is an integer division or remainder."""
    return (
        value.op in ("div", "mod", "floordiv", "floormod")
        and not dtypes.dtype(value.dtype).is_float
    )


def nonzero(value: Value) -> bool:
    """Whether an integer is provably not zero: a literal, or max(x, positive literal)."""
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, Binary) and value.op == "max":
        return any(isinstance(x, Const) and x.value > 0 for x in (value.lhs, value.rhs))
    return False


__all__ = [
    "aliases",
    "at_most",
    "divides",
    "is_of_vectors",
    "loads_of",
    "may_fail",
    "nonzero",
    "pitches",
    "stored",
    "touched",
]
