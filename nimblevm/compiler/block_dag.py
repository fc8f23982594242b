"""One block of an ANF function as a graph that patterns can match, and its items in an order to write them.

    let %a = nn.dense(%x, %w); let %b = %a + %c; tanh(%b)

has three items, the last one the block's end. The expression of an item has the expressions of other items in the place
of their variables, so that a pattern sees tanh(nn.dense(%x, %w) + %c). Only operators that may become part of a kernel,
tuples and fields of tuples have one; to the others a variable is a variable.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise

from nimblevm.compiler.dataflow import keeps_order
from nimblevm.compiler.op_class import OpClass, class_of
from nimblevm.compiler.rewrite import with_children
from nimblevm.errors import InternalError
from nimblevm.relay.ir import (
    Call,
    Expr,
    Tuple,
    TupleGetItem,
    Var,
    children,
)
from nimblevm.relay.op.registry import Op


class Items:
    """What Units groups. before: item -> items that must come before it, by data. ordered: items that fail, branch,
    call or write, which keep their order.
    """

    def __init__(self, before: list[list[int]], ordered: list[int]) -> None:
        self.before = before
        self.ordered = ordered


class BlockDag(Items):
    """variables, values: of the items, None for the block's end. nested: variables that blocks inside of items read,
    with the item that the block hangs on.
    """

    def __init__(
        self,
        variables: Sequence[Var | None],
        values: Sequence[Expr],
        nested: Mapping[Var, Sequence[int]],
        unbox: bool,
    ) -> None:
        super().__init__([[] for _ in values], [])
        self.variables = variables
        self.values = values
        self.exprs: list[Expr | None] = []  # what patterns see of an item
        self.item: dict[Expr, int] = {}  # its item
        self.readers: list[set[int]] = [set() for _ in values]
        self.outside = {len(values) - 1}  # items that are read by other than items' operands
        self._at = {v: i for i, v in enumerate(variables) if v is not None}
        for index, value in enumerate(values):
            self._add(index, value, unbox)
        for var, hosts in nested.items():
            source = self._at.get(var)
            if source is not None:
                self.outside.add(source)
                for host in hosts:
                    self._connect(source, host)

    def _add(self, index: int, value: Expr, unbox: bool) -> None:
        for child in children(value):
            fields = child.fields if isinstance(child, Tuple) else (child,)
            for atom in fields:
                source = self._at.get(atom) if isinstance(atom, Var) else None
                if source is not None and source < index:
                    self._connect(source, index)
        if keeps_order(value):
            self.ordered.append(index)
        expr: Expr | None = None
        if _may_match(value, unbox):
            expr = with_children(value, tuple([self._seen(c) for c in children(value)]))
            if expr in self.item:  # a value that stands at two places of the block
                expr = None
            else:
                self.item[expr] = index
        self.exprs.append(expr)

    def _connect(self, source: int, reader: int) -> None:
        self.before[reader].append(source)
        self.readers[source].add(reader)

    def _seen(self, atom: Expr) -> Expr:
        source = self._at.get(atom) if isinstance(atom, Var) else None
        expr = self.exprs[source] if source is not None and source < len(self.exprs) else None
        if expr is None or expr.checked_type is not atom.checked_type:
            return atom  # a variable of another type has dims of its own, which are read from its value
        return expr

    def atom(self, expr: Expr) -> Expr:
        """What stands for an expression outside of its item: the variable of the item, or a leaf itself."""
        index = self.item.get(expr)
        var = None if index is None else self.variables[index]
        return expr if var is None else var

    def is_read_outside(self, index: int, members: Set[int]) -> bool:
        """Whether anything but these items reads an item."""
        return index in self.outside or not self.readers[index] <= members


def _may_match(value: Expr, unbox: bool) -> bool:
    if isinstance(value, Tuple | TupleGetItem):
        return True
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return False
    if value.op.bound is not None or value.op.shape_values:
        return False  # its size is found by its kernel
    return class_of(value, unbox) in (OpClass.KERNEL, OpClass.VIEW)


class Units:
    """The items of a block in groups; at first each is alone. Groups never depend on each other in a circle."""

    def __init__(self, dag: Items) -> None:
        self.dag = dag
        self.members: dict[int, tuple[int, ...]] = {i: (i,) for i in range(len(dag.before))}
        self.of = list(range(len(dag.before)))  # item -> the number of its unit: its last item
        self._chain = list(pairwise(dag.ordered))
        self._ordered = frozenset(dag.ordered)

    def may_join(self, items: Iterable[int]) -> bool:
        """Whether items that nothing outside reads but the last one can be one unit: none is in a unit already, and
        none that fails or acts would change places with another.
        """
        found = sorted(items)
        if any(len(self.members[self.of[i]]) > 1 for i in found):
            return False
        own = [i for i in found if i in self._ordered]
        if not own:
            return True
        between = bisect_right(self.dag.ordered, found[-1]) - bisect_left(self.dag.ordered, own[0])
        return between == len(own)

    def join(self, items: Iterable[int]) -> int:
        """Make one unit of some; gives its number."""
        found = sorted({i for item in items for i in self.members[self.of[item]]})
        for item in found:
            self.members.pop(self.of[item], None)
        for item in found:
            self.of[item] = found[-1]
        self.members[found[-1]] = tuple(found)
        return found[-1]

    def split(self, unit: int) -> None:
        """Make items of a unit again."""
        for item in self.members.pop(unit):
            self.members[item] = (item,)
            self.of[item] = item

    def edges(self) -> dict[int, set[int]]:
        """unit -> units that must come before it, by data or because both fail or act."""
        before: dict[int, set[int]] = {unit: set() for unit in self.members}
        for item, sources in enumerate(self.dag.before):
            before[self.of[item]].update(self.of[s] for s in sources)
        for first, second in self._chain:
            before[self.of[second]].add(self.of[first])
        for unit in before:
            before[unit].discard(unit)
        return before

    def order(self) -> list[int]:
        """The units in an order in which they can be evaluated, as near to the program's as can be. InternalError if
        there is none: something joined what `connected` would not.
        """
        found = self._evaluated()
        if len(found) < len(self.members):
            raise InternalError("units of a block depend on each other in a circle")
        return found

    def is_ordered(self) -> bool:
        """Whether there is such an order."""
        return len(self._evaluated()) == len(self.members)

    def _evaluated(self) -> list[int]:
        """What can be evaluated, in order; units of a circle and what waits for them are missing."""
        before = self.edges()
        after: dict[int, list[int]] = {unit: [] for unit in before}
        for unit, sources in before.items():
            for source in sources:
                after[source].append(unit)
        missing = {unit: len(sources) for unit, sources in before.items()}
        ready = [unit for unit, count in missing.items() if count == 0]
        heapq.heapify(ready)
        found: list[int] = []
        while ready:
            unit = heapq.heappop(ready)
            found.append(unit)
            for next_ in after[unit]:
                missing[next_] -= 1
                if missing[next_] == 0:
                    heapq.heappush(ready, next_)
        return found

    def connected(self, chosen: Mapping[int, object]) -> list[list[int]]:
        """Groups of the chosen units (unit -> its kind) that may become one: they are of one kind and connected by
        data, and no path leads from one out of the chosen ones of its kind and back in.

        The stage of a unit is the largest number of times that a path to it leaves chosen units of a kind, where an
        order that is not one of data counts as leaving them. Between chosen units of one kind and stage there is no
        path outside, so the connected ones of a stage can be joined, and all such groups at once. Cost: that of the
        edges.
        """
        before = self.edges()
        data = {
            (self.of[s], self.of[i]) for i, sources in enumerate(self.dag.before) for s in sources
        }

        def same_kind(one: int, other: int) -> bool:
            return one in chosen and other in chosen and chosen[one] == chosen[other]

        stage: dict[int, int] = {}
        for unit in self.order():
            stage[unit] = max(
                (
                    stage[s] + (s in chosen and not (same_kind(s, unit) and (s, unit) in data))
                    for s in before[unit]
                ),
                default=0,
            )
        head = {unit: unit for unit in chosen}

        def find(unit: int) -> int:
            while head[unit] != unit:
                head[unit] = head[head[unit]]
                unit = head[unit]
            return unit

        for source, unit in sorted(data):
            if same_kind(source, unit) and stage[source] == stage[unit]:
                head[find(unit)] = find(source)
        groups: dict[int, list[int]] = {}
        for unit in sorted(chosen):
            groups.setdefault(find(unit), []).append(unit)
        return list(groups.values())
