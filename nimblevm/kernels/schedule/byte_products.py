"""Products of bytes with int32 sums, both operands contiguous along the depth: tiles of an instruction for them.

before:  for i < M: for j < N: { a = 0; for k < K: a += int32(x[.., i, k]) * int32(w[.., j, k]); out[i,j] = f(a) }
after:   for g < N / 64, parallel: for q < M / 24, parallel:
             tile = x[24q.., :] * w[64g.., :]                                (ByteProduct, a tile on the stack)
             for r < 24: for t < 64: { a = tile[r,t]; out[24q+r, 64g+t] = f(a) }

The same for the N mod 64 columns that are left; an N that is not known has a last group with fewer columns. Only for
CPUs that have the instruction (llvm_bytes.py); the other ones' way is dense.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nimblevm.kernels import llvm_bytes
from nimblevm.kernels.loop_ir import (
    BYTES,
    Accumulate,
    Axis,
    Binary,
    Buffer,
    ByteProduct,
    ByteWindows,
    Cast,
    Const,
    For,
    Kernel,
    Load,
    Local,
    LoopVar,
    SetLocal,
    Statement,
    Value,
)
from nimblevm.kernels.panel_tile import TILE_ROW
from nimblevm.kernels.rewrite import Rewriter, all_statements, replace_loops
from nimblevm.kernels.schedule.blocks import row_stride
from nimblevm.kernels.schedule.index import INDEX, STACK, const, folded, least
from nimblevm.kernels.schedule.narrow import narrowed
from nimblevm.kernels.schedule.sum_nest import sum_nest

ROWS = 24
"""Rows of a tile: four times those of the largest micro-kernel."""


@dataclass(frozen=True, eq=False, slots=True)
class Nest:
    """Two loops around a sum of products: what the sum is of, and how far rows of x and w lie apart."""

    rows: For
    columns: For
    depth: For
    local: Local
    x: Load
    w: Load
    after: tuple[Statement, ...]
    x_row: Value
    w_row: Value


def nest_of(statement: For, buffers: Sequence[Buffer]) -> Nest | None:
    """The parts of such a nest, or of a loop over columns alone, which has one row; None for another kind of loop."""
    inner = statement.body[0] if len(statement.body) == 1 else None
    if isinstance(inner, For):
        return _nest(statement, inner, buffers)
    row = For(LoopVar(INDEX, "i"), const(1), (statement,), parallel=True)
    return _nest(row, statement, buffers)


def _nest(rows: For, columns: For, buffers: Sequence[Buffer]) -> Nest | None:
    nest = sum_nest(rows, columns)
    x, w = (None, None) if nest is None else factors(nest.term)
    if nest is None or x is None or w is None:
        return None
    depth = nest.depth
    x_row = row_stride(x, rows.var, columns.var, depth.var, buffers)
    w_row = row_stride(w, columns.var, rows.var, depth.var, buffers)
    if x_row is None or w_row is None:
        return None
    return Nest(rows, columns, depth, nest.local, x, w, nest.after, x_row, w_row)


def has_byte_product(kernel: Kernel) -> bool:
    """Whether an unscheduled kernel has a sum of products of bytes, to be tiled or not."""
    _, body = narrowed(kernel.buffers, kernel.body)
    return any(
        isinstance(s, Accumulate) and s.op == "add" and None not in factors(s.value)
        for s in all_statements(body)
    )


def has_byte_tile(kernel: Kernel) -> bool:
    """Whether a scheduled kernel has tiles of the instruction."""
    return any(isinstance(s, ByteProduct | ByteWindows) for s in all_statements(kernel.body))


def factors(value: Value) -> tuple[Load | None, Load | None]:
    """The bytes that a product is of; None for another factor."""
    if not isinstance(value, Binary) or value.op != "mul" or value.dtype != "int32":
        return None, None
    return _byte(value.lhs), _byte(value.rhs)


def _byte(value: Value) -> Load | None:
    if not isinstance(value, Cast) or not isinstance(value.operand, Load):
        return None
    return value.operand if value.operand.dtype in BYTES else None


class _Tiler:
    """Rewrites the nests of one kernel; `buffers` grows by the tiles."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = list(buffers)

    def of(self, loop: For) -> list[Statement] | None:
        """What a loop becomes; None if it stays."""
        nest = nest_of(loop, self.buffers)
        return None if nest is None else self._tiled(nest)

    def _tiled(self, nest: Nest) -> list[Statement]:
        columns = nest.columns.extent
        self.buffers.append(Buffer(STACK, "int32", "scratch", (Axis(const(ROWS * TILE_ROW)),)))
        tile = len(self.buffers) - 1
        group = LoopVar(INDEX, nest.columns.var.name + "g")
        first = Binary(INDEX, "mul", group, const(TILE_ROW))
        if not isinstance(columns, Const):
            groups = folded(
                "floordiv", folded("add", columns, const(TILE_ROW - 1)), const(TILE_ROW)
            )
            here = least(TILE_ROW, folded("sub", columns, first))
            return [For(group, groups, self._rows(nest, tile, first, here), parallel=True)]
        whole, rest = divmod(int(columns.value), TILE_ROW)
        found: list[Statement] = []
        if whole:
            body = self._rows(nest, tile, first, const(TILE_ROW))
            found.append(For(group, const(whole), body, parallel=True))
        if rest:
            found += self._rows(nest, tile, const(whole * TILE_ROW), const(rest))
        return found

    def _rows(self, nest: Nest, tile: int, first: Value, here: Value) -> tuple[Statement, ...]:
        """All rows for columns first .. first + here, at most TILE_ROW."""
        rows = nest.rows.extent
        if isinstance(rows, Const) and rows.value <= ROWS:
            return self._tile(nest, tile, const(0), rows, first, here)
        number = LoopVar(INDEX, nest.rows.var.name + "q")
        start = Binary(INDEX, "mul", number, const(ROWS))
        count = least(ROWS, folded("sub", rows, start))
        blocks = folded("floordiv", folded("add", rows, const(ROWS - 1)), const(ROWS))
        body = self._tile(nest, tile, start, count, first, here)
        return (For(number, blocks, body, parallel=True),)

    def _tile(
        self, nest: Nest, tile: int, start: Value, count: Value, first: Value, here: Value
    ) -> tuple[Statement, ...]:
        """The product of `count` rows and `here` columns, and what is done with it."""
        at: dict[Value, Value] = {
            nest.rows.var: start, nest.depth.var: const(0), nest.columns.var: first
        }  # fmt: skip
        x, w = (Rewriter(at.get).value(load) for load in (nest.x, nest.w))
        assert isinstance(x, Load)
        assert isinstance(w, Load)
        product = ByteProduct(tile, x, nest.x_row, w, nest.w_row, nest.depth.extent, count, here)
        row, lane = LoopVar(INDEX, "r"), LoopVar(INDEX, "t")
        place = Binary(INDEX, "add", folded("mul", row, const(TILE_ROW)), lane)
        # Locals of its own for each part of the columns, as in panels.py.
        locals_ = {s.local for s in all_statements(nest.after) if isinstance(s, SetLocal)}
        here_: dict[Value, Value] = {
            local: Local(local.dtype, local.name) for local in {nest.local, *locals_}
        }
        sum_ = here_[nest.local]
        assert isinstance(sum_, Local)
        here_[nest.rows.var] = folded("add", start, row)
        here_[nest.columns.var] = folded("add", first, lane)
        after = Rewriter(here_.get).block(nest.after)
        total = SetLocal(sum_, Load("int32", tile, (place,)))
        inside = For(lane, here, (total, *after), parallel=True, masked=not isinstance(here, Const))
        return (product, For(row, count, (inside,), parallel=True))


def tile_bytes(
    buffers: tuple[Buffer, ...], body: Sequence[Statement], features: tuple[str, ...]
) -> tuple[tuple[Buffer, ...], tuple[Statement, ...]]:
    """Buffers, tiles on the stack behind them, and the new body, for a CPU with these features."""
    if not llvm_bytes.has_instruction(features):
        return buffers, tuple(body)
    tiler = _Tiler(buffers)
    new = replace_loops(body, tiler.of)
    return tuple(tiler.buffers), new


__all__ = ["has_byte_product", "has_byte_tile", "nest_of", "tile_bytes"]
