"""Which storage serves which tensors, given sizes and lifetimes: greedy by size.

Largest first, a tensor takes the smallest storage so far that is free during its whole lifetime and provably large
enough, else one that can be made so: max(its size, the tensor's), which is never more than both. Else a new one.
Processed in this order a large tensor never finds that a small one took its place, which is what makes a plan in order
of time grow. Source: Pisarchyk and Lee 2020 (arXiv 2001.03288), "greedy by size", here with sizes that are only partly
ordered.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from nimblevm.errors import NimbleError
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimOp, DimVar

MAX_LOOKS = 16
MAX_SIZES = 4  # that have no order and share a storage
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
    """One storage: bytes, and the requests it serves as indices, in order of time. known: where the first starts."""

    size: Dim
    known: frozenset[DimVar] = frozenset()
    members: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def size_for(self, request: Request) -> Dim | None:
        """The size it needs to serve this one too; None if it can't."""
        at = bisect_right(self.starts, request.start)
        if at > 0 and self.ends[at - 1] >= request.start:
            return None
        if at < len(self.starts) and self.starts[at] <= request.end:
            return None
        known = self.known if at > 0 else request.known  # where it is allocated then
        size = self.size
        if not dims.at_least(size, request.size):
            size = dims.max_(size, request.size)
            if isinstance(size, DimOp) and size.op == "max" and len(size.args) > MAX_SIZES:
                return None
        return size if known.issuperset(dims.free_vars(size)) else None

    def add(self, index: int, request: Request) -> None:
        at = bisect_right(self.starts, request.start)
        if at == 0:
            self.known = request.known
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
            found = _existing(larger, request)
            if found is None:
                found = Slot(size)
                heapq.heappush(alike, (request.end, len(slots)))
                slots.append(found)
            found.add(index, request)
    return slots


def _existing(slots: Sequence[Slot], request: Request) -> Slot | None:
    """The first that is large enough, else the first that can be made larger, which is done."""
    found: tuple[Slot, Dim] | None = None
    for slot in slots:
        size = slot.size_for(request)
        if size is None:
            continue
        if size == slot.size:
            return slot
        found = found or (slot, size)
    if found is None:
        return None
    found[0].size = found[1]
    return found[0]


def _typical(size: Dim) -> int:
    try:
        return dims.evaluate(size, dict.fromkeys(dims.free_vars(size), _TYPICAL))
    except NimbleError:  # undefined for this value
        return 0


__all__ = ["MAX_LOOKS", "Request", "Slot", "assign"]
