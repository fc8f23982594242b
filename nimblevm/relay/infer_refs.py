"""What refs claim of the sizes of their contents.

A ref made from a value of static size claims that size, as in TVM, unless some alias of a ref with such a
content may store another size: a write of an unknown or different dim, or the ref flowing to where its content
has other dims. Then the join of the two is an unknown (docs/dims.md), and it has to be so where the ref is made:
inference runs again, and refs made of that content claim the dims only that both have.

Contents are told apart by dtype and static dims, not by the place where a ref is made: aliases can't be followed.
"""

from __future__ import annotations

from collections.abc import Mapping

from nimblevm.relay import dims
from nimblevm.relay.dims import DimExpr, DimVar
from nimblevm.relay.types import HAS_DIM, TensorType, Type, parts, transform, transform_each

_ANY = DimVar()


def _pattern(content: Type) -> Type:
    """A content type with all unknown dims alike."""

    def leaf(found: Type) -> Type:
        if not isinstance(found, TensorType):
            return found
        return TensorType((_ANY if isinstance(d, DimExpr) else d for d in found.shape), found.dtype)

    return transform(content, leaf, HAS_DIM)


def _weaker(claimed: Type, stored: Type) -> Type:
    """The pattern of `claimed` less the dims that `stored` does not have; a container loses all."""

    def leaf(found: Type) -> Type:
        if not isinstance(found, TensorType):
            return found
        return TensorType([_ANY] * len(found.shape), found.dtype)

    if isinstance(claimed, TensorType) and isinstance(stored, TensorType):
        return TensorType(
            (
                p if isinstance(p, int) and dims.compare(p, q) else _ANY
                for p, q in zip(claimed.shape, stored.shape, strict=True)
            ),
            claimed.dtype,
        )
    return transform_each(claimed, leaf)


class RefClaims:
    """Which contents claim less than their types say: pattern -> weaker pattern.

    `forgotten` is in force; `conflicts` were found in this attempt and must be in force in the next.
    """

    def __init__(self, forgotten: Mapping[Type, Type] | None = None) -> None:
        self.forgotten: Mapping[Type, Type] = forgotten or {}
        self.conflicts: dict[Type, Type] = {}

    def claim(self, content: Type) -> Type:
        """What a ref made from a value of this type claims; its unknown dims stand for any."""
        pattern = _pattern(content)
        while pattern in self.forgotten:
            pattern = self.forgotten[pattern]
        return pattern

    def settle(self, claimed: Type, stored: Type) -> bool:
        """A value or alias of type `stored` meets a ref whose content is `claimed`.

        True if that makes the claim untrue where refs of that content are made: the caller need not
        compare dims, inference runs again. False if all is well, or if the claim is the user's.
        """
        if claimed is stored or not _claims_more(claimed, stored):
            return False
        pattern = _pattern(claimed)
        if pattern in self.forgotten:
            return False
        weaker = _pattern(_weaker(claimed, stored))
        before = self.conflicts.get(pattern)
        if before is not None and before is not weaker:
            weaker = _pattern(_weaker(before, weaker))
        self.conflicts[pattern] = weaker
        return True

    def weakened(self) -> RefClaims:
        """The claims of the next attempt."""
        return RefClaims({**self.forgotten, **self.conflicts})


def _claims_more(claimed: Type, stored: Type) -> bool:
    """Whether `claimed` has a static dim that `stored` does not prove. Structures may differ."""
    stack: list[tuple[Type, Type]] = [(claimed, stored)]
    seen: set[tuple[Type, Type]] = set()
    while stack:
        pair = stack.pop()
        have, other = pair
        if have is other or pair in seen:
            continue
        seen.add(pair)
        if isinstance(have, TensorType) and isinstance(other, TensorType):
            if have.dtype != other.dtype or len(have.shape) != len(other.shape):
                return False
            if any(
                isinstance(p, int) and not dims.compare(p, q)
                for p, q in zip(have.shape, other.shape, strict=True)
            ):
                return True
        elif type(have) is type(other) and len(parts(have)) == len(parts(other)):
            stack.extend(zip(parts(have), parts(other), strict=True))
    return False
