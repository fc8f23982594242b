"""Whether two dim expressions are the same up to renaming variables.

The canonical order of arguments depends on the variables' creation, so the arguments of a commutative operation are
tried in all orders until one fits. Recursion is bounded by dims.MAX_DEPTH, work by a budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimOp, DimVar

Renaming = dict[DimVar, DimVar]

_ORDERED = ("floordiv", "floormod")
# Attempts; expressions that people and shape relations make need a handful.
_BUDGET = 10_000


def renamed(
    left: tuple[Dim, ...], right: tuple[Dim, ...], known: Mapping[DimVar, DimVar]
) -> Renaming | None:
    """A renaming that extends `known` and makes each dim of `left` the one of `right`; None if none is found."""
    return next(_Search().arguments(left, right, dict(known), ordered=True), None)


def is_renamed(a: Dim, b: Dim, known: Mapping[DimVar, DimVar]) -> bool | None:
    """Whether `known` makes `a` the expression `b`; None if `a` has variables that `known` lacks."""
    if not all(var in known for var in dims.free_vars(a)):
        return None
    return bool(dims.substitute(a, known) is b or a == b)


class _Search:
    """Depth-first search over the orders of arguments."""

    def __init__(self) -> None:
        self.attempts = 0

    def match(self, a: Dim, b: Dim, known: Renaming) -> Iterator[Renaming]:
        """All renamings that extend `known`."""
        self.attempts += 1
        if self.attempts > _BUDGET:
            return
        if isinstance(a, int) or isinstance(b, int):
            if a == b:
                yield known
        elif isinstance(a, DimVar) and isinstance(b, DimVar):
            if known.get(a) is b:
                yield known
            elif a not in known and b not in known.values():
                yield {**known, a: b}
        elif (
            isinstance(a, DimOp)
            and isinstance(b, DimOp)
            and (a.op, len(a.args)) == (b.op, len(b.args))
        ):
            yield from self.arguments(a.args, b.args, known, a.op in _ORDERED)

    def arguments(
        self, left: tuple[Dim, ...], right: tuple[Dim, ...], known: Renaming, ordered: bool
    ) -> Iterator[Renaming]:
        """All renamings under which the dims of `left` are those of `right`, in this or any order."""
        if not left:
            yield known
            return
        for index in range(1 if ordered else len(right)):
            rest = right[:index] + right[index + 1 :]
            for extended in self.match(left[0], right[index], known):
                yield from self.arguments(left[1:], rest, extended, ordered)
