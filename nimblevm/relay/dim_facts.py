"""A solver for equalities of dims that are assumed at a place, beyond what dims.compare proves by
itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar


class DimFacts:
    """What is known of dims at a place: which variables are bound, and equalities assumed on top.

    bound   variables whose number is known there (bound by DimOf, a parameter, or computed from
    such)

    `assume_equal` keeps a triangular substitution (a union-find whose classes may hold one
    expression): a variable stands for an int, an older variable or an expression that does not
    mention it.
    """

    def __init__(self, bound: Iterable[DimVar] = ()) -> None:
        self.bound: set[DimVar] = set(bound)
        self._stands_for: dict[DimVar, Dim] = {}
        self._zero: set[Dim] = set()

    def normal(self, dim: Dim) -> Dim:
        """`dim` with every variable replaced by the representative of its class."""
        mapping = self._stands_for
        while mapping and any(v in mapping for v in dims.free_vars(dim)):
            dim = dims.substitute(dim, mapping)
        return dim

    def compare(self, a: Dim, b: Dim) -> bool | None:
        """As dims.compare, under the assumed equalities."""
        if a is b:
            return True
        result = dims.compare(self.normal(a), self.normal(b))
        if result is None and self._zero:
            left, right = self.normal(a), self.normal(b)
            zeros = {self.normal(z) for z in self._zero}
            if dims.sub(left, right) in zeros or dims.sub(right, left) in zeros:
                return True
        return result

    def assume_equal(self, a: Dim, b: Dim) -> None:
        """Add the fact a == b. ValueError if it contradicts what is known."""
        left, right = self.normal(a), self.normal(b)
        verdict = dims.compare(left, right)
        if verdict:
            return
        if verdict is False:
            raise ValueError(f"{a!r} can't equal {b!r}")
        difference = dims.sub(left, right)
        solved = _solve(difference)
        if solved is None:
            self._zero.add(difference)
        else:
            self._stands_for[solved[0]] = solved[1]


def _solve(difference: Dim) -> tuple[DimVar, Dim] | None:
    """A variable with coefficient +-1 that occurs once in `difference` == 0, and its value: the
    newest one.
    """
    poly = dims.polynomial(difference)
    for atoms in sorted(poly, key=lambda atoms: [a.key for a in atoms], reverse=True):
        if len(atoms) != 1 or not isinstance(atoms[0], DimVar) or abs(poly[atoms]) != 1:
            continue
        var = atoms[0]
        rest = dims.from_polynomial(
            {m: -c * poly[atoms] for m, c in poly.items() if m is not atoms}
        )
        if var not in dims.free_vars(rest):
            return var, rest
    return None
