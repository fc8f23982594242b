"""Weights of several products that share their panels (relay/op/dense_pack.py, "piece")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nimblevm.kernels.loop_ir import Binary, Const, Load, LoopVar, Value
from nimblevm.kernels.panel_tile import LANES


@dataclass(frozen=True, slots=True)
class Piece:
    """The columns of one product: from number `first` of a block on, `block` of them; a block has `panels`."""

    first: int
    block: int
    panels: int


def piece_of(w: Load, depth: LoopVar, column: LoopVar) -> Piece | None:
    """Where a weight's columns lie, if it is loaded as compute/dense_pack.py has it for a piece."""
    match w.indices:
        case (
            Binary(
                op="add",
                lhs=Binary(
                    op="mul",
                    lhs=Binary(op="floordiv", lhs=LoopVar() as outer, rhs=Const(value=size)),
                    rhs=Const(value=panels),
                ),
                rhs=Binary(op="floordiv", lhs=inside, rhs=Const(value=width)),
            ),
            LoopVar() as turn,
            Binary(op="floormod", lhs=lane, rhs=Const(value=lanes)),
        ) if outer is column and turn is depth and width == lanes == LANES:
            places = [_inside(v, column, int(size)) for v in (inside, lane)]
            if places[0] is not None and places[0] == places[1]:
                return Piece(places[0], int(size), int(panels))
    return None


def _inside(value: Value, column: LoopVar, size: int) -> int | None:
    """n if a value is `column % size + n`."""
    match value:
        case Binary(op="floormod", lhs=LoopVar() as var, rhs=Const(value=by)):
            return 0 if var is column and by == size else None
        case Binary(op="add", lhs=lhs, rhs=Const(value=more)):
            return int(more) if _inside(lhs, column, size) == 0 else None
    return None


def share_panels(pieces: Sequence[Piece | None], xs: Sequence[Load], ws: Sequence[Load]) -> bool:
    """Whether products are pieces of the same panels, times the same rows."""
    first = pieces[0]
    return first is not None and all(
        piece is not None
        and (piece.block, piece.panels) == (first.block, first.panels)
        and w.buffer == ws[0].buffer
        and _same_row(x, xs[0])
        for piece, x, w in zip(pieces, xs, ws, strict=True)
    )


def _same_row(one: Load, other: Load) -> bool:
    rows = zip(one.indices[:-1], other.indices[:-1], strict=True)
    return one.buffer == other.buffer and all(
        a is b or (isinstance(a, Const) and isinstance(b, Const) and a.value == b.value)
        for a, b in rows
    )


__all__ = ["Piece", "piece_of", "share_panels"]
