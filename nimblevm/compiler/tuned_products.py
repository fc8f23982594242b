"""External backends as a tuning record wants them: for each product that it knows, the one that it names or none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from nimblevm.compiler.external import Check, External
from nimblevm.kernels.variants import Choices, Shape
from nimblevm.relay.ir import Call, Expr
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType


def product_of(match: Expr) -> Shape | None:
    """The product with constant sizes in what a pattern matched, if there is one."""
    seen: set[Expr] = set()
    stack = [match]
    while stack:
        node = stack.pop()
        if node in seen or not isinstance(node, Call) or not isinstance(node.op, Op):
            continue
        seen.add(node)
        if node.op.name == "nn.dense":
            return _shape(node)
        stack.extend(reversed(node.args))
    return None


def _shape(dense: Call) -> Shape | None:
    x, weight = (a.checked_type for a in dense.args)
    if not isinstance(x, TensorType) or not isinstance(weight, TensorType):
        return None
    units, depth = weight.shape
    if not isinstance(units, int) or not isinstance(depth, int):
        return None
    return Shape(x.dtype, weight.dtype, depth, units)


def tuned(externals: Iterable[External], choices: Choices, asked: bool) -> tuple[External, ...]:
    """The backends with the record's choice as a further check. asked: products that the record does not know are the
    backend's, as everything else is that its patterns match.
    """
    return tuple(_tuned(external, choices, asked) for external in externals)


def _tuned(external: External, choices: Choices, asked: bool) -> External:
    def wanted(match: Expr) -> bool:
        product = product_of(match)
        if product is not None and product in choices.record:
            return choices.external.get(product) == external.name
        return asked

    def both(check: Check) -> Check:
        return lambda match: wanted(match) and check(match)

    rows = tuple((name, pattern, both(check)) for name, pattern, check in external.patterns)
    return dataclasses.replace(external, patterns=rows)


__all__ = ["product_of", "tuned"]
