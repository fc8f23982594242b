"""What nodes, types and dims have in common: they never change, so a copy of one is itself."""

from __future__ import annotations

from typing import NoReturn, Self


class Immutable:
    """Base of what is compared by identity or interned: another object would be another value.

    Alone none is pickled, because names of variables and dims mean something inside of their program only; a module is
    (as its text, relay/node_json.py).
    """

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"a {kind} can't be pickled; pickle the IRModule that it is in, or save_json(x)"
        )


__all__ = ["Immutable"]
