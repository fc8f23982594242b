"""Loop IR -> launches of grids, for GPUs of every kind: opencl.py and ptx.py print what is made here.

A body is cut into segments that share no locals, at its outermost level and inside of parallel loops, which then stand
around each part; each segment is a launch. A nest of parallel loops gives each of its turns a thread. Whatever has
another form is run by one thread: right, and slow.
"""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm.kernels.loop_ir import (
    Binary,
    Compare,
    Const,
    DimRef,
    For,
    If,
    Kernel,
    SetDim,
    Statement,
    Value,
)
from nimblevm.kernels.rewrite import Rewriter, all_statements, all_values
from nimblevm.kernels.schedule.index import const, folded
from nimblevm.kernels.schedule.launch import (
    BLOCK,
    MAX_THREADS,
    Barrier,
    Launch,
    array,
    ids,
    locals_of,
)

ONE = const(1)
SIZE_OPS = ("add", "sub", "mul", "floordiv", "floormod", "min", "max")
"""What grids are computed with: the operations of dim programs (docs/format.md)."""


def schedule_grid(kernel: Kernel) -> tuple[Launch, ...]:
    """The launches that compute a kernel. ValueError for one that sets out-dims, which has to run on the host."""
    if kernel.out_dims or any(isinstance(s, SetDim) for s in all_statements(kernel.body)):
        raise ValueError(f"kernel {kernel.name} sets out-dims: it can't run as a grid")
    found: list[Launch] = []
    for segment in _split(kernel.body):
        found.append(_launch(kernel, f"{kernel.name}_{len(found)}", segment))
    return tuple(found)


def _split(body: Sequence[Statement]) -> list[tuple[Statement, ...]]:
    """The segments of a body, those inside of parallel loops with these loops around them. Turns of a parallel loop are
    independent, so what all of them do first may be done before what they do next. Loops nest at most 32 deep, so this
    recurses.
    """
    found: list[tuple[Statement, ...]] = []
    for segment in segments(body):
        loops, inside = nest(segment)
        parts = _split(inside) if loops else []
        if len(parts) < 2:
            found.append(segment)
            continue
        for part in parts:
            for loop in reversed(loops):
                part = (For(loop.var, loop.extent, part, True),)
            found.append(part)
    return found


def segments(body: Sequence[Statement]) -> list[tuple[Statement, ...]]:
    """Statements in runs as short as can be, no local being used in two of them; statements without loops stay
    together.
    """
    runs: list[tuple[set[object], list[Statement]]] = []
    for statement in body:
        used: set[object] = set(locals_of((statement,)))
        at = next((n for n, (known, _) in enumerate(runs) if known & used), len(runs))
        run = [s for _, part in runs[at:] for s in part]
        for known, _ in runs[at:]:
            used |= known
        runs = [*runs[:at], (used, [*run, statement])]
    found: list[list[Statement]] = []
    for _, run in runs:
        plain = not any(isinstance(s, For) for s in all_statements(run))
        if plain and found and not any(isinstance(s, For) for s in all_statements(found[-1])):
            found[-1].extend(run)
        else:
            found.append(run)
    return [tuple(run) for run in found]


def _launch(kernel: Kernel, name: str, segment: tuple[Statement, ...]) -> Launch:
    loops, inside = nest(segment)
    if loops:
        return elementwise(kernel, name, loops, inside)
    return one_thread(kernel, name, segment)


def nest(segment: Sequence[Statement]) -> tuple[list[For], tuple[Statement, ...]]:
    """The parallel loops, each the only statement of the one around it, whose sizes are known before all of them, and
    what is inside.
    """
    loops: list[For] = []
    body = tuple(segment)
    while len(body) == 1 and isinstance(body[0], For) and body[0].parallel:
        loop = body[0]
        if not is_size(loop.extent):
            break
        loops.append(loop)
        body = loop.body
    return loops, body


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
        # No turn is taken where a size is 0, which a divisor must not seem to be.
        size = loop.extent if isinstance(loop.extent, Const) else folded("max", loop.extent, ONE)
        if isinstance(size, Const) and size.value < 1:
            size = ONE
        found[loop.var] = folded("floormod", turn, size)
        turn = folded("floordiv", turn, size)
    return found


def threads_for(total: Value) -> int:
    """Threads of a group for so many turns."""
    count = MAX_THREADS
    while isinstance(total, Const) and count > 32 and total.value <= count // 2:
        count //= 2
    return count


def groups_of(total: Value, size: int) -> Value:
    """Groups of `size` that hold `total` turns."""
    return folded("floordiv", folded("add", total, const(size - 1)), const(size))


def elementwise(
    kernel: Kernel, name: str, loops: Sequence[For], body: tuple[Statement, ...]
) -> Launch:
    """A thread a turn of a nest of parallel loops."""
    total = turns(loops)
    block = threads_for(total)
    group, thread = ids("g"), ids("t")
    turn = folded("add", folded("mul", group[0], const(block)), thread[0])
    inside = Rewriter(places(loops, turn).get).block(body)
    guarded = If(Compare("bool", "lt", turn, total), inside)
    return Launch(
        name, kernel, (groups_of(total, block), ONE, ONE), (block, 1, 1), group, thread, kernel.buffers, (guarded,)
    )  # fmt: skip


def one_thread(kernel: Kernel, name: str, body: tuple[Statement, ...]) -> Launch:
    """One thread that runs statements as they are."""
    block: BLOCK = (1, 1, 1)
    return Launch(
        name, kernel, (ONE, ONE, ONE), block, ids("g"), ids("t"), kernel.buffers, tuple(body)
    )


__all__ = ["Barrier", "Launch", "array", "schedule_grid", "segments"]
