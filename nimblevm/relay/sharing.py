"""Nodes of a function's graph that have more than one use: to which activation they belong, and when they run.

A block is the body of a function, a branch of an if or the right side of a clause. A shared node belongs to the
innermost block around all of its uses and is evaluated there once, just before the first of them. If that use stands
in a block further in, the node is evaluated before the if or match that opens it chooses (after its condition), or
before the function literal becomes a closure: TVM's meaning (ToANormalForm, ToBasicBlockNormalForm).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from nimblevm.relay.ir import Expr, Function, If, Leaf, Match, children
from nimblevm.relay.visitor import post_order


@dataclass(frozen=True, slots=True)
class Sharing:
    """owner: shared node -> the function it belongs to. before: an if, match or function literal -> the shared nodes to
    evaluate before its blocks, in this order.
    """

    owner: Mapping[Expr, Function]
    before: Mapping[Expr, tuple[Expr, ...]]


NOTHING_SHARED = Sharing(MappingProxyType({}), MappingProxyType({}))


@dataclass(eq=False, slots=True)
class _Block:
    parent: _Block | None
    opener: Expr  # the if, match or function that the block hangs on
    function: Function  # the innermost function around it
    depth: int


def _blocks_of(node: Expr) -> int:
    """How many of the last children of a node are blocks of their own."""
    match node:
        case If():
            return 2
        case Match():
            return len(node.clauses)
        case Function():
            return 1
    return 0


def _common(a: _Block, b: _Block) -> _Block:
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        if a.parent is None:
            break
        a = a.parent
    return a


class _Finder:
    def __init__(self, root: Function) -> None:
        self.root = root
        self.home: dict[Expr, _Block] = {}
        self.inner: dict[Expr, list[_Block]] = {}
        self.shared: set[Expr] = set()

    def place(self, order: list[Expr]) -> None:
        """Users come before what they use: when a node's turn comes its block is known."""
        for node in reversed(order):
            parts = children(node)
            count = _blocks_of(node)
            here = self.home.get(node)
            blocks = [self._open(node, here) for _ in range(count)]
            if count:
                self.inner[node] = blocks
            where = [here] * (len(parts) - count) + blocks
            for child, block in zip(parts, where, strict=True):
                if isinstance(child, Leaf) or block is None:
                    continue
                known = self.home.get(child)
                if known is not None:
                    self.shared.add(child)
                self.home[child] = block if known is None else _common(known, block)

    def _open(self, node: Expr, here: _Block | None) -> _Block:
        if here is None:
            return _Block(None, node, self.root, 0)
        return _Block(
            here, node, node if isinstance(node, Function) else here.function, here.depth + 1
        )

    def early(self) -> dict[Expr, tuple[Expr, ...]]:
        """Nodes whose first use stands further in than their block, by what opens the way to that use."""
        found: dict[Expr, list[Expr]] = {}
        seen: set[Expr] = set()
        stack: list[tuple[Expr, _Block | None, bool]] = [(self.root, None, False)]
        while stack:
            node, used_in, done = stack.pop()
            home = self.home.get(node)
            if done:
                if used_in is not home and used_in is not None and home is not None:
                    found.setdefault(_opener(home, used_in), []).append(node)
                continue
            if node in seen:
                continue
            seen.add(node)
            stack.append((node, used_in, True))
            parts = children(node)
            blocks: list[_Block | None] = [*self.inner.get(node, ())]
            where = [home] * (len(parts) - len(blocks)) + blocks
            pairs = list(zip(parts, where, strict=True))
            stack.extend((c, b, False) for c, b in reversed(pairs) if not isinstance(c, Leaf))
        return {opener: tuple(nodes) for opener, nodes in found.items()}


def _opener(home: _Block, inside: _Block) -> Expr:
    """The node in block `home` that opens the way to block `inside`."""
    while inside.parent is not None and inside.parent is not home:
        inside = inside.parent
    return inside.opener


def find_sharing(root: Function) -> Sharing:
    """See the module's docstring. Cost: O(nodes), and the depth of blocks for each shared node."""
    finder = _Finder(root)
    finder.place([node for node in post_order(root) if not isinstance(node, Leaf)])
    if not finder.shared:
        return NOTHING_SHARED
    owner = {node: finder.home[node].function for node in finder.shared}
    return Sharing(owner, finder.early())


__all__ = ["NOTHING_SHARED", "Sharing", "find_sharing"]
