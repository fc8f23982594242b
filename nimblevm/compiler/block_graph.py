"""The operators of a block as a graph: what each is to fusion, what it reads, and who reads it."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from nimblevm.compiler.block_tree import BlockTree
from nimblevm.compiler.dataflow import keeps_order
from nimblevm.compiler.fuse_attention import MOVES
from nimblevm.compiler.op_class import OpClass, class_of
from nimblevm.compiler.rewrite import type_of
from nimblevm.relay.ir import Call, Expr, Tuple, TupleGetItem, Var, children
from nimblevm.relay.op.registry import Effect, Op, OpPattern
from nimblevm.relay.types import TensorType

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


class BlockGraph:
    """The operators of one block.

    uses      variable -> (index of the reading item, from a nested block)
    at        variable -> index of the item that binds it
    epochs    by item: how many before it may fail or keep their order
    inlined   tuples that only operators read: written where they are read
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
        self.epochs: list[int] = []
        self.inlined: set[int] = set()
        self._find_nodes()
        self._connect()

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

    def leaves(self, index: int, members: Collection[int]) -> bool:
        """Whether a node is read outside of `members`."""
        node = self.nodes[index]
        return node.outside or any(c not in members for c in node.consumers)

    def is_product(self, index: int) -> bool:
        """Whether a node is a product with packed weights."""
        value = self.values[index]
        return isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == PACKED

    def post_dominators(self) -> dict[int, int]:
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


def shape_of(value: Expr) -> tuple[object, ...] | None:
    """The shape of a value that is one tensor."""
    type_ = type_of(value)
    return type_.shape if isinstance(type_, TensorType) else None


def _only_unit_axes(value: Call) -> bool:
    """Whether a view only adds or drops axes of size 1."""
    old, new = shape_of(value.args[0]), shape_of(value)
    if old is None or new is None:
        return False
    return [d for d in old if d != 1] == [d for d in new if d != 1]
