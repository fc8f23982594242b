"""Which loops of a scheduled kernel may run on several threads, and in what units.

before:  for i < N, parallel: for j < M, parallel: out[i,j] = f(x[i,j])
region:  loops (i, j), a unit is 256 turns of j: N * ceil(M / 256) units, of which a thread takes a range

A unit is computed by the same code whichever thread runs it and whatever range it is part of, so the results do
not depend on the number of threads. Therefore ranges of a loop that LLVM makes vectors of begin at multiples of
256 turns, more than a vector and its copies hold: what is left over at the end is the same elements for any ranges.
Sums are never split.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nimblevm.kernels.loop_ir import (
    Accumulate,
    Binary,
    ByteWindows,
    Const,
    For,
    Kernel,
    Load,
    Local,
    LoopVar,
    PackPanels,
    Product,
    SetDim,
    SetLocal,
    Statement,
    Store,
    Value,
    WindowProduct,
)
from nimblevm.kernels.rewrite import all_statements, all_values, tiles, values_of
from nimblevm.kernels.schedule.index import STACK, mentions, steps_with
from nimblevm.kernels.schedule.work import Work, work_of

BLOCK = 256
"""Turns of a loop of vectors that stay together."""
LONG = 2048
"""A loop of vectors with at most so many turns is one unit."""
ENOUGH = 64
"""So many units of an outer loop need no inner one to be split."""
UNROLLED = 64
"""Loops inside that have together at most so many turns may be unrolled, which leaves one loop of vectors."""
MIN_WORK = 4000.0
"""ns of work that is worth a hand-off (about 1 us between threads that spin; docs/performance.md)."""


@dataclass(frozen=True, eq=False, slots=True)
class Region:
    """A statement of a kernel's body that may run in parallel.

    loops     a perfect nest, outermost first; units are counted over all of them, the last one's in blocks
    block     turns of the last loop in one of its units
    carried   locals that are set before and read inside
    buffers   operands and tiles that are used inside
    work      ns, of the whole nest
    around    variables of the loops around, whose turns follow each other
    """

    loops: tuple[For, ...]
    block: int
    carried: tuple[Local, ...]
    buffers: tuple[int, ...]
    work: Work
    around: tuple[LoopVar, ...] = ()


def regions_of(kernel: Kernel) -> dict[For, Region]:
    """The regions of a kernel by their outermost loop: statements of its body, or of loops there whose turns follow
    each other, as the steps of a recurrent cell (kernels/repeat.py).
    """
    found: dict[For, Region] = {}
    places = _places(kernel.body)
    used = [_buffers(s) for s, _ in places]
    stack = {n for n, b in enumerate(kernel.buffers) if b.name == STACK}
    for number, (statement, around) in enumerate(places):
        if not isinstance(statement, For) or not statement.parallel:
            continue
        others = [s for n, (s, _) in enumerate(places) if n != number]
        elsewhere = {b for n, row in enumerate(used) if n != number for b in row}
        region = _region(statement, others, used[number], stack, around)
        # A tile on the stack belongs to one function.
        if region is not None and not stack & elsewhere & set(region.buffers):
            found[statement] = region
    return found


def _places(body: Sequence[Statement]) -> list[tuple[Statement, tuple[LoopVar, ...]]]:
    """Statements that may be regions, with the variables of the loops around; of those loops only what is inside."""
    found: list[tuple[Statement, tuple[LoopVar, ...]]] = []
    stack: list[tuple[Statement, tuple[LoopVar, ...]]] = [(s, ()) for s in reversed(body)]
    while stack:
        statement, around = stack.pop()
        inside = statement.body if isinstance(statement, For) else ()
        if isinstance(statement, For) and not statement.parallel and any(map(_is_parallel, inside)):
            stack.extend((s, (*around, statement.var)) for s in reversed(inside))
        else:
            found.append((statement, around))
    return found


def _is_parallel(statement: Statement) -> bool:
    return isinstance(statement, For) and statement.parallel


def _region(
    loop: For,
    others: Sequence[Statement],
    buffers: tuple[int, ...],
    stack: set[int],
    around: tuple[LoopVar, ...],
) -> Region | None:
    work = work_of((loop,))
    if not any(work) and sum(work.values()) < MIN_WORK:
        return None
    inside = list(all_statements((loop,)))
    if any(isinstance(s, SetDim) for s in inside):
        return None
    set_ = {s.local for s in inside if isinstance(s, SetLocal | Accumulate)}
    read = dict.fromkeys(v for v in _values(inside) if isinstance(v, Local))
    outside = list(all_statements(others))
    of_others = {s.local for s in outside if isinstance(s, SetLocal | Accumulate)}
    of_others.update(v for v in _values(outside) if isinstance(v, Local))
    if set_ & of_others or not _independent(loop, inside, stack):
        return None
    carried = tuple(local for local in read if local not in set_)
    loops, block = _levels(loop, stack, set_)
    return Region(loops, block, carried, buffers, work, around)


def _levels(loop: For, stack: set[int], set_: set[Local]) -> tuple[tuple[For, ...], int]:
    """How deep to split: until there are units enough. set_: the locals that are set inside."""
    loops = [loop]
    units = _units(loop)
    while units is None or units < ENOUGH:
        below = loops[-1].body[0] if len(loops[-1].body) == 1 else None
        if not isinstance(below, For) or not below.parallel or below.masked:
            break
        if any(mentions(below.extent, outer.var) for outer in loops) or not _is_known(below, set_):
            break
        if _is_short(below) or not _independent(below, list(all_statements((below,))), stack):
            break
        loops.append(below)
        more = _units(below)
        units = None if units is None or more is None else units * more
    return tuple(loops), BLOCK if _is_leaf(loops[-1]) else 1


def _units(loop: For) -> int | None:
    if not isinstance(loop.extent, Const):
        return None
    size = int(loop.extent.value)
    return -(-size // BLOCK) if _is_leaf(loop) else size


def _is_short(loop: For) -> bool:
    return _is_leaf(loop) and isinstance(loop.extent, Const) and loop.extent.value <= LONG


def _is_leaf(loop: For) -> bool:
    """Whether LLVM may make vectors of this loop: there is no other inside, or only few turns of others."""
    turns = 0
    for statement in all_statements(loop.body):
        if isinstance(statement, Product | PackPanels):
            return False
        if isinstance(statement, For):
            if not isinstance(statement.extent, Const):
                return False
            turns += int(statement.extent.value)
    return turns <= UNROLLED


def _is_known(loop: For, set_: set[Local]) -> bool:
    """Whether the turns of a loop are known before the region runs: from dims, and from locals of before."""
    found = list(all_values((loop.extent,)))
    return not any(isinstance(v, Load | LoopVar) or v in set_ for v in found)


def _independent(loop: For, inside: Sequence[Statement], stack: set[int]) -> bool:
    """Whether turns write different elements, and read of what the region writes only their own."""
    stores: dict[int, list[tuple[Value, ...]]] = {}
    for statement in inside:
        if isinstance(statement, Store) and statement.buffer not in stack:
            stores.setdefault(statement.buffer, []).append(statement.indices)
        elif isinstance(statement, PackPanels) and statement.target.buffer not in stack:
            stores.setdefault(statement.target.buffer, []).append(statement.target.indices)
        elif isinstance(statement, Product) and not tiles(statement) <= stack:
            return False
    loads: dict[int, list[tuple[Value, ...]]] = {}
    for value in _values(inside):
        if isinstance(value, Load) and value.buffer in stores:
            loads.setdefault(value.buffer, []).append(value.indices)
    written = {*stores, *stack}
    varying: set[Value] = {s.var for s in inside if isinstance(s, For)}
    varying.update(s.local for s in inside if isinstance(s, SetLocal | Accumulate))

    def is_fixed(value: Value, but_for: LoopVar | None = None) -> bool:
        """Whether a value is the same in all turns, or depends of what varies on one loop's variable alone."""
        found = (v for v in all_values((value,)) if v is not but_for)
        return not any(v in varying or (isinstance(v, Load) and v.buffer in written) for v in found)

    for buffer, places in stores.items():
        if not all(any(mentions(index, loop.var) for index in row) for row in places):
            return False
        if buffer in loads:
            # One axis that every access indexes with the loop's variable keeps the turns apart, if no two turns have
            # the same index there (as those of i // 2 have).
            apart = any(
                _is_one(indices, loop.var) and is_fixed(indices[0], loop.var)
                for indices in zip(*places, *loads[buffer], strict=True)
            )
            if not apart and not all(
                _never_equal(s, r, is_fixed) for s in places for r in loads[buffer]
            ):
                return False
    return True


def _never_equal(
    one: tuple[Value, ...], other: tuple[Value, ...], is_fixed: Callable[[Value], bool]
) -> bool:
    """Whether two places differ in any two turns: on some axis one is x % n and the other (x + c) % n, c no multiple of
    n; or one is x + max(.., 0) and the other min(.., x - 1); or one is x and the other x + c, c > 0; x being fixed.
    """
    shared = (
        found
        for test in (_residues_differ, _is_behind, _is_beyond)
        for a, b in zip(one, other, strict=True)
        for found in (test(a, b), test(b, a))
    )
    return any(found is not None and is_fixed(found) for found in shared)


# Each of these gives the x that two indices have in common if they differ wherever it has one value.


def _is_behind(one: Value, other: Value) -> Value | None:
    match one, other:
        case (
            Binary(op="add", lhs=n, rhs=Binary(op="max", rhs=Const(value=least))),
            Binary(op="min", rhs=Binary(op="sub", lhs=m, rhs=Const(value=c))),
        ):
            return n if n is m and least >= 0 and c >= 1 else None
    return None


def _is_beyond(one: Value, other: Value) -> Value | None:
    """`other` is `one` and something positive."""
    match other:
        case Binary(op="add", lhs=x, rhs=more) if x is one and _lowest(more) > 0:
            return x
    return None


def _lowest(value: Value, depth: int = 8) -> float:
    """A bound of an integer from below, as far as it is easy to see: in so many operations at most."""
    if isinstance(value, Const):
        return float(value.value)
    if isinstance(value, LoopVar):
        return 0.0
    if not isinstance(value, Binary) or depth == 0:
        return -math.inf
    rhs, low = value.rhs, _lowest(value.lhs, depth - 1)
    if value.op == "sub" and isinstance(rhs, Binary) and rhs.op == "floormod":
        size = rhs.rhs
        return (
            low - (float(size.value) - 1.0)
            if isinstance(size, Const) and size.value > 0
            else -math.inf
        )
    other = _lowest(rhs, depth - 1)
    match value.op:
        case "add":
            return low + other
        case "max":
            return max(low, other)
        case "mul" if min(low, other) >= 0:
            return low * other
    return -math.inf


def _residues_differ(one: Value, other: Value) -> Value | None:
    match one, other:
        case (
            Binary(op="floormod", lhs=x, rhs=Const(value=n)),
            Binary(op="floormod", lhs=Binary(op="add", lhs=y, rhs=Const(value=c)), rhs=Const(value=m)),
        ):  # fmt: skip
            return x if x is y and n == m and int(c) % int(n) != 0 else None
    return None


def _is_one(indices: Sequence[Value], var: LoopVar) -> bool:
    return all(index is indices[0] for index in indices) and steps_with(indices[0], var)


def _values(statements: Sequence[Statement]) -> Iterator[Value]:
    seen: set[Value] = set()
    for statement in statements:
        yield from all_values(values_of(statement), seen)


def _buffers(root: Statement) -> tuple[int, ...]:
    found: set[int] = set()
    statements = list(all_statements((root,)))
    for statement in statements:
        if isinstance(statement, Store):
            found.add(statement.buffer)
        if isinstance(statement, Product):
            found |= tiles(statement)
        if isinstance(statement, ByteWindows | WindowProduct):
            found.add(statement.offsets)
    found.update(v.buffer for v in _values(statements) if isinstance(v, Load))
    return tuple(sorted(found))


__all__ = ["BLOCK", "MIN_WORK", "Region", "regions_of"]
