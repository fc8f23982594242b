"""tvm.relay.testing.nat: natural numbers of nat.rly as numbers of Python, and the other way."""

from __future__ import annotations

from typing import Any

from nimblevm.arguments import explain_arguments
from nimblevm.errors import InvalidInput
from nimblevm.relay.ir import Expr
from nimblevm.relay.prelude import Prelude


def count(prelude: Prelude, n: Any) -> int:
    """The number that a value of type nat stands for."""
    zero = prelude.mod.get_type("nat")[1]
    found = 0
    while n.tag != zero.tag:
        found += 1
        n = n.fields[0]
    return found


def make_nat_expr(prelude: Prelude, n: int) -> Expr:
    """An expression of type nat for a number >= 0."""
    if n < 0:
        raise InvalidInput(f"make_nat_expr: n must be >= 0, not {n}")
    _, zero, succ = prelude.mod.get_type("nat")
    made: Expr = zero()
    for _ in range(n):
        made = succ(made)
    return made


__all__ = ["count", "make_nat_expr"]

explain_arguments(globals(), __all__)
