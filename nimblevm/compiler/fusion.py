"""Which operators of a block share a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nimblevm.compiler.block_graph import BlockGraph, Kind, shape_of
from nimblevm.compiler.fuse_attention import BlockView, attention_groups
from nimblevm.compiler.fused_size import Member, written
from nimblevm.compiler.op_class import OpClass, class_of
from nimblevm.compiler.rewrite import type_of
from nimblevm.relay.ir import (
    Expr,
    TupleGetItem,
    Var,
    is_known,
)
from nimblevm.relay.op.registry import OpPattern
from nimblevm.relay.types import TupleType

MAX_OPS = 256
MAX_OPERANDS = 32
MAX_PRODUCTS = 16


@dataclass(eq=False, slots=True)
class Group:
    """What shares a kernel. Merging costs as much as the smaller group has members.

    members   indices of items, in order once `fuse` has returned
    operands  what it reads from outside
    last      its place: the last member
    outside   members that other code reads
    fails     members that may fail, and the lowest epoch of one
    products  members that are products with packed weights
    moves     members that read operands at other indices than their own
    forks     readings of members beyond the first
    """

    members: list[int]
    pattern: OpPattern
    ops: int
    operands: set[Expr]
    last: int
    outside: int
    fails: int
    first_epoch: int
    products: int = 0
    moves: int = 0
    forks: int = 0

    @property
    def is_open(self) -> bool:
        """Whether more can join it: it is injective, or products with packed weights (`_products_fit` decides)."""
        return self.pattern <= OpPattern.INJECTIVE or self.products > 0


class Fusion:
    """Groups of the operators of a block."""

    def __init__(self, graph: BlockGraph) -> None:
        self.graph = graph
        self.groups: dict[int, Group] = {}

    def fuse(self) -> list[Group]:
        """All groups to be written as kernels, each with its members in order."""
        for index, node in self.graph.nodes.items():
            operands = {
                a for a in self.graph.operands(index) if not is_known(a) or a.data.size != 1
            }
            self.groups[index] = Group(
                [index], node.pattern, int(node.kind is Kind.OP), operands, index,
                int(node.outside), int(node.may_fail), self.graph.epochs[index], int(self.graph.is_product(index)),
                int(not node.keeps_index), max(node.reads + node.outside - 1, 0),
            )  # fmt: skip
        self._join_attention()
        parent = self.graph.post_dominators()
        for phase in range(2):
            for index in sorted(self.graph.nodes):
                self._try_join(index, parent.get(index), phase)
        self._join_first_consumers()
        return self._finish()

    def is_output(self, index: int, group: Group) -> bool:
        """Whether something outside of its group reads a node, or it may fail and nothing reads it."""
        node = self.graph.nodes[index]
        if node.may_fail and not node.consumers:
            return True
        return node.outside or any(self.groups.get(c) is not group for c in node.consumers)

    def _join_attention(self) -> None:
        """Groups that no other operator joins."""
        readers = {i: [] if n.outside else n.consumers for i, n in self.graph.nodes.items()}
        view = BlockView(self.graph.values, self.graph.at, readers, self.graph.operands)
        for members in attention_groups(view):
            singles = all(len(self.groups[i].members) == 1 for i in members)
            if singles and self._merge(members):
                self.groups[members[0]].pattern = OpPattern.OPAQUE

    def _try_join(self, index: int, sink: int | None, phase: int) -> None:
        group = self.groups[index]
        if sink is None or self.groups[sink] is group or group.pattern is OpPattern.OPAQUE:
            return
        if group.pattern is OpPattern.OUT_ELEMWISE_FUSABLE:
            if phase == 0:
                shape, packed = shape_of(self.graph.values[index]), group.products > 0

                def same(n: int) -> bool:
                    other = self.groups[n]
                    joins = other.pattern <= OpPattern.BROADCAST or (packed and other.products > 0)
                    return joins and shape_of(self.graph.values[n]) == shape

                if same(sink):
                    self._join_path(index, sink, same)
        elif group.pattern <= OpPattern.BROADCAST:
            if self._is_injective(sink) or self.groups[sink].pattern is OpPattern.COMM_REDUCE:
                self._join_path(index, sink, self._is_injective)
        elif group.pattern is OpPattern.INJECTIVE and phase == 1 and self.groups[sink].is_open:
            self._join_path(index, sink, lambda n: self.groups[n].is_open)

    def _is_injective(self, index: int) -> bool:
        return self.groups[index].pattern <= OpPattern.INJECTIVE

    def _join_path(self, source: int, sink: int, allowed: Callable[[int], bool]) -> None:
        """Merge source, its post-dominator and all nodes between them if every one of those is allowed."""
        path = [source]
        seen = {source, sink}
        stack = list(self.graph.nodes[source].consumers)
        while stack:
            index = stack.pop()
            if index in seen:
                continue
            seen.add(index)
            if len(seen) > MAX_OPS or not allowed(index):
                return
            path.append(index)
            stack.extend(self.graph.nodes[index].consumers)
        self._merge([*path, sink])

    def _merge(self, indices: list[int]) -> bool:
        """Make one group of the groups of these nodes, if limits and effects allow."""
        groups = list(dict.fromkeys(self.groups[i] for i in indices))
        base = max(groups, key=lambda g: len(g.members))
        others = [g for g in groups if g is not base]
        added = {a for g in others for a in g.operands if self._group_of(a) not in groups}
        inner = [
            v for g in others for v in (self.graph.vars[i] for i in g.members) if v is not None
        ]
        count = len(base.operands) + len(added - base.operands)
        count -= sum(v in base.operands for v in inner)
        last = max(g.last for g in groups)
        outputs = sum(g.outside for g in groups) + (not self.graph.nodes[last].outside)
        if count + outputs > MAX_OPERANDS or self._too_large(groups):
            return False
        if not self._effects_allow(groups, last) or not self._products_fit(groups):
            return False
        for group in others:
            self._absorb(base, group)
        base.operands |= added
        base.operands.difference_update(inner)
        return True

    def _too_large(self, groups: list[Group]) -> bool:
        """Whether a kernel of these groups had more than MAX_OPS operators, counted as often as they are written."""
        ops = sum(g.ops for g in groups)
        forks = sum(g.forks for g in groups)
        # A reading doubles at most what is written of all before it, and only where the indices differ.
        if (
            ops > MAX_OPS
            or not any(g.moves for g in groups)
            or ops << min(forks, MAX_OPS) <= MAX_OPS
        ):
            return ops > MAX_OPS
        members = {i for g in groups for i in g.members}
        return written([self._member(i, members) for i in sorted(members)], MAX_OPS) > MAX_OPS

    def _member(self, index: int, members: set[int]) -> Member:
        node = self.graph.nodes[index]
        sources = [
            self.graph.at.get(a) if isinstance(a, Var) else None for a in self.graph.operands(index)
        ]
        return Member(
            index, type_of(self.graph.values[index]), [s for s in sources if s in members], node.keeps_index,
            int(node.kind is Kind.OP), self.graph.leaves(index, members),
        )  # fmt: skip

    def _group_of(self, atom: Expr) -> Group | None:
        index = self.graph.at.get(atom) if isinstance(atom, Var) else None
        return None if index is None else self.groups.get(index)

    def _absorb(self, base: Group, group: Group) -> None:
        base.members += group.members
        base.pattern = max(base.pattern, group.pattern)
        base.ops += group.ops
        base.last = max(base.last, group.last)
        base.outside += group.outside
        if group.fails:
            base.first_epoch = (
                min(base.first_epoch, group.first_epoch) if base.fails else group.first_epoch
            )
        base.fails += group.fails
        base.products += group.products
        base.moves += group.moves
        base.forks += group.forks
        for index in group.members:
            self.groups[index] = base

    def _products_fit(self, groups: list[Group]) -> bool:
        """Products with packed weights share a kernel with what reads them at the same index: elementwise
        operators of their shape. Their own operands come from outside. Other operators may feed those readers.
        """
        count = sum(g.products for g in groups)
        if not count:
            return True
        if count > MAX_PRODUCTS:
            return False
        members = sorted(i for g in groups for i in g.members)
        inside = set(members)
        reached: set[int] = set()
        shapes: set[object] = set()
        for index in members:
            read = {
                self.graph.at[a]
                for a in self.graph.operands(index)
                if isinstance(a, Var) and a in self.graph.at
            }
            node = self.graph.nodes[index]
            if self.graph.is_product(index):
                if read & inside:
                    return False
            elif not read & reached:
                if node.pattern > OpPattern.INJECTIVE:
                    return False
                continue
            elif node.pattern > OpPattern.BROADCAST or node.kind is not Kind.OP:
                return False
            reached.add(index)
            shapes.add(shape_of(self.graph.values[index]))
        outputs = {shape_of(self.graph.values[i]) for i in inside if self.graph.leaves(i, inside)}
        return len(shapes) == 1 and outputs <= shapes

    def _effects_allow(self, groups: list[Group], last: int) -> bool:
        """The members that may fail move to the last member's place: between the first of them and
        that place nothing but they may fail, branch, call or write. And all of their elements are
        computed, as they are alone.
        """
        fails = sum(g.fails for g in groups)
        if not fails:
            return True
        members = {i for g in groups for i in g.members}
        if not all(self._runs_in_full(i, members) for i in members if self.graph.nodes[i].may_fail):
            return False
        before = fails - self.graph.nodes[last].may_fail
        first = min(g.first_epoch for g in groups if g.fails)
        return not before or self.graph.epochs[last] - first == before

    def _runs_in_full(self, index: int, members: set[int]) -> bool:
        """A fused kernel computes the elements that it needs: no more of an operand than a slice of
        it, nothing for an empty result, no index into a source that is the same everywhere. What may
        fail therefore is a result of the kernel, and takes no source from it that it indexes.
        """
        node = self.graph.nodes[index]
        if not node.outside and all(c in members for c in node.consumers):
            return not node.consumers
        if node.pattern <= OpPattern.BROADCAST:
            return True
        return not any(
            isinstance(a, Var) and self.graph.at.get(a) in members
            for a in self.graph.operands(index)
        )

    def _join_first_consumers(self) -> None:
        """Merge injective groups and those of packed products into their first consumer where all other readers
        come after it.
        """
        for index in sorted(self.graph.nodes, reverse=True):
            group = self.groups[index]
            if group.last != index or not group.ops or not group.is_open:
                continue
            first = self._first_consumer(group)
            if first is not None and self.groups[first].is_open:
                self._merge([index, first])

    def _first_consumer(self, group: Group) -> int | None:
        """The last member of the group that reads this one first, if every other reader comes after
        that place.
        """
        readers: list[int] = []
        stack = list(group.members)
        while stack:
            index = stack.pop()
            var = self.graph.vars[index]
            if var is None:
                return None
            for reader, _ in self.graph.readers(var):
                node = self.graph.nodes.get(reader)
                if node is not None and self.groups[reader] is group:
                    continue
                if (
                    node is not None
                    and node.kind is not Kind.OP
                    and len(self.groups[reader].members) == 1
                ):
                    stack.append(reader)  # a lone field goes along
                    continue
                readers.append(reader)
        inside = [r for r in readers if r in self.graph.nodes and self.groups[r].ops]
        if not inside:
            return None
        place = min(self.groups[r].last for r in inside)
        target = self.groups[place]
        fits = all(self.groups.get(r) is target or r > place for r in readers)
        merged = {*group.members, *target.members}
        if not fits or any(
            isinstance(type_of(self.graph.values[i]), TupleType)
            for i in merged
            if self.graph.leaves(i, merged)
        ):
            return None
        return place

    def _finish(self) -> list[Group]:
        """Leave out what is no kernel: lone fields and views; fields of tuples from other groups."""
        result: list[Group] = []
        for group in dict.fromkeys(self.groups[i] for i in sorted(self.graph.nodes)):
            group.members.sort()
            inside = set(group.members)
            kept = [i for i in group.members if self._stays(i, inside)]
            for index in inside.difference(kept):
                del self.groups[index]
            group.members = kept
            ops = [i for i in kept if self.graph.nodes[i].kind is Kind.OP]
            lone_view = (
                len(ops) == 1
                and class_of(self.graph.values[ops[0]], self.graph.unbox) is OpClass.VIEW
            )
            if not ops or (lone_view and len(kept) == 1):
                for index in kept:
                    self.groups.pop(index, None)
                continue
            result.append(group)
        return result

    def _stays(self, index: int, inside: set[int]) -> bool:
        node = self.graph.nodes[index]
        if node.kind is Kind.GET:
            value = self.graph.values[index]
            source = value.tuple_value if isinstance(value, TupleGetItem) else None
            return isinstance(source, Var) and self.graph.at.get(source, -1) in inside
        return True
