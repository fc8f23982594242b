"""What emit knows of a function before it writes code: last uses, aliases, which dims are needed.

Every let and every end of a block is an item; items are numbered in the order in which emit writes
them. A function has no loops (recursion is calls), so a variable's register is free after its last
use in that order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nimblevm import dtypes
from nimblevm.compiler.kernel_table import KernelTable
from nimblevm.compiler.rewrite import (
    attr_dims,
    is_primitive,
    let_chain,
    postorder,
    sub_blocks,
    type_of,
)
from nimblevm.kernels.lowered import STEPS
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimExpr, DimVar
from nimblevm.relay.ir import (
    Call,
    Expr,
    Function,
    Leaf,
    Match,
    Span,
    Tuple,
    Var,
    children,
    pattern_vars,
)
from nimblevm.relay.op.registry import Op
from nimblevm.relay.type_context import result_over_axes
from nimblevm.relay.types import HAS_DIM, TensorType, Type, free_dims, value_tensors

ALIASES = frozenset({"vm.match_type", "vm.check_broadcast", "vm.bind_dim"})
KILL_BYTES = 1024
MAX_KILLS_PER_BRANCH = 16


@dataclass(eq=False, slots=True)
class Block:
    """A chain of lets and its end. `entry` is the position of its start, `parent` the block it
    hangs in.
    """

    number: int
    items: list[Item]
    parent: int
    sibling: Block | None = None
    entry: int = 0


@dataclass(eq=False, slots=True)
class Item:
    """A let (var, value) or the end of a block (var None), with the blocks that hang on the value."""

    var: Var | None
    value: Expr
    span: Span | None
    position: int = 0
    blocks: list[Block] = field(default_factory=list)


def linearize(body: Expr) -> list[Block]:
    """The blocks of a function in the order in which their code starts; the first is the body."""
    order = [_block(body, 0, -1)]
    stack: list[tuple[Block, int]] = [(order[0], 0)]
    position = 0
    while stack:
        block, index = stack.pop()
        position += 1
        if index == 0:
            block.entry = position
            position += 1
        item = block.items[index]
        item.position = position
        if index + 1 < len(block.items):
            stack.append((block, index + 1))
        for nested in sub_blocks(item.value):
            item.blocks.append(_block(nested, len(order), block.number))
            order.append(item.blocks[-1])
        for left, right in itertools.pairwise(item.blocks):
            left.sibling = right
        stack.extend((b, 0) for b in reversed(item.blocks))
    return order


def _block(expr: Expr, number: int, parent: int) -> Block:
    lets, tail = let_chain(expr)
    chain = [Item(let.var, let.value, let.value.span or let.span) for let in lets]
    return Block(number, [*chain, Item(None, tail, tail.span)], parent)


def operand_vars(value: Expr) -> Iterator[Var]:
    """The variables that a simple expression reads (not those inside nested blocks)."""
    if isinstance(value, Var):
        yield value
        return
    if isinstance(value, Leaf):
        return
    nested = len(sub_blocks(value))
    operands = children(value)
    for child in operands[: len(operands) - nested]:
        if isinstance(child, Var):
            yield child
        elif isinstance(child, Tuple):
            yield from (f for f in child.fields if isinstance(f, Var))


def aliased(value: Expr) -> Var | None:
    """The variable that a simple expression is another name of, if it is one."""
    if isinstance(value, Var):
        return value
    if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in ALIASES:
        return value.args[0] if isinstance(value.args[0], Var) else None
    return None


def worth_killing(type_: Type) -> bool:
    """Whether a dead value of this type should be freed before its register is used again."""
    if not isinstance(type_, TensorType):
        return True
    size = dtypes.dtype(type_.dtype).itemsize
    for dim in type_.shape:
        if not isinstance(dim, int):
            return True
        size *= dim
    return size >= KILL_BYTES


@dataclass(slots=True)
class Liveness:
    """What `analyse` finds.

    expire  position -> variables whose last use it is
    root    variable -> the variable whose register it shares
    needed  dim variables whose number the code needs
    count   how often a variable is read
    kills   block number -> variables of outer blocks that an earlier sibling branch used last
    defined dim variable that no value has as an axis when it is needed -> (expression, its variables' dims): the
            size of a result that inference gave a fresh unknown because the expression grew too large
    """

    expire: dict[int, list[Var]] = field(default_factory=dict)
    root: dict[Var, Var] = field(default_factory=dict)
    needed: set[DimVar] = field(default_factory=set)
    count: dict[Var, int] = field(default_factory=dict)
    kills: dict[int, list[Var]] = field(default_factory=dict)
    defined: dict[DimVar, tuple[Dim, dict[DimVar, Dim]]] = field(default_factory=dict)


def analyse(function: Function, order: list[Block], kernels: KernelTable) -> Liveness:
    """Last uses, aliases and needed dims of a function. Linear."""
    result = Liveness()
    uses = _Uses(function.params, result)
    for block in order:
        for item in block.items:
            uses.enter(item, block)
            _need(item.value, kernels, result)
    for var, position in uses.last.items():
        result.expire.setdefault(position, []).append(var)
        place = uses.last_block.get(var)
        if place is not None and place.number != uses.home[var] and worth_killing(type_of(var)):
            _kill_in_siblings(var, place, result.kills)
    return result


class _Uses:
    """Where variables with a register of their own are bound and where they are read last.

    last        variable -> position of its last use, at first of its definition
    last_block  variable -> the block of that use, for those that are used
    home        variable -> number of the block that binds it
    """

    def __init__(self, params: Sequence[Var], result: Liveness) -> None:
        self.result = result
        self.last: dict[Var, int] = dict.fromkeys(params, 0)
        self.last_block: dict[Var, Block] = {}
        self.home: dict[Var, int] = dict.fromkeys(params, 0)

    def enter(self, item: Item, block: Block) -> None:
        value = item.value
        for var in operand_vars(value):
            self._read(var, item.position, block)
        other = aliased(value)
        if item.var is not None and other is not None:
            self.result.root[item.var] = self.result.root.get(other, other)
        elif item.var is not None:
            self._bind(item.var, item.position, block)
        if isinstance(value, Match):
            for clause, nested in zip(value.clauses, item.blocks, strict=True):
                if isinstance(value.data, Var):
                    self._read(value.data, nested.entry, nested)
                for var in pattern_vars(clause.lhs):
                    self._bind(var, nested.entry, nested)

    def _bind(self, var: Var, position: int, block: Block) -> None:
        self.last.setdefault(var, position)
        self.home[var] = block.number

    def _read(self, var: Var, position: int, block: Block) -> None:
        root = self.result.root.get(var, var)
        self.result.count[root] = self.result.count.get(root, 0) + 1
        if position >= self.last.get(root, 0):
            self.last[root] = position
            self.last_block[root] = block


def _kill_in_siblings(var: Var, block: Block, kills: dict[int, list[Var]]) -> None:
    """The branch after `block` frees what `block` would have used last (bounded, so that code stays
    linear).
    """
    sibling = block.sibling
    if sibling is not None:
        found = kills.setdefault(sibling.number, [])
        if len(found) < MAX_KILLS_PER_BRANCH:
            found.append(var)


def _need(value: Expr, kernels: KernelTable, result: Liveness) -> None:
    """Enter the dim variables whose numbers the code of a simple expression reads."""
    needed = result.needed
    if not isinstance(value, Call):
        return
    function = value.args[0] if value.args else None
    if isinstance(function, Function) and is_primitive(function):
        _, call = kernels.find(function)
        for dim in call.in_dims:
            if isinstance(dim, DimExpr):
                needed.update(dims.free_vars(dim))
        for tensor in call.scratch:
            needed.update(d for d in free_dims(tensor) if d is not STEPS)
        for shape in call.views:
            needed.update(v for d in shape for v in dims.free_vars(d))
        for node in postorder(function.body):
            _define(node, result)
        return
    needed.update(attr_dims(value))


def _define(node: Expr, result: Liveness) -> None:
    """Note how to compute the dims that an operator's result has and no operand."""
    type_ = node.checked_type
    if not isinstance(node, Call) or type_ is None or not type_.flags & HAS_DIM:
        return
    arg_types = tuple([type_of(a) for a in node.args])
    known = {d for t in arg_types for d in free_dims(t)}
    made = [d for d in free_dims(type_) if d not in known and d not in result.defined]
    if not made or not isinstance(node.op, Op):
        return
    over, mapping = result_over_axes(node, arg_types)
    axes = known | set(mapping)
    for found, formula in zip(value_tensors(type_), value_tensors(over), strict=True):
        for dim, expression in zip(found.shape, formula.shape, strict=True):
            if isinstance(dim, DimVar) and dim in made and set(dims.free_vars(expression)) <= axes:
                used = {v: mapping[v] for v in dims.free_vars(expression) if v in mapping}
                result.defined[dim] = (expression, used)
                result.needed.update(dims.free_vars(expression))
                for part in used.values():
                    result.needed.update(dims.free_vars(part))


def never_read(var: Var, liveness: Liveness) -> bool:
    """Whether no code reads a variable (its aliases' reads count)."""
    return not liveness.count.get(liveness.root.get(var, var), 0)
