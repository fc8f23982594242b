"""Which operators make one kernel of attention: products of a softmax of products, with the moves around them.

    %q1 = transpose(reshape(%q)); %k1 = ...; %v1 = ...                       moves and slices of the operands
    %s = nn.batch_matmul(%q1, %k1); %p = nn.softmax(%s * 0.1f + %mask)       elementwise on the way
    %o = reshape(transpose(nn.batch_matmul(%p, %v1)))                        moves of the result

kernels/attention.py computes such a group a block of rows at a time. A value between that anything else reads, or
that is indexed in another way, leaves the operators as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from nimblevm.compiler.rewrite import type_of
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call, Expr, Var
from nimblevm.relay.op.einsum import parse, product_axes
from nimblevm.relay.op.registry import Op, OpPattern
from nimblevm.relay.op.strided_slice import slice_of
from nimblevm.relay.types import TensorType

MAX_PATH = 32
MOVES = ("reshape", "transpose", "expand_dims", "squeeze", "nn.batch_flatten")
_FLOATS = ("float32", "float64")


class BlockView:
    """What the search sees of a block.

    values     the items
    producer   variable -> index of the item that makes it
    readers    per item that may be fused the items that read it; none for what other code reads too
    operands   the atoms that an item reads, tuples opened
    """

    def __init__(
        self,
        values: list[Expr],
        producer: dict[Var, int],
        readers: dict[int, list[int]],
        operands: Callable[[int], Iterable[Expr]],
    ) -> None:
        self.values = values
        self.producer = producer
        self.readers = readers
        self.operands = operands

    def made_by(self, atom: Expr) -> int | None:
        """The item that makes an operand, if it may be fused."""
        index = self.producer.get(atom) if isinstance(atom, Var) else None
        return index if index in self.readers else None

    def call(self, index: int | None) -> Call | None:
        value = None if index is None else self.values[index]
        return value if isinstance(value, Call) and isinstance(value.op, Op) else None

    def only_in(self, index: int, members: set[int]) -> bool:
        """Whether all that read an item are members."""
        return bool(self.readers[index]) and members.issuperset(self.readers[index])

    def product(self, index: int | None) -> _Product | None:
        """The operands of a batch of matrix products of floats; None for another item."""
        call = self.call(index)
        if call is None or index is None or _name(call) not in ("nn.batch_matmul", "einsum"):
            return None
        operands = list(self.operands(index))
        types = {getattr(type_of(e), "dtype", "") for e in (*operands, call)}
        if len(operands) != 2 or len(types) != 1 or not types <= set(_FLOATS):
            return None
        left, right = operands
        if _name(call) == "nn.batch_matmul":
            straight = not call.attrs.transpose_a and _shape(left)[0] == _shape(call)[0]
            return _Product(left, right, straight, rows=True)
        equation = parse(call.attrs.equation)
        axes = product_axes(equation)
        if axes is None:
            return None
        straight = equation.operands[0][-1] == axes.depth
        return _Product(left, right, straight, tuple(equation.result[-2:]) == axes.axes[-2:])


@dataclass(frozen=True, slots=True)
class _Product:
    """straight: see kernels/tensor_expr.py; rows: the result's last two axes are rows and columns."""

    left: Expr
    right: Expr
    straight: bool
    rows: bool


def attention_groups(view: BlockView) -> Iterator[list[int]]:
    """The members of each group, its second product not yet in another one."""
    for index in sorted(view.readers):
        members = _members(view, index)
        if members is not None:
            yield sorted(members)


def _name(call: Call | None) -> str:
    return call.op.name if call is not None and isinstance(call.op, Op) else ""


def _members(view: BlockView, index: int) -> set[int] | None:
    """The group of a second product."""
    product = view.product(index)
    if product is None or not product.straight:
        return None
    members = {index}
    at = view.made_by(product.left)
    while at is not None and view.only_in(at, members):
        call = view.call(at)
        if call is None or not keeps_rows(call):
            break
        members.add(at)
        at = view.made_by(call.args[0])
    row = view.call(at)
    if at is None or row is None or not _is_row_softmax(row) or not view.only_in(at, members):
        return None
    members.add(at)
    path = _path(view, at)
    if path is None:
        return None
    members |= path
    scores = view.product(min(path))
    if scores is None or not scores.rows or not all(view.only_in(i, members) for i in path):
        return None
    for operand in (scores.left, scores.right, product.right):
        _take_moves_before(view, operand, members)
    _take_moves_after(view, index, members)
    return members


def _is_row_softmax(call: Call) -> bool:
    type_ = type_of(call)
    if _name(call) not in ("nn.softmax", "nn.fast_softmax") or not isinstance(type_, TensorType):
        return False
    rank = len(type_.shape)
    return rank >= 2 and bool(call.attrs.axis % rank == rank - 1)


def _path(view: BlockView, row: int) -> set[int] | None:
    """The items on the way from a softmax back to the one product that it is computed from, in place; None
    without one.
    """
    below: dict[int, list[int]] = {}
    products: set[int] = set()
    todo = _in_place(view, row)
    while todo:
        index = todo.pop()
        if index in below:
            continue
        if len(below) > MAX_PATH:
            return None
        if view.product(index) is not None:
            products.add(index)
            below[index] = []
        else:
            below[index] = _in_place(view, index)
            todo.extend(below[index])
    if len(products) != 1:
        return None
    found = set(products)
    for index in sorted(below):
        if found.intersection(below[index]):
            found.add(index)
    return found


def _in_place(view: BlockView, index: int) -> list[int]:
    """The items whose rows an item reads at its own rows, so far as they may lie on a path."""
    call = view.call(index)
    if call is None:
        return []
    op = call.op
    elementwise = isinstance(op, Op) and op.pattern <= OpPattern.BROADCAST
    if not (elementwise or keeps_rows(call) or _is_row_softmax(call)):
        return []
    found: list[int] = []
    for atom in call.args:
        made = view.made_by(atom)
        if made is not None and (not elementwise or _shape(atom) == _shape(call)):
            found.append(made)
    return found


def _take_moves_before(view: BlockView, operand: Expr, members: set[int]) -> None:
    """Add the moves that make an operand and whose elements still lie side by side along the last axis."""
    at = view.made_by(operand)
    while at is not None and view.only_in(at, members):
        call = view.call(at)
        if call is None or not keeps_vectors(call):
            return
        members.add(at)
        at = view.made_by(call.args[0])


def _take_moves_after(view: BlockView, index: int, members: set[int]) -> None:
    while len(view.readers[index]) == 1:
        index = view.readers[index][0]
        if index not in view.readers or _name(view.call(index)) not in MOVES:
            return
        members.add(index)


def _shape(expr: Expr | None) -> tuple[Dim, ...]:
    type_ = type_of(expr) if expr is not None else None
    return type_.shape if isinstance(type_, TensorType) else ()


def keeps_rows(call: Call | None) -> bool:
    """Whether a move keeps the last two axes, so that rows stay rows."""
    if call is None or _name(call) not in MOVES:
        return False
    old, new = _shape(call.args[0]), _shape(call)
    if _name(call) == "transpose":
        rank = len(old)
        return rank >= 2 and _axes(call, rank)[-2:] == (rank - 2, rank - 1)
    return len(old) >= 2 and len(new) >= 2 and old[-2:] == new[-2:]


def keeps_vectors(call: Call) -> bool:
    """Whether elements along the last axis of the result of a move or slice are neighbours in its operand, or
    along another axis of it.
    """
    name = _name(call)
    if name == "transpose":
        return True
    if name == "strided_slice":
        return all(slice_of(call.attrs, n)[2] == 1 for n in range(len(call.attrs.begin)))
    old, new = _shape(call.args[0]), _shape(call)
    if name not in MOVES or not old or not new:
        return False
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return last > 0 or sum(d != 1 for d in old[first : len(old) - last]) <= 1


def _axes(call: Call, rank: int) -> tuple[int, ...]:
    axes = call.attrs.axes
    return tuple(reversed(range(rank))) if axes is None else tuple(a % rank for a in axes)


__all__ = ["BlockView", "attention_groups", "keeps_rows", "keeps_vectors"]
