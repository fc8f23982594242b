"""One launch of a grid: what the threads of a GPU run, as loop IR over the ids of group and thread.

A kernel is one or several launches that run in order. Each thread of each group runs the launch's body with `group`
and `thread` bound to its ids. Buffers behind the kernel's own are arrays of literal size: role "shared" is one a group,
role "private" one a thread; their elements start with any value. A launch with a 0 in its grid is skipped.
"""

from __future__ import annotations

from collections.abc import KeysView, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nimblevm import dtypes
from nimblevm.kernels.facts import may_fail, pitches, touched
from nimblevm.kernels.loop_ir import (
    Accumulate,
    Axis,
    Binary,
    Buffer,
    Const,
    DimRef,
    For,
    Kernel,
    Local,
    LoopVar,
    SetLocal,
    Statement,
    Value,
)
from nimblevm.kernels.rewrite import all_statements, all_values, values_of
from nimblevm.kernels.schedule.index import INDEX, const, folded

GRID = tuple[Value, Value, Value]
BLOCK = tuple[int, int, int]
IDS = tuple[LoopVar, LoopVar, LoopVar]

MAX_THREADS = 256
"""Threads of a group: what every OpenCL and CUDA device takes."""
ONE = const(1)
SIZE_OPS = ("add", "sub", "mul", "floordiv", "floormod", "min", "max")
"""What grids are computed with: the operations of dim programs (docs/format.md)."""


@dataclass(frozen=True, eq=False, slots=True)
class Launch:
    """A grid of groups of threads.

    name     of the kernel, then "_" and the launch's number
    kernel   the Kernel it is of: its dims are what DimRefs count
    grid     groups along each axis: int64 of Const, DimRef and Binary; schedules use the first axis only
    block    threads of a group along each axis
    group    bound to the ids of a thread's group
    thread   bound to the ids of a thread in its group
    buffers  the kernel's, then those of the grid
    """

    name: str
    kernel: Kernel
    grid: GRID
    block: BLOCK
    group: IDS
    thread: IDS
    buffers: tuple[Buffer, ...]
    body: tuple[Statement, ...]

    def operands(self) -> tuple[int, ...]:
        """Numbers of the kernel's buffers that the body reads or writes, in order."""
        return tuple(sorted(n for n in touched(self.body) if n < len(self.kernel.buffers)))

    def values(self) -> tuple[Value, ...]:
        """Every value of the body once."""
        seen: set[Value] = set()
        return tuple(
            value for s in all_statements(self.body) for value in all_values(values_of(s), seen)
        )

    def dims(self) -> tuple[int, ...]:
        """Places among [in-dims][attributes][pitches] that the body or its operands' strides need."""
        operands = self.operands()
        sizes = [a.size for n in operands for a in self.kernel.buffers[n].axes]
        values = [*self.values(), *all_values(sizes)]
        found = {value.index for value in values if isinstance(value, DimRef)}
        found |= {
            place for (number, _), place in pitches(self.kernel).items() if number in operands
        }
        return tuple(sorted(found))

    def own(self, role: str) -> tuple[int, ...]:
        """Numbers of the grid's buffers of a role, "shared" or "private"."""
        return tuple(n for n, b in enumerate(self.buffers) if b.role == role)

    def shared_bytes(self) -> int:
        """Bytes of the arrays that the threads of a group share."""
        arrays = [self.buffers[n] for n in self.own("shared")]
        return sum(elements(a) * dtypes.dtype(a.dtype).itemsize for a in arrays)

    def can_fail(self) -> bool:
        """Whether a thread may report a fault."""
        return may_fail(replace(self.kernel, body=self.body))


def array(name: str, dtype: str, role: Literal["shared", "private"], *sizes: int) -> Buffer:
    """A buffer of the grid."""
    axes = tuple(Axis(const(size)) for size in sizes)
    return Buffer(name, dtype, role, axes)


def elements(buffer: Buffer) -> int:
    """How many elements a buffer of the grid has."""
    count = 1
    for axis in buffer.axes:
        assert isinstance(axis.size, Const)
        count *= int(axis.size.value)
    return count


def ids(name: str) -> IDS:
    """Fresh variables for the ids along the three axes."""
    return LoopVar(INDEX, name + "x"), LoopVar(INDEX, name + "y"), LoopVar(INDEX, name + "z")


def locals_of(body: Sequence[Statement]) -> KeysView[Local]:
    """The locals that statements set or read, in the order in which they do."""
    found: dict[Local, None] = {}
    seen: set[Value] = set()
    for statement in all_statements(body):
        if isinstance(statement, SetLocal | Accumulate):
            found[statement.local] = None
        for value in all_values(values_of(statement), seen):
            if isinstance(value, Local):
                found[value] = None
    return found.keys()


def is_size(value: Value) -> bool:
    """Whether a host can compute a value from the dims of a call."""
    return all(
        isinstance(v, Const | DimRef) or (isinstance(v, Binary) and v.op in SIZE_OPS)
        for v in all_values((value,))
    )


def turns(loops: Sequence[For]) -> Value:
    """How many turns a nest has."""
    total: Value = ONE
    for loop in loops:
        total = loop.extent if total is ONE else folded("mul", total, loop.extent)
    return total


def places(loops: Sequence[For], turn: Value) -> dict[Value, Value]:
    """The values of a nest's variables at its turn number `turn`, the innermost varying fastest."""
    found: dict[Value, Value] = {}
    for number, loop in reversed(list(enumerate(loops))):
        if number == 0:
            found[loop.var] = turn
            break
        found[loop.var], turn = split(turn, loop.extent)
    return found


def split(number: Value, size: Value) -> tuple[Value, Value]:
    """Remainder and quotient of the number of a turn or group. Where a size is 0 there is no number to split; the
    divisor is at least 1 in sight of facts.nonzero, so no code looks for a division by zero.
    """
    divisor = folded("max", size, ONE)
    return folded("floormod", number, divisor), folded("floordiv", number, divisor)


def groups_of(total: Value, size: int) -> Value:
    """Groups of `size` that hold `total` turns."""
    return folded("floordiv", folded("add", total, const(size - 1)), const(size))


__all__ = [
    "BLOCK", "GRID", "IDS", "MAX_THREADS", "ONE", "Launch", "array", "elements", "groups_of", "ids", "is_size",
    "locals_of", "places", "split", "turns",
]  # fmt: skip
