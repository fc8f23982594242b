"""What a kernel's call does at least: floating-point operations, and bytes that are read and written.

Counted from the kernel IR in the file (docs/format.md, "Serialized loop IR") and the sizes of the call:

operations   every float operation of an expression, once a turn of the loops that it depends on: a multiply-add is 2,
             exp or tanh 1, casts, selects, integers and indices 0
read         distinct elements of inputs that loads can reach, times their size: what a loop turn does not address
             (most rows of a table that is gathered from) does not count, and nothing counts twice but in loops whose
             turns follow each other around parallel ones: in every step of a recurrent cell
written      the same for outputs; scratch buffers are left out, because they stay in a cache

Kernels in C have no IR: their bytes are those of their operands, their operations are not known. Nor are those of
loops whose length depends on data.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from nimblevm import dtypes
from nimblevm.abi import DimWord
from nimblevm.bytecode import serialize as s
from nimblevm.bytecode.records import axis_size

_HEADER = struct.Struct("<4s7I")
_RECORD = struct.Struct("<4B3I")

# Numbers of the serialized form.
CONST, LOOP_VAR, LOCAL, DIM_REF, LOAD, UNARY, BINARY, COMPARE, SELECT, CAST, CHECK_INDEX = range(11)
FOR, STORE, SET_LOCAL, ACCUMULATE, IF, SET_DIM = range(6)
ADD, SUB, MUL, DIV, MOD, FLOORDIV, FLOORMOD, MIN, MAX = range(9)

_IN, _OUT = 0, 1
_COUNTED = (UNARY, BINARY, COMPARE)

Node = tuple[int, int, int, int, int, int, int]
"""kind, dtype, op, rank, a, b, c"""
Loops = tuple[int, ...]
"""Statement numbers of For statements, from the outermost."""


@dataclass(frozen=True, slots=True)
class Work:
    """Of one call or of several; operations None: not known. Bytes."""

    operations: float | None
    read: float
    written: float

    @property
    def bytes(self) -> float:
        return self.read + self.written

    def times(self, calls: float) -> Work:
        operations = None if self.operations is None else self.operations * calls
        return Work(operations, self.read * calls, self.written * calls)

    def plus(self, other: Work) -> Work:
        known = self.operations is not None and other.operations is not None
        operations = (self.operations or 0) + (other.operations or 0) if known else None
        return Work(operations, self.read + other.read, self.written + other.written)


NO_WORK = Work(0.0, 0.0, 0.0)


class WorkCounter:
    """Counts calls of one kernel. The body is walked once; each call's sizes are then put in."""

    def __init__(self, kernel: s.KernelRecord) -> None:
        self.kernel = kernel
        self._nodes: list[Node] = []
        self._extents: dict[int, int] = {}  # For -> node
        self._variables: dict[int, int] = {}  # loop variable -> For
        self._operations: Counter[Loops] = Counter()
        self._touched: set[tuple[int, frozenset[int], frozenset[int]]] = set()
        if kernel.kind == s.KERNEL_LOOP_IR:
            self._read_body(kernel.ir)

    # --- the body ---

    def _read_body(self, data: bytes) -> None:
        _, _, n_nodes, n_statements, n_indices, _, _, _ = _HEADER.unpack_from(data)
        at = _HEADER.size
        self._nodes = list(_RECORD.iter_unpack(data[at : at + _RECORD.size * n_nodes]))
        at += _RECORD.size * n_nodes
        statements = list(_RECORD.iter_unpack(data[at : at + _RECORD.size * n_statements]))
        at += _RECORD.size * n_statements
        self._indices: tuple[int, ...] = struct.unpack_from(f"<{n_indices}I", data, at)
        loops: list[tuple[int, int]] = []  # For, the statement behind its body
        self._steps: set[int] = _steps(statements)
        for number, (kind, _, op, rank, a, b, c) in enumerate(statements):
            while loops and loops[-1][1] <= number:
                loops.pop()
            around = tuple(loop for loop, _ in loops)
            if kind == FOR:
                self._count((b,), around)
                self._extents[number], self._variables[a] = b, number
                loops.append((number, c))
            elif kind == STORE:
                indices = self._indices[b : b + rank]
                uses = self._count((*indices, c), around)
                self._touch(a, frozenset().union(*(uses[i] for i in indices)), around)
            elif kind == ACCUMULATE:
                self._count((b,), around)
                if op < 4 and dtypes.BY_NUMBER[self._nodes[b][1]].is_float:
                    self._operations[around] += 1
            else:
                self._count((a,) if kind == IF else (b,), around)

    def _touch(self, buffer: int, depends: frozenset[int], around: Loops) -> None:
        again = self._steps.intersection(around) - depends
        self._touched.add((buffer, depends, frozenset(again)))

    def _operands(self, node: Node) -> tuple[int, ...]:
        kind, _, _, rank, a, b, c = node
        if kind == LOAD:
            return self._indices[b : b + rank]
        if kind in (UNARY, CAST):
            return (a,)
        if kind in (BINARY, COMPARE, CHECK_INDEX):
            return (a, b)
        return (a, b, c) if kind == SELECT else ()

    def _postorder(self, roots: Sequence[int]) -> Iterator[tuple[int, Node, tuple[int, ...]]]:
        """The nodes that these reach, each once and after its operands: number, node, operands."""
        done: set[int] = set()
        stack = [(root, False) for root in roots]
        while stack:
            number, ready = stack.pop()
            if number in done:
                continue
            node = self._nodes[number]
            operands = self._operands(node)
            if operands and not ready:
                stack.append((number, True))
                stack.extend((operand, False) for operand in operands)
                continue
            done.add(number)
            yield number, node, operands

    def _count(self, roots: Sequence[int], around: Loops) -> dict[int, frozenset[int]]:
        """Count a statement's expressions; the loops that each of them depends on."""
        uses: dict[int, frozenset[int]] = {}
        for number, node, operands in self._postorder(roots):
            uses[number] = self._one(node, operands, uses, around)
        return uses

    def _one(
        self,
        node: Node,
        operands: tuple[int, ...],
        uses: dict[int, frozenset[int]],
        around: Loops,
    ) -> frozenset[int]:
        kind, dtype, a = node[0], node[1], node[4]
        if kind == LOOP_VAR:
            return frozenset((self._variables[a],))
        if kind == LOCAL:
            return frozenset(around)  # it may change in any turn
        depends = frozenset[int]().union(*(uses[operand] for operand in operands))
        if kind == LOAD:
            self._touch(a, depends, around)
            written = a < len(self.kernel.operands) and self.kernel.operands[a].role != _IN
            return frozenset(around) if written else depends
        if kind == COMPARE:
            dtype = self._nodes[operands[0]][1]
        if kind in _COUNTED and dtypes.BY_NUMBER[dtype].is_float:
            inner = max((around.index(loop) for loop in depends if loop in around), default=-1)
            self._operations[around[: inner + 1]] += 1
        return depends

    # --- one call ---

    def work(self, values: Sequence[int]) -> Work:
        """values: the in-dims of a call, then the actual sizes of its broadcast axes."""
        kernel = self.kernel
        given = len(kernel.dims)
        dims = [*values[:given], *kernel.attrs]
        sizes = _operand_sizes(kernel, dims, values[given:])
        if kernel.kind != s.KERNEL_LOOP_IR:
            read = sum(
                size for size, o in zip(sizes, kernel.operands, strict=True) if o.role == _IN
            )
            return Work(
                None,
                read,
                sum(n for n, o in zip(sizes, kernel.operands, strict=True) if o.role == _OUT),
            )
        turns = self._turns(dims)
        operations: float | None = 0.0
        for loops, count in self._operations.items():
            factors = [turns[loop] for loop in loops]
            if operations is None or any(f is None for f in factors):
                operations = None
                break
            operations += count * prod(f or 0.0 for f in factors)
        read, written = self._bytes(sizes, turns)
        return Work(operations, read, written)

    def _bytes(self, sizes: list[float], turns: dict[int, float | None]) -> tuple[float, float]:
        reached: dict[tuple[int, frozenset[int]], float] = {}
        for buffer, loops, again in self._touched:
            operand = self.kernel.operands[buffer]
            factors = [turns[loop] for loop in loops]
            known = all(f is not None for f in factors)
            item = dtypes.BY_NUMBER[operand.dtype].itemsize
            got = item * prod(f or 0.0 for f in factors) if known else sizes[buffer]
            reached[buffer, again] = reached.get((buffer, again), 0.0) + got
        read = written = 0.0
        for (buffer, again), got in reached.items():
            role = self.kernel.operands[buffer].role
            if role == _IN:
                read += min(sizes[buffer], got) * prod(turns[loop] or 0.0 for loop in again)
            elif role == _OUT:
                written += min(sizes[buffer], got)
        return read, written

    def _turns(self, dims: Sequence[int]) -> dict[int, float | None]:
        """How often each loop turns, once it is entered; None if data says."""
        turns: dict[int, float | None] = {}
        for loop, node in self._extents.items():
            value = self._value(node, dims, turns)
            turns[loop] = None if value is None else max(0.0, value)
        return turns

    def _value(
        self, root: int, dims: Sequence[int], turns: dict[int, float | None]
    ) -> float | None:
        """An integer expression; a loop variable counts as the middle of its range."""
        done: dict[int, float | None] = {}
        for number, node, operands in self._postorder((root,)):
            done[number] = self._evaluated(node, [done[o] for o in operands], dims, turns)
        return done[root]

    def _evaluated(
        self,
        node: Node,
        args: list[float | None],
        dims: Sequence[int],
        turns: dict[int, float | None],
    ) -> float | None:
        kind, _, op, _, a, b, c = node
        if kind == CONST:
            bits = b | c << 32
            return bits - (1 << 64) if bits >> 63 else bits
        if kind == DIM_REF:
            return dims[a] if a < len(dims) else None
        if kind == LOOP_VAR:
            count = turns.get(self._variables[a])
            return None if count is None else max(0.0, (count - 1) / 2)
        if kind in (CAST, CHECK_INDEX):
            return args[0]
        x, y = args[0] if args else None, args[1] if len(args) > 1 else None
        if kind != BINARY or x is None or y is None:
            return None
        return _applied(op, x, y)


def _steps(statements: Sequence[Node]) -> set[int]:
    """Outermost loops whose turns follow each other and hold parallel ones."""
    found: set[int] = set()
    number = 0
    while number < len(statements):
        kind, _, parallel, _, _, _, end = statements[number]
        inside = statements[number + 1 : end] if kind == FOR else ()
        if kind == FOR and not parallel and any(row[0] == FOR and row[2] for row in inside):
            found.add(number)
        number = end if kind == FOR else number + 1
    return found


def _applied(op: int, x: float, y: float) -> float | None:
    if op in (ADD, SUB, MUL):
        return x + y if op == ADD else x - y if op == SUB else x * y
    if op in (MIN, MAX):
        return min(x, y) if op == MIN else max(x, y)
    if op in (DIV, FLOORDIV):
        return x // y if y else None
    return x % y if op in (MOD, FLOORMOD) and y else None


# --- sizes of operands ----------------------------------------------------------------------------


_DIM_OPS: dict[DimWord, Callable[[int, int], int]] = {
    DimWord.ADD: lambda x, y: x + y,
    DimWord.SUB: lambda x, y: x - y,
    DimWord.MUL: lambda x, y: x * y,
    DimWord.FLOORDIV: lambda x, y: x // y if y else 0,
    DimWord.FLOORMOD: lambda x, y: x % y if y else 0,
    DimWord.MIN: min,
    DimWord.MAX: max,
}


def _operated(op: DimWord, x: int, y: int) -> int:
    return _DIM_OPS[op](x, y)


def operand_shapes(
    kernel: s.KernelRecord, values: Sequence[int]
) -> list[tuple[str, tuple[int, ...]]]:
    """(dtype, shape) of each operand of a call with these in-dims and pitches."""
    given = len(kernel.dims)
    shapes = _shapes(kernel, [*values[:given], *kernel.attrs], values[given:])
    return [
        (dtypes.BY_NUMBER[operand.dtype].name, shape)
        for operand, shape in zip(kernel.operands, shapes, strict=True)
    ]


def _shapes(
    kernel: s.KernelRecord, dims: Sequence[int], pitches: Sequence[int]
) -> list[tuple[int, ...]]:
    rest = iter(pitches)
    shapes: list[tuple[int, ...]] = []
    for operand in kernel.operands:
        shape: list[int] = []
        for axis in operand.axes:
            if axis.broadcast:
                shape.append(next(rest))
            else:
                shape.append(axis_size(kernel.exprs, axis, int, dims.__getitem__, _operated))
        shapes.append(tuple(shape))
    return shapes


def _operand_sizes(
    kernel: s.KernelRecord, dims: Sequence[int], pitches: Sequence[int]
) -> list[float]:
    """Bytes."""
    return [
        float(prod(shape) * dtypes.BY_NUMBER[operand.dtype].itemsize)
        for operand, shape in zip(kernel.operands, _shapes(kernel, dims, pitches), strict=True)
    ]


__all__ = ["NO_WORK", "Work", "WorkCounter", "operand_shapes"]
