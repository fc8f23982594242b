"""Where each node of an expression graph is printed: the block of its line, and whether it needs a line at all.

A node that several places use is bound once (`%N = ...;`) in the innermost block that encloses all of them. Parents are
placed before children, so every block's parent is final when the block is made. Cost: n log n.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nimblevm.relay.ir import (
    Call,
    Constructor,
    Expr,
    Function,
    If,
    Leaf,
    Let,
    Match,
    Tuple,
    TupleGetItem,
    children,
)
from nimblevm.relay.visitor import post_order


class Block:
    """The text between two braces: lines of pieces; a piece is text or an inner block."""

    __slots__ = ("_jump", "depth", "lines", "parent")

    def __init__(self, parent: Block | None = None) -> None:
        self.lines: list[list[str | Block]] = []
        self.parent: Block = self if parent is None else parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        # Skew-binary jump pointers: ancestors in O(log depth) with one pointer a block.
        self._jump: Block = self
        if parent is not None:
            jump = parent._jump
            even = parent.depth - jump.depth == jump.depth - jump._jump.depth
            self._jump = jump._jump if even else parent

    def common(self, other: Block) -> Block:
        """The innermost block that encloses both."""
        a, b = (self, other) if self.depth >= other.depth else (other, self)
        while a.depth > b.depth:
            a = a._jump if a._jump.depth >= b.depth else a.parent
        while a is not b:
            a, b = (a.parent, b.parent) if a._jump is b._jump else (a._jump, b._jump)
        return a


@dataclass(frozen=True, slots=True)
class Placement:
    """`block`: where a node's line goes. `inner`: blocks that a node opens. `inline`: nodes without a line.

    `tail`: nodes that are the value of the block they stand in.
    """

    block: dict[Expr, Block] = field(default_factory=dict)
    inner: dict[Expr, tuple[Block, ...]] = field(default_factory=dict)
    inline: set[Expr] = field(default_factory=set)
    tail: set[Expr] = field(default_factory=set)


def is_unit(expr: Expr) -> bool:
    return isinstance(expr, Tuple) and not expr.fields


def is_nullary(expr: Expr) -> bool:
    """A call of a constructor without fields: printed bare."""
    return isinstance(expr, Call) and isinstance(expr.op, Constructor) and not expr.args


def _short(parent: Expr, child: Expr) -> bool:
    """Whether `child`, used only by `parent`, is printed in its place although it stands inside a line."""
    if isinstance(child, TupleGetItem):
        return isinstance(child.tuple_value, Leaf) and not isinstance(parent, TupleGetItem)
    # Not as a callee: `Nil()` reads as the constructor's own call.
    return is_nullary(child) and not (isinstance(parent, Call) and parent.op is child)


def place(root: Expr, outer: Block) -> Placement:
    """Place `root` as the value of the block `outer`."""
    order = post_order(root)
    uses: dict[Expr, int] = {root: 1}
    for node in order:
        for child in children(node):
            uses[child] = uses.get(child, 0) + 1
    found = Placement()
    found.block[root] = outer
    found.inline.add(root)
    found.tail.add(root)
    for node in reversed(order):
        for child, block, tail in _edges(node, found):
            if isinstance(child, Leaf):
                continue
            known = found.block.get(child)
            found.block[child] = block if known is None else known.common(block)
            if uses[child] == 1 and (tail or _short(node, child) or _is_value(node, child)):
                found.inline.add(child)
                if tail:
                    found.tail.add(child)
            elif is_unit(child):
                found.inline.add(child)
    return found


def _is_value(node: Expr, child: Expr) -> bool:
    return isinstance(node, Let) and child is node.value


def _edges(node: Expr, found: Placement) -> list[tuple[Expr, Block, bool]]:
    """The uses that `node` makes: child, block, and whether the child is that block's value."""
    here = found.block.get(node)
    if here is None:
        return []  # a leaf
    match node:
        case Let(value=value, body=body):
            # A let that is a block's value continues the block; any other one opens its own.
            block = here if node in found.tail else Block(here)
            found.inner[node] = (block,)
            return [(value, block, False), (body, block, True)]
        case Function(body=body):
            found.inner[node] = (Block(here),)
            return [(body, found.inner[node][0], True)]
        case If(cond=cond, true_branch=true, false_branch=false):
            first, second = found.inner[node] = (Block(here), Block(here))
            return [(cond, here, False), (true, first, True), (false, second, True)]
        case Match(data=data, clauses=clauses):
            blocks = found.inner[node] = tuple(Block(here) for _ in clauses)
            arms = [(c.rhs, block, True) for c, block in zip(clauses, blocks, strict=True)]
            return [(data, here, False), *arms]
    return [(child, here, False) for child in children(node)]
