"""Dim expressions: the symbolic sizes of tensor axes, and their algebra.

A dim is a Python int (static) or a DimExpr. DimExprs are hash-consed in a canonical form (polynomials over
atoms for + - *; floordiv, floormod, min, max and bcast are atoms), so `is` decides whether two dims are the
same expression. Every dim denotes an integer >= 0; arithmetic is over the integers (overflow is a run-time error).

`bcast(a, b)` is the broadcast of two sizes: b if a is 1, a if b is 1, a if equal, otherwise undefined.
"""

from __future__ import annotations


class DimExpr:
    """Base of the unknown sizes. Immutable; equality is identity."""

    __slots__ = ("__weakref__",)


class DimVar(DimExpr):
    """An unknown size. Each object is its own unknown; `name` (None for `?`) is for printing."""

    __slots__ = ("name",)
    name: str | None

    def __init__(self, name: str | None = None) -> None:
        object.__setattr__(self, "name", name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("DimVar is immutable")

    def __repr__(self) -> str:
        return f"?{self.name}" if self.name else f"?#{id(self) & 0xFFFF:x}"


Dim = int | DimExpr
