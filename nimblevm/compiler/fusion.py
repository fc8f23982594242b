"""Which operators of a block share a kernel: the graph part of fuse_ops."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from nimblevm.compiler.block_tree import BlockTree
from nimblevm.compiler.dataflow import keeps_order
from nimblevm.compiler.fuse_attention import MOVES, BlockView, attention_groups
from nimblevm.compiler.fused_size import Member, written
from nimblevm.compiler.op_class import OpClass, class_of
from nimblevm.compiler.rewrite import type_of
from nimblevm.relay.ir import (
    Call,
    Expr,
    Tuple,
    TupleGetItem,
    Var,
    children,
    is_known,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern
from nimblevm.relay.types import TensorType, TupleType

MAX_OPS = 256
MAX_OPERANDS = 32
MAX_PRODUCTS = 16
PACKED = "nn.contrib_dense_pack"
"""Products with packed weights: several of one shape and the elementwise operators that read them are one kernel."""


class Kind(enum.Enum):
    """What an item of a block is to fusion."""

    OP = "operator call"
    GET = "field of an operator's tuple"


@dataclass(eq=False, slots=True)
class Node:
    """An item that can be part of a group. consumers: indices of nodes; reads: how often they read it; outside: read
    by anything else.
    """

    index: int
    kind: Kind
    pattern: OpPattern
    may_fail: bool = False
    consumers: list[int] = field(default_factory=list)
    reads: int = 0
    outside: bool = False

    @property
    def keeps_index(self) -> bool:
        """Whether an element depends on the elements of operands at its own index alone, up to broadcasting."""
        return self.kind is Kind.OP and self.pattern <= OpPattern.BROADCAST


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


class BlockGraph:
    """The operators of one block. `uses`: variable -> (index of the reading item, from a nested
    block).
    """

    def __init__(
        self,
        variables: list[Var | None],
        values: list[Expr],
        uses: Mapping[Var, list[tuple[int, bool]]],
        unbox: bool,
    ) -> None:
        self.vars = variables
        self.values = values
        self.uses = uses
        self.unbox = unbox
        self.at: dict[Var, int] = {v: i for i, v in enumerate(variables) if v is not None}
        self.nodes: dict[int, Node] = {}
        self.groups: dict[int, Group] = {}
        self.epochs: list[int] = []
        self.inlined: set[int] = (
            set()
        )  # tuples that only operators read: written where they are read
        self._find_nodes()
        self._connect()

    # --- the graph ------------------------------------------------------------------------------

    def _find_nodes(self) -> None:
        epoch = 0
        for index, value in enumerate(self.values):
            self.epochs.append(epoch)
            node = self._node(index, value)
            if node is not None:
                self.nodes[index] = node
            if node.may_fail if node is not None else keeps_order(value):
                epoch += 1
        for index, value in enumerate(self.values):
            var = self.vars[index]
            if isinstance(value, Tuple) and var is not None and self._only_operators_read(var):
                self.inlined.add(index)

    def _node(self, index: int, value: Expr) -> Node | None:
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var):
            source = self.nodes.get(self.at.get(value.tuple_value, -1))
            if source is not None and source.kind is Kind.OP:
                return Node(index, Kind.GET, OpPattern.INJECTIVE)
            return None
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            return None
        class_ = class_of(value, self.unbox)
        op = value.op
        view = class_ is OpClass.VIEW and op.name in MOVES
        if class_ is not OpClass.KERNEL and not view:
            return None
        # Other views cost nothing where they are, so only attention takes them in.
        opaque = op.shape_values or (view and not _only_unit_axes(value))
        pattern = OpPattern.OPAQUE if opaque else op.pattern
        effect = op.effect_of(tuple(type_of(a) for a in value.args), value.attrs)
        return Node(index, Kind.OP, pattern, effect is Effect.MAY_FAIL)

    def _only_operators_read(self, var: Var) -> bool:
        readers = self.uses.get(var, [])
        return bool(readers) and all(
            not nested and index in self.nodes and self.nodes[index].kind is Kind.OP
            for index, nested in readers
        )

    def _connect(self) -> None:
        for node in self.nodes.values():
            var = self.vars[node.index]
            if var is None:
                node.outside = True
                continue
            for index, nested in self.readers(var):
                if nested or index not in self.nodes:
                    node.outside = True
                    continue
                node.reads += 1
                if index not in node.consumers[-1:]:
                    node.consumers.append(index)

    def readers(self, var: Var) -> Iterator[tuple[int, bool]]:
        """The items that read a variable, through inlined tuples."""
        for index, nested in self.uses.get(var, ()):
            tuple_var = self.vars[index]
            if not nested and index in self.inlined and tuple_var is not None:
                yield from self.uses.get(tuple_var, ())
            else:
                yield index, nested

    def operands(self, index: int) -> Iterator[Expr]:
        """The atoms that a node reads, inlined tuples opened."""
        value = self.values[index]
        for atom in value.args if isinstance(value, Call) else children(value):
            inline = self.inline_tuple(atom)
            yield from (atom,) if inline is None else inline.fields

    def inline_tuple(self, atom: Expr) -> Tuple | None:
        """The tuple that a variable of this block names."""
        index = self.at.get(atom) if isinstance(atom, Var) else None
        value = self.values[index] if index is not None else None
        # Also where other code reads the tuple: the operator then takes the fields.
        return value if isinstance(value, Tuple) else None

    def is_output(self, index: int, group: Group) -> bool:
        """Whether something outside of its group reads a node, or it may fail and nothing reads it."""
        node = self.nodes[index]
        if node.may_fail and not node.consumers:
            return True
        return node.outside or any(self.groups.get(c) is not group for c in node.consumers)

    # --- grouping -------------------------------------------------------------------------------

    def fuse(self) -> list[Group]:
        """All groups to be written as kernels, each with its members in order."""
        for index, node in self.nodes.items():
            operands = {a for a in self.operands(index) if not is_known(a) or a.data.size != 1}
            self.groups[index] = Group(
                [index], node.pattern, int(node.kind is Kind.OP), operands, index,
                int(node.outside), int(node.may_fail), self.epochs[index], int(self._is_product(index)),
                int(not node.keeps_index), max(node.reads + node.outside - 1, 0),
            )  # fmt: skip
        self._join_attention()
        parent = self._post_dominators()
        for phase in range(2):
            for index in sorted(self.nodes):
                self._try_join(index, parent.get(index), phase)
        self._join_first_consumers()
        return self._finish()

    def _join_attention(self) -> None:
        """Groups that no other operator joins."""
        readers = {i: [] if n.outside else n.consumers for i, n in self.nodes.items()}
        view = BlockView(self.values, self.at, readers, self.operands)
        for members in attention_groups(view):
            singles = all(len(self.groups[i].members) == 1 for i in members)
            if singles and self._merge(members):
                self.groups[members[0]].pattern = OpPattern.OPAQUE

    def _post_dominators(self) -> dict[int, int]:
        """node -> its immediate post-dominator among the nodes, where there is one."""
        tree = BlockTree()  # root 0: the outside
        number: dict[int, int] = {}
        node_of: dict[int, int] = {}
        for index in sorted(self.nodes, reverse=True):
            node = self.nodes[index]
            above: int | None = 0 if node.outside or not node.consumers else None
            for consumer in node.consumers:
                if above == 0:
                    break
                above = number[consumer] if above is None else tree.common(above, number[consumer])
            number[index] = tree.add(above or 0)
            node_of[number[index]] = index
        return {
            index: node_of[tree.parent[place]]
            for index, place in number.items()
            if tree.parent[place] != 0
        }

    def _try_join(self, index: int, sink: int | None, phase: int) -> None:
        group = self.groups[index]
        if sink is None or self.groups[sink] is group or group.pattern is OpPattern.OPAQUE:
            return
        if group.pattern is OpPattern.OUT_ELEMWISE_FUSABLE:
            if phase == 0:
                shape, packed = _shape(self.values[index]), group.products > 0

                def same(n: int) -> bool:
                    other = self.groups[n]
                    elementwise = other.pattern <= OpPattern.BROADCAST
                    return (elementwise or (packed and other.products > 0)) and _shape(
                        self.values[n]
                    ) == shape

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
        stack = list(self.nodes[source].consumers)
        while stack:
            index = stack.pop()
            if index in seen:
                continue
            seen.add(index)
            if len(seen) > MAX_OPS or not allowed(index):
                return
            path.append(index)
            stack.extend(self.nodes[index].consumers)
        self._merge([*path, sink])

    def _merge(self, indices: list[int]) -> bool:
        """Make one group of the groups of these nodes, if limits and effects allow."""
        groups = list(dict.fromkeys(self.groups[i] for i in indices))
        base = max(groups, key=lambda g: len(g.members))
        others = [g for g in groups if g is not base]
        added = {a for g in others for a in g.operands if self._group_of(a) not in groups}
        inner = [v for g in others for v in (self.vars[i] for i in g.members) if v is not None]
        count = len(base.operands) + len(added - base.operands)
        count -= sum(v in base.operands for v in inner)
        last = max(g.last for g in groups)
        outputs = sum(g.outside for g in groups) + (not self.nodes[last].outside)
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
        node = self.nodes[index]
        sources = [self.at.get(a) if isinstance(a, Var) else None for a in self.operands(index)]
        return Member(
            index, type_of(self.values[index]), [s for s in sources if s in members], node.keeps_index,
            int(node.kind is Kind.OP), self._leaves(index, members),
        )  # fmt: skip

    def _group_of(self, atom: Expr) -> Group | None:
        index = self.at.get(atom) if isinstance(atom, Var) else None
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

    def _is_product(self, index: int) -> bool:
        value = self.values[index]
        return isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == PACKED

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
            read = {self.at[a] for a in self.operands(index) if isinstance(a, Var) and a in self.at}
            node = self.nodes[index]
            if self._is_product(index):
                if read & inside:
                    return False
            elif not read & reached:
                if node.pattern > OpPattern.INJECTIVE:
                    return False
                continue
            elif node.pattern > OpPattern.BROADCAST or node.kind is not Kind.OP:
                return False
            reached.add(index)
            shapes.add(_shape(self.values[index]))
        outputs = {_shape(self.values[i]) for i in inside if self._leaves(i, inside)}
        return len(shapes) == 1 and outputs <= shapes

    def _leaves(self, index: int, members: set[int]) -> bool:
        """Whether a node is read outside of `members`."""
        node = self.nodes[index]
        return node.outside or any(c not in members for c in node.consumers)

    def _effects_allow(self, groups: list[Group], last: int) -> bool:
        """The members that may fail move to the last member's place: between the first of them and
        that place nothing but they may fail, branch, call or write. And all of their elements are
        computed, as they are alone.
        """
        fails = sum(g.fails for g in groups)
        if not fails:
            return True
        members = {i for g in groups for i in g.members}
        if not all(self._runs_in_full(i, members) for i in members if self.nodes[i].may_fail):
            return False
        before = fails - self.nodes[last].may_fail
        first = min(g.first_epoch for g in groups if g.fails)
        return not before or self.epochs[last] - first == before

    def _runs_in_full(self, index: int, members: set[int]) -> bool:
        """A fused kernel computes the elements that it needs: no more of an operand than a slice of
        it, nothing for an empty result, no index into a source that is the same everywhere. What may
        fail therefore is a result of the kernel, and takes no source from it that it indexes.
        """
        node = self.nodes[index]
        if not node.outside and all(c in members for c in node.consumers):
            return not node.consumers
        if node.pattern <= OpPattern.BROADCAST:
            return True
        return not any(
            isinstance(a, Var) and self.at.get(a) in members for a in self.operands(index)
        )

    def _join_first_consumers(self) -> None:
        """Merge injective groups and those of packed products into their first consumer where all other readers
        come after it.
        """
        for index in sorted(self.nodes, reverse=True):
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
            var = self.vars[index]
            if var is None:
                return None
            for reader, _ in self.readers(var):
                node = self.nodes.get(reader)
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
        inside = [r for r in readers if r in self.nodes and self.groups[r].ops]
        if not inside:
            return None
        place = min(self.groups[r].last for r in inside)
        target = self.groups[place]
        fits = all(self.groups.get(r) is target or r > place for r in readers)
        merged = {*group.members, *target.members}
        if not fits or any(
            isinstance(type_of(self.values[i]), TupleType)
            for i in merged
            if self._leaves(i, merged)
        ):
            return None
        return place

    def _finish(self) -> list[Group]:
        """Leave out what is no kernel: lone fields and views; fields of tuples from other groups."""
        result: list[Group] = []
        for group in dict.fromkeys(self.groups[i] for i in sorted(self.nodes)):
            group.members.sort()
            inside = set(group.members)
            kept = [i for i in group.members if self._stays(i, inside)]
            for index in inside.difference(kept):
                del self.groups[index]
            group.members = kept
            ops = [i for i in kept if self.nodes[i].kind is Kind.OP]
            lone_view = len(ops) == 1 and class_of(self.values[ops[0]], self.unbox) is OpClass.VIEW
            if not ops or (lone_view and len(kept) == 1):
                for index in kept:
                    self.groups.pop(index, None)
                continue
            result.append(group)
        return result

    def _stays(self, index: int, inside: set[int]) -> bool:
        node = self.nodes[index]
        if node.kind is Kind.GET:
            value = self.values[index]
            source = value.tuple_value if isinstance(value, TupleGetItem) else None
            return isinstance(source, Var) and self.at.get(source, -1) in inside
        return True


def _shape(value: Expr) -> tuple[object, ...] | None:
    type_ = type_of(value)
    return type_.shape if isinstance(type_, TensorType) else None


def _only_unit_axes(value: Call) -> bool:
    """Whether a view only adds or drops axes of size 1."""
    old, new = _shape(value.args[0]), _shape(value)
    if old is None or new is None:
        return False
    return [d for d in old if d != 1] == [d for d in new if d != 1]
