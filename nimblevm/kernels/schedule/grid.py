"""Loop IR -> launches of grids, for GPUs of every kind: opencl.py and ptx.py print what is made here.

A body is cut into segments that share no locals, at its outermost level and inside of parallel loops, which then stand
around each part. Each segment is a launch or two:

    products               tiles of outputs (tiles.py); for few rows, which may be known when it is called only, as rows
    rows with sums in them a group a row (together.py)
    other parallel loops   a thread a turn
    scatter                a thread a column (columns.py)
    anything else          one group, or one thread where a fault may be found: right, and slow
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nimblevm.kernels.facts import may_fail
from nimblevm.kernels.loop_ir import (
    Compare,
    Const,
    For,
    If,
    Kernel,
    SetDim,
    Statement,
    Value,
)
from nimblevm.kernels.rewrite import Rewriter, all_statements
from nimblevm.kernels.schedule.columns import columns_of
from nimblevm.kernels.schedule.index import const, folded
from nimblevm.kernels.schedule.lanes import lies_along, sums_of
from nimblevm.kernels.schedule.launch import (
    BLOCK,
    MAX_THREADS,
    ONE,
    Launch,
    groups_of,
    ids,
    is_size,
    locals_of,
    places,
    turns,
)
from nimblevm.kernels.schedule.tiles import Tiles, few, product_of
from nimblevm.kernels.schedule.together import shares_work, together


def schedule_grid(kernel: Kernel) -> tuple[Launch, ...]:
    """The launches that compute a kernel. ValueError for one that sets out-dims, which has to run on the host."""
    if kernel.out_dims or any(isinstance(s, SetDim) for s in all_statements(kernel.body)):
        raise ValueError(f"kernel {kernel.name} sets out-dims: it can't run as a grid")
    found: list[Launch] = []
    for segment in _split(kernel.body):
        found += _launches(kernel, len(found), segment)
    return tuple(found)


def _split(body: Sequence[Statement]) -> list[tuple[Statement, ...]]:
    """The segments of a body, those inside of parallel loops with these loops around them. Turns of a parallel loop are
    independent, so what all of them do first may be done before what they do next. Loops nest at most 32 deep, so this
    recurses.
    """
    found: list[tuple[Statement, ...]] = []
    for segment in _segments(body):
        loops, inside = _nest(segment)
        parts = _split(inside) if loops else []
        if len(parts) < 2:
            found.append(segment)
            continue
        for part in parts:
            for loop in reversed(loops):
                part = (For(loop.var, loop.extent, part, parallel=True),)
            found.append(part)
    return found


def _segments(body: Sequence[Statement]) -> list[tuple[Statement, ...]]:
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


def _launches(kernel: Kernel, first: int, segment: tuple[Statement, ...]) -> list[Launch]:
    """The launches of a segment; `first` is the number of the first one."""
    loops, inside = _nest(segment)
    name, second = f"{kernel.name}_{first}", f"{kernel.name}_{first + 1}"
    if not loops:
        loops, inside = columns_of(kernel, segment)
        if loops:
            return [_elementwise(kernel, name, loops, inside)]
    if may_fail(replace(kernel, body=segment)):
        return [
            _elementwise(kernel, name, loops, inside)
            if loops
            else _one_thread(kernel, name, segment)
        ]
    product = product_of(kernel, loops)
    times: Value = ONE
    if product is not None:
        seldom = few(product)
        if seldom is None:
            return [Tiles(kernel, product).launch(name, ONE)]
        times = seldom
    made = None
    if not loops or (shares_work(inside) and not _is_wide(loops)):
        made = together(kernel, name, loops, inside, times)
    if made is None:
        made = (
            _elementwise(kernel, name, loops, inside, times)
            if loops
            else _one_thread(kernel, name, segment)
        )
    if product is None or times is ONE:
        return [made]
    return [made, Tiles(kernel, product).launch(second, folded("sub", ONE, times))]


def _is_wide(loops: Sequence[For]) -> bool:
    """Whether sums read what lies side by side along the outputs: then a thread an output reads well."""
    sums = sums_of(loops[-1])
    return sums is not None and lies_along(loops[-1], sums)


def _nest(segment: Sequence[Statement]) -> tuple[list[For], tuple[Statement, ...]]:
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


def _threads_for(total: Value) -> int:
    """Threads of a group for so many turns."""
    count = MAX_THREADS
    while isinstance(total, Const) and count > 32 and total.value <= count // 2:
        count //= 2
    return count


def _elementwise(
    kernel: Kernel, name: str, loops: Sequence[For], body: tuple[Statement, ...], times: Value = ONE
) -> Launch:
    """A thread a turn of a nest of parallel loops. times: 0 or 1, whether to launch it at all."""
    total = turns(loops)
    block = _threads_for(total)
    group, thread = ids("g"), ids("t")
    turn = folded("add", folded("mul", group[0], const(block)), thread[0])
    inside = Rewriter(places(loops, turn).get).block(body)
    guarded = If(Compare("bool", "lt", turn, total), inside)
    groups = groups_of(total, block)
    grid = groups if times is ONE else folded("mul", groups, times)
    return Launch(
        name, kernel, (grid, ONE, ONE), (block, 1, 1), group, thread, kernel.buffers, (guarded,)
    )  # fmt: skip


def _one_thread(kernel: Kernel, name: str, body: tuple[Statement, ...]) -> Launch:
    """One thread that runs statements as they are."""
    block: BLOCK = (1, 1, 1)
    return Launch(
        name, kernel, (ONE, ONE, ONE), block, ids("g"), ids("t"), kernel.buffers, tuple(body)
    )


__all__ = ["schedule_grid"]
