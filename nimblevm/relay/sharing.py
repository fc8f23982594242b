"""Which nodes of a function's graph have more than one use, and which function literal each belongs to.

A node belongs to the innermost function around all of its uses: there it has one value per activation.
"""

from __future__ import annotations

from collections.abc import Mapping

from nimblevm.relay.ir import Expr, Function, Leaf, children


def _topological(root: Function) -> list[Expr]:
    """All nodes under `root`, users before what they use. Iterative."""
    order: list[Expr] = []
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        stack.extend((child, False) for child in children(node) if not isinstance(child, Leaf))
    order.reverse()
    return order


def shared_nodes(root: Function) -> Mapping[Expr, Function]:
    """Nodes under `root` (leaves excepted) with several uses -> the function they belong to. Cost: O(nodes)."""
    owner: dict[Expr, Function] = {}
    depth: dict[Function, int] = {root: 0}
    around: dict[Function, Function] = {}
    shared: dict[Expr, Function] = {}

    def join(a: Function, b: Function) -> Function:
        while a is not b:
            if depth[a] >= depth[b]:
                a = around[a]
            else:
                b = around[b]
        return a

    for node in _topological(root):
        if isinstance(node, Function):
            scope = node
            if node is not root:
                around[node] = owner[node]
                depth[node] = depth[owner[node]] + 1
        else:
            scope = owner[node]
        for child in children(node):
            if isinstance(child, Leaf):
                continue
            if child in owner:
                owner[child] = join(owner[child], scope)
                shared[child] = owner[child]
            else:
                owner[child] = scope
    for node in shared:
        shared[node] = owner[node]
    return shared


__all__ = ["shared_nodes"]
