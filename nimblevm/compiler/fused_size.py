"""How much code a fused kernel gets.

An operator that only moves elements is written where it is read, with everything before it, once for each index at
which it is read: `concatenate((a, b))` reads a at i and b at i - n. Where a chain reads each value twice, at different
indices, what is written doubles with every link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class Member:
    """An operator of a group. sources: the members that it reads, one for each operand that is one; keeps_index: it
    reads them at its own index, up to broadcasting; ops: operators that it counts as; leaves: read outside of the group
    too.
    """

    index: int
    type: Type
    sources: Sequence[int]
    keeps_index: bool
    ops: int
    leaves: bool


def written(members: Sequence[Member], limit: int) -> int:
    """How many operators the body of a kernel has, each counted once for each index at which its elements are
    computed; above the limit, some number above it. members: in order, readers after what they read.
    """
    types = {m.index: m.type for m in members}
    numbers: dict[object, int] = {}  # what an index is made from -> its number
    indices: dict[int, set[int]] = {m.index: set() for m in members}
    total = 0
    for member in reversed(members):
        own = indices[member.index]
        if member.leaves:
            own.add(numbers.setdefault(_shape(member.type), len(numbers)))
        total += member.ops * len(own)
        if total > limit:
            break
        for operand, source in enumerate(member.sources):
            shape = _shape(types[source])
            if not member.keeps_index:
                how: object = (member.index, operand)
            elif shape == _shape(member.type):
                indices[source] |= own
                continue
            else:
                how = shape
            indices[source].update(numbers.setdefault((i, how), len(numbers)) for i in own)
    return total


def _shape(type_: Type) -> object:
    return type_.shape if isinstance(type_, TensorType) else None


__all__ = ["Member", "written"]
