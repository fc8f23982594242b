"""The regions that annotation.compiler_begin and compiler_end mark in a function.

    annotation.compiler_end(tanh(annotation.compiler_begin(%x, compiler="acc")), compiler="acc")

A region is what stands between ends of one compiler and the begins behind them; parts that share a node are one region.
What is in it are operators, tuples, fields of tuples, calls of composites, and constants. Works on functions in graph
form and with lets; a region never goes through a let's variable, nor across the border of a branch, clause or function.

Source: TVM's AnnotatedRegionSet.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nimblevm.compiler.block_dag import Items, Units
from nimblevm.compiler.dataflow import keeps_order
from nimblevm.compiler.home_blocks import HomeBlocks
from nimblevm.compiler.rewrite import is_primitive, postorder
from nimblevm.errors import CompileError
from nimblevm.relay.ir import (
    Call,
    Constant,
    Expr,
    Function,
    Leaf,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    children,
)
from nimblevm.relay.op.compiler_region import BEGIN, END
from nimblevm.relay.op.registry import Op
from nimblevm.relay.visitor import post_order


def is_composite(node: Expr) -> bool:
    """A function that holds what a pattern matched."""
    return isinstance(node, Function) and "Composite" in node.attrs


def is_mark(node: Expr, name: str) -> bool:
    """Whether a node is annotation.compiler_begin (BEGIN) or compiler_end (END)."""
    return isinstance(node, Call) and isinstance(node.op, Op) and node.op.name == name


def compiler_of(mark: Expr) -> str:
    """The external backend that a mark names."""
    return str(mark.attrs.compiler) if isinstance(mark, Call) else ""


def nodes_of(root: Expr) -> list[Expr]:
    """Every node of a function's body once, operands first, without what is inside of composites and kernels."""
    return post_order(root, lambda node: is_primitive(node) or is_composite(node))


@dataclass(slots=True)
class MarkedRegion:
    """compiler: its backend. home: the block in which it is evaluated. nodes: marks too, operands first."""

    compiler: str
    home: int
    nodes: list[Expr] = field(default_factory=list)

    @property
    def begins(self) -> list[Call]:
        return [n for n in self.nodes if isinstance(n, Call) and is_mark(n, BEGIN)]

    @property
    def ends(self) -> list[Call]:
        return [n for n in self.nodes if isinstance(n, Call) and is_mark(n, END)]


class AnnotatedFunction(Items):
    """The nodes of a function's body as items, and its regions. CompileError for marks that make none."""

    def __init__(self, function: Function) -> None:
        self.nodes = [n for n in nodes_of(function.body) if isinstance(n, Var) or not _is_atom(n)]
        self.item = {node: i for i, node in enumerate(self.nodes)}
        before: list[list[int]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            if not isinstance(node, Var):
                before[index] += [self.item[c] for c in children(node) if c in self.item]
            if isinstance(node, Let) and node.var in self.item:
                before[self.item[node.var]].append(self.item[node.value])
                inner = node.body.var if isinstance(node.body, Let) else None
                if inner in self.item:  # its scope lies inside of this one's
                    before[self.item[inner]].append(self.item[node.var])
        self.readers: dict[Expr, list[Expr]] = {}
        for node in self.nodes:
            if not isinstance(node, Var):
                for child in children(node):
                    self.readers.setdefault(child, []).append(node)
        super().__init__(before, [i for i, n in enumerate(self.nodes) if _keeps_order(n)])
        self.regions = _regions(self.nodes, HomeBlocks(function.body).home)

    def units(self) -> Units:
        """The regions as units. CompileError for a region that waits for what waits for it."""
        units = self._joined()
        if not units.is_ordered():
            self.ordered = []  # regions made by hand in which what may fail changes places with other such nodes
            units = self._joined()
        if units.is_ordered():
            return units
        for region in self.regions:
            alone = Units(self)
            alone.join([self.item[n] for n in region.nodes])
            if not alone.is_ordered():
                raise _error(region.ends[0], "its region reads what is made of its own results")
        raise _error(self.regions[0].ends[0], "regions read each other's results in a circle")

    def _joined(self) -> Units:
        units = Units(self)
        for region in self.regions:
            units.join([self.item[n] for n in region.nodes])
        return units


def _is_atom(node: Expr) -> bool:
    return isinstance(node, Leaf) or is_primitive(node) or is_composite(node)


def _keeps_order(node: Expr) -> bool:
    """As keeps_order; a composite does what is in it."""
    if isinstance(node, Call) and isinstance(node.op, Function) and is_composite(node.op):
        return any(map(keeps_order, postorder(node.op.body)))
    return not isinstance(node, Let) and keeps_order(node)


def _regions(nodes: list[Expr], home: dict[Expr, int]) -> list[MarkedRegion]:
    """The regions in the order of their first nodes."""
    head: dict[Expr, Expr] = {}

    def find(node: Expr) -> Expr:
        while head[node] is not node:
            head[node] = head[head[node]]
            node = head[node]
        return node

    for end in nodes:
        if not is_mark(end, END):
            continue
        head.setdefault(end, end)
        stack = [end]
        while stack:
            node = stack.pop()
            if is_mark(node, BEGIN):
                continue
            for child in children(node):
                if isinstance(child, Op | Constant) or is_composite(child):
                    continue
                _check_inside(child, end, home)
                if child not in head:
                    head[child] = child
                    stack.append(child)
                head[find(child)] = find(end)
    found: dict[Expr, MarkedRegion] = {}
    for node in nodes:
        if node in head:
            root = find(node)
            if root not in found:
                found[root] = MarkedRegion(compiler_of(root), home[root])
            found[root].nodes.append(node)
    for root, region in found.items():
        for mark in (*region.begins, *region.ends):
            if compiler_of(mark) != region.compiler:
                raise _error(mark, f"a region of {compiler_of(root)} ends in it")
    return list(found.values())


def _check_inside(node: Expr, end: Expr, home: dict[Expr, int]) -> None:
    """Whether a node may be in a region; CompileError says why not."""
    if is_mark(node, END):
        raise _error(node, f"there is no compiler_begin behind the one that reads it ({end.span})")
    if isinstance(node, Var):
        raise _error(end, f"%{node.name_hint} is read behind it without a compiler_begin")
    known = isinstance(node, Tuple | TupleGetItem) or (
        isinstance(node, Call) and (isinstance(node.op, Op) or is_composite(node.op))
    )
    if not known:
        kind = type(node).__name__
        raise _error(
            end,
            f"a {kind} is in its region; operators, tuples and composites can be, others stand before compiler_begin",
        )
    if home.get(node) != home.get(end):
        raise _error(
            end,
            "its region crosses the border of a branch, clause or function; annotate each alone",
        )


def _error(mark: Expr, text: str) -> CompileError:
    where = f"{mark.span}: " if mark.span is not None else ""
    return CompileError(
        f"{where}{mark.op!r} of {compiler_of(mark)}: {text}" if isinstance(mark, Call) else text
    )


__all__ = [
    "AnnotatedFunction", "MarkedRegion", "compiler_of", "is_composite", "is_mark", "nodes_of",
]  # fmt: skip
