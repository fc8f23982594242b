"""What the steps of a loop need not wait for, computed for all of them before the first one.

before:  for t < %count:
           for j < 4: { v = 0; for k < 3: v += x[%i + t,k] * w[j/16,k,j%16]; row[0,j] = v }
           for j < 4: state.. = tanh(row[0,j] + state[t % 2,0,j])
after:   for r < %count: for k < 3: copy[r,k] = x[%i + r,k]
         for r < %count: for j < 4: { v = 0; for k < 3: v += copy[r,k] * w[j/16,k,j%16]; row[r,0,j] = v }
         for t < %count: for j < 4: state.. = tanh(row[t,0,j] + state[t % 2,0,j])

All steps of a call are taken, so nothing is computed in vain: unlike hoist_projection this needs to know nothing about
the loop. One product of many rows reads its weights once. Rows that sums read again and again are copied where they
stand at an index that is computed (`take` brings it into its axis): then a product sees rows that follow each other.

A statement goes ahead if it stores scratch that no other statement stores, and reads inputs that are not carried, and
scratch that is ahead. What does not even depend on the step is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from nimblevm.kernels.facts import loads_of, stored
from nimblevm.kernels.loop_ir import (
    Accumulate,
    Buffer,
    Const,
    DimRef,
    For,
    Load,
    Local,
    LoopVar,
    SetLocal,
    Statement,
    Value,
)
from nimblevm.kernels.rewrite import all_statements, all_values, values_of


@dataclass(frozen=True, eq=False, slots=True)
class Ahead:
    """Statements of a step's body.

    first   those that go ahead, in order
    rest    the others
    varies  scratch that `first` stores a row of for each step
    once    other scratch that it stores
    """

    first: tuple[Statement, ...]
    rest: tuple[Statement, ...]
    varies: frozenset[int]
    once: frozenset[int]


def find_ahead(
    buffers: Sequence[Buffer], body: Sequence[Statement], carried: Set[int], counters: Set[int]
) -> Ahead:
    """carried: inputs that a step has from the one before; counters: in-dims that grow with the steps."""
    writes = [stored((s,)) for s in body]
    waiting = {*carried, *(n for n, b in enumerate(buffers) if b.role == "out")}
    once: set[int] = set()
    varies: set[int] = set()
    first: list[Statement] = []
    rest: list[Statement] = []
    for statement, written in zip(body, writes, strict=True):
        reads = {load.buffer for load in loads_of((statement,))}
        alone = all(sum(b in w for w in writes) == 1 for b in written)
        if (
            not isinstance(statement, For)
            or not alone
            or (reads | written) & waiting
            or reads & written
            or _reads_outside(statement)
        ):
            rest.append(statement)
            waiting |= written
            continue
        first.append(statement)
        grows = reads & varies or any(
            isinstance(v, DimRef) and v.index in counters for v in _values(statement)
        )
        (varies if grows else once).update(written)
    return Ahead(tuple(first), tuple(rest), frozenset(varies), frozenset(once))


def _values(statement: Statement) -> list[Value]:
    seen: set[Value] = set()
    return [v for s in all_statements((statement,)) for v in all_values(values_of(s), seen)]


def _reads_outside(statement: Statement) -> bool:
    """Whether a statement needs a local that is set elsewhere, or sets one for others."""
    inside = {s.local for s in all_statements((statement,)) if isinstance(s, SetLocal)}
    return any(isinstance(v, Local) and v not in inside for v in _values(statement))


def rows_to_copy(statement: Statement, row: LoopVar, inputs: int) -> dict[Load, tuple[For, ...]]:
    """Loads in the sums of a statement that goes ahead, of inputs, at an index that is computed from `row` -> the loops
    of the other indices, which are plain.
    """
    found: dict[Load, tuple[For, ...]] = {}
    inner = [s for s in all_statements((statement,)) if isinstance(s, For)]
    loops = {loop.var: loop for loop in inner}
    for sum_ in all_statements((statement,)):
        if not isinstance(sum_, Accumulate):
            continue
        for value in all_values((sum_.value,)):
            if not isinstance(value, Load) or value.buffer >= inputs:
                continue
            plain: dict[For, None] = {}
            computed = 0
            for index in value.indices:
                used = [v for v in all_values((index,)) if isinstance(v, LoopVar)]
                if isinstance(index, LoopVar) and index in loops:
                    plain[loops[index]] = None
                elif used and all(v is row for v in used):
                    computed += 1
                elif not isinstance(index, Const):
                    break
            else:
                if computed and plain and all(isinstance(p.extent, Const) for p in plain):
                    found[value] = tuple(plain)
    return found


__all__ = ["Ahead", "find_ahead", "rows_to_copy"]
