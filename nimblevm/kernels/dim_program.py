"""Sizes as dim programs: the postfix words in which signatures and grids hold them (docs/format.md)."""

from __future__ import annotations

from nimblevm.abi import MAX_EXPR_DEPTH, MAX_EXPR_WORDS, OPERATIONS, DimWord
from nimblevm.errors import Unsupported
from nimblevm.kernels.loop_ir import Binary, Const, DimRef, Value


def dim_program(value: Value) -> list[int]:
    """The words of a size, without END. Unsupported for one that is too long or too deep, or no size."""
    words: list[int] = []
    depth = most = 0
    todo: list[tuple[Value, bool]] = [(value, False)]
    while todo:
        node, ready = todo.pop()
        match node:
            case Const(value=number):
                words += (DimWord.CONST, int(number))
                depth += 1
            case DimRef(index=index):
                words += (DimWord.REF, index)
                depth += 1
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in OPERATIONS:
                if ready:
                    words.append(OPERATIONS[op])
                    depth -= 1
                else:
                    todo += ((node, True), (rhs, False), (lhs, False))
            case _:
                raise Unsupported(f"{type(node).__name__} can't stand in a size")
        most = max(most, depth)
        if len(words) >= MAX_EXPR_WORDS or most > MAX_EXPR_DEPTH:
            raise Unsupported("a size is too long an expression")
    return words


__all__ = ["dim_program"]
