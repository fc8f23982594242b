"""Finds equal ones among byte strings, which may be hundreds of megabytes of weights.

A long one is hashed whole only if another one has its size and agrees with it in some pieces, which weights that differ
do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

PIECE = 4096
"""Bytes that are looked at first at the beginning, in the middle and at the end."""


class DistinctBytes:
    """Numbers byte strings; those of equal key and equal content have one number."""

    def __init__(self) -> None:
        self._first: dict[Hashable, tuple[int, memoryview | None]] = {}
        self._hashed: dict[tuple[Hashable, bytes], int] = {}

    def number(self, key: Hashable, view: memoryview, new: int) -> int:
        """The number of what is equal to a view of bytes, which is kept; `new` if nothing is."""
        short = (key, view.nbytes, _sample(view))
        if short not in self._first:
            self._first[short] = (new, view)
            return new
        number, unhashed = self._first[short]
        if view.nbytes <= 3 * PIECE:
            return number
        if unhashed is not None:
            self._hashed[short, hashlib.sha256(unhashed).digest()] = number
            self._first[short] = (number, None)
        return self._hashed.setdefault((short, hashlib.sha256(view).digest()), new)


def _sample(view: memoryview) -> bytes:
    """The digest of what is looked at first: of all if it is short."""
    if view.nbytes <= 3 * PIECE:
        return hashlib.sha256(view).digest()
    middle = view.nbytes // 2
    found = hashlib.sha256(view[:PIECE])
    found.update(view[middle : middle + PIECE])
    found.update(view[-PIECE:])
    return found.digest()


__all__ = ["PIECE", "DistinctBytes"]
