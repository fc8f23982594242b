"""Which products have weights that share panels (relay/op/dense_pack.py, "piece"): gates that are one kernel.

before:  sigmoid(nn.dense(%x, w0)) * tanh(nn.dense(%x, w1))         (the constants are (150, K))
after:   sigmoid(nn.contrib_dense_pack(%x, w, weight_layout="NC16n", units=150, piece=(0, 2, 150)))
         * tanh(nn.contrib_dense_pack(%x, w, weight_layout="NC16n", units=150, piece=(1, 2, 150)))

150 columns take ten panels of 16, the last with ten empty columns: five gates take 50, two blocks of 5 x 75 columns 48.
Threads take blocks, so there may be more of them than give the fewest panels.

Only products of the same rows, more than one, that elementwise operators and the like join to each other and to no
other product, with weights that nothing else reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

from nimblevm.compiler.dataflow import Dataflow
from nimblevm.relay.ir import Call, Constant, Expr, Tuple, TupleGetItem, children
from nimblevm.relay.op.dense_pack import LANES, block_panels
from nimblevm.relay.op.registry import Op, OpPattern

MAX_PIECES = 16
MIN_PANELS, MAX_PANELS = 12, 64
"""Of one of several blocks: less is not worth another thread's time; of a block: a tile of six rows is 24 KiB then."""
GAIN, MORE = 1 / 50, 1 / 32
"""How much fewer panels are worth it; how many more than the fewest are for more blocks."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A product's place among those that share its panels: `weights` of all of them, in order, `block` columns each."""

    weights: tuple[Constant, ...]
    number: int
    block: int


def block_of(units: int, pieces: int) -> int | None:
    """Columns of each product in a block; None if panels of their own are as good."""
    alone = pieces * -(-units // LANES)
    found: dict[int, int] = {}
    for blocks in (1, 2, 4):
        panels = block_panels(pieces, units // blocks)
        least = 2 if blocks == 1 else MIN_PANELS
        if units % blocks == 0 and least <= panels <= MAX_PANELS and blocks * panels < alone:
            found[blocks] = blocks * panels
    fewest = min(found.values(), default=alone)
    if fewest > alone * (1 - GAIN):
        return None
    return units // max(blocks for blocks, panels in found.items() if panels <= fewest * (1 + MORE))


def shared_products(
    roots: Iterable[Expr],
    weight_of: Callable[[Expr], Constant | None],
    units_of: Callable[[Constant], int],
) -> dict[Expr, Shared]:
    """The products, by node, whose weights share panels. roots: bodies of functions; weight_of: the weight of a product
    that may.
    """
    flows = [Dataflow(root) for root in roots]
    uses = Counter(
        c for f in flows for n in f.order for c in children(n) if isinstance(c, Constant)
    )
    found: dict[Expr, Shared] = {}
    for flow in flows:
        for products in _joined(flow):
            weights = [weight_of(p) for p in products]
            known = tuple([w for w in weights if w is not None and uses[w] == 1])
            rows = {flow.resolve(p.args[0]) for p in products}
            sizes = {(units_of(w), w.data.size, w.data.dtype.name) for w in known}
            if not 2 <= len(known) == len(products) <= MAX_PIECES:
                continue
            if len(rows) > 1 or len(sizes) > 1:
                continue
            block = block_of(units_of(known[0]), len(known))
            if block is not None:
                found.update((p, Shared(known, k, block)) for k, p in enumerate(products))
    return found


def _joined(flow: Dataflow) -> list[list[Call]]:
    """The products that operators on elements join, in order."""
    parent: dict[Expr, Expr] = {}

    def find(node: Expr) -> Expr:
        while parent.setdefault(node, node) is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    products: list[Call] = []
    for node in flow.order:
        if _is_product(node):
            products.append(node)
        elif _joins(node):
            for arg in _parts(flow, node):
                if _joins(arg) or _is_product(arg):
                    parent[find(arg)] = find(node)
    groups: dict[Expr, list[Call]] = {}
    for product in products:
        groups.setdefault(find(product), []).append(product)
    return list(groups.values())


def _pattern(node: Expr) -> OpPattern | None:
    return node.op.pattern if isinstance(node, Call) and isinstance(node.op, Op) else None


def _is_product(node: Expr) -> TypeGuard[Call]:
    """Whether a node is a product, or anything that has an epilogue as products have."""
    return _pattern(node) is OpPattern.OUT_ELEMWISE_FUSABLE


def _joins(node: Expr) -> bool:
    pattern = _pattern(node)
    return isinstance(node, TupleGetItem) or (
        pattern is not None and pattern <= OpPattern.INJECTIVE
    )


def _parts(flow: Dataflow, node: Expr) -> Iterator[Expr]:
    """What an operator reads, itself or in a tuple."""
    for arg in map(flow.resolve, children(node)):
        yield from map(flow.resolve, arg.fields) if isinstance(arg, Tuple) else (arg,)


__all__ = ["Shared", "block_of", "shared_products"]
