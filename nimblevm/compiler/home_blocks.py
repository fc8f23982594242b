"""In which block a node of a DAG is evaluated: the innermost one that dominates all of its uses."""

from __future__ import annotations

from nimblevm.compiler.block_tree import BlockTree
from nimblevm.compiler.rewrite import is_primitive, postorder
from nimblevm.relay.ir import Expr, Function, If, Leaf, Match, children


def sub_roots(node: Expr) -> tuple[Expr, ...]:
    """The subexpressions of a node that are blocks of their own."""
    match node:
        case If():
            return (node.true_branch, node.false_branch)
        case Match():
            return tuple(c.rhs for c in node.clauses)
        case Function():
            return (node.body,)
    return ()


def sub_root(node: Expr, index: int) -> Expr:
    """sub_roots(node)[index], without the other clauses of a long match."""
    return node.clauses[index].rhs if isinstance(node, Match) else sub_roots(node)[index]


def is_leaf(node: Expr) -> bool:
    return isinstance(node, Leaf) or is_primitive(node)


class HomeBlocks:
    """home[node]: the block in which a node is evaluated; sub[node]: the blocks that hang on it."""

    def __init__(self, root: Expr) -> None:
        self.tree = BlockTree()
        self.home: dict[Expr, int] = {root: 0}
        self.sub: dict[Expr, list[int]] = {}
        for node in reversed(postorder(root)):
            if is_leaf(node):
                continue
            here = self.home[node]
            roots = sub_roots(node)
            if roots:
                self.sub[node] = [self.tree.add(here) for _ in roots]
            for child in children(node)[: len(children(node)) - len(roots)]:
                self._use(child, here)
            for child, block in zip(roots, self.sub.get(node, ()), strict=True):
                self._use(child, block)

    def _use(self, node: Expr, block: int) -> None:
        if not is_leaf(node):
            known = self.home.get(node)
            self.home[node] = block if known is None else self.tree.common(known, block)
