"""Which storage serves which tensors, given sizes and lifetimes: greedy by size.

Largest first, a tensor takes the smallest storage so far that is provably large enough and free during its whole
lifetime, else a new one. Processed in this order a large tensor never finds that a small one took its place, which is
what makes a plan in order of time grow. Source: Pisarchyk and Lee 2020 (arXiv 2001.03288), "greedy by size", here
with sizes that are only partly ordered.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from nimblevm.errors import NimbleError
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar

MAX_LOOKS = 16
_TYPICAL = 61  # what a dim is taken for when sizes are put in an order; no plan depends on it for being right


@dataclass(frozen=True, slots=True)
class Request:
    """A tensor, or several that follow each other in place: bytes, first and last position in the block (both
    included), and the dims that are known at the first.
    """

    size: Dim
    start: int
    end: int
    known: frozenset[DimVar] = frozenset()


@dataclass(eq=False, slots=True)
class Slot:
    """One storage: bytes, and the requests it serves as indices, in order of time."""

    size: Dim
    members: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def holds(self, request: Request) -> bool:
        """Whether it may serve this one too."""
        at = bisect_right(self.starts, request.start)
        if at > 0 and self.ends[at - 1] >= request.start:
            return False
        if at < len(self.starts) and self.starts[at] <= request.end:
            return False
        if at == 0 and not request.known.issuperset(dims.free_vars(self.size)):
            return False  # its size is not known that early
        return dims.at_least(self.size, request.size)

    def add(self, index: int, request: Request) -> None:
        at = bisect_right(self.starts, request.start)
        self.members.insert(at, index)
        self.starts.insert(at, request.start)
        self.ends.insert(at, request.end)


def assign(requests: Sequence[Request]) -> list[Slot]:
    """Storages that serve all requests, none two at a time. O(n log n): at most MAX_LOOKS storages of other sizes are
    looked at for each.
    """
    by_size: dict[Dim, list[int]] = {}
    for index, request in enumerate(requests):
        by_size.setdefault(request.size, []).append(index)
    slots: list[Slot] = []
    for size in sorted(by_size, key=_typical, reverse=True):
        alike: list[tuple[int, int]] = []  # (where it becomes free, number) of those of this size
        larger = slots[: -MAX_LOOKS - 1 : -1]
        for index in sorted(by_size[size], key=lambda i: requests[i].start):
            request = requests[index]
            if alike and alike[0][0] < request.start:
                number = alike[0][1]
                heapq.heapreplace(alike, (request.end, number))
                slots[number].add(index, request)
                continue
            found = next((slot for slot in larger if slot.holds(request)), None)
            if found is None:
                found = Slot(size)
                heapq.heappush(alike, (request.end, len(slots)))
                slots.append(found)
            found.add(index, request)
    return slots


def _typical(size: Dim) -> int:
    try:
        return dims.evaluate(size, dict.fromkeys(dims.free_vars(size), _TYPICAL))
    except NimbleError:  # undefined for this value
        return 0


__all__ = ["MAX_LOOKS", "Request", "Slot", "assign"]
