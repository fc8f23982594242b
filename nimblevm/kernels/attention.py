"""Products of a softmax of products, a block of rows at a time, so that no matrix of scores is ever whole.

    out = batch_matmul(softmax(f(batch_matmul(q, k))), v)

becomes, for each element of the batch,

    packed[j/16, d, j%16] = k[j, d]                                     once, if there are several rows
    for each block of ROWS rows:
        scores[r, j] = f(sum over d of q[i, d] * packed[j/16, d, j%16])
        scores[r, j] = -inf for j from the number of keys up to a multiple of LANES
        scores[r, j] = exp(scores[r, j] - max over j);  scores[r, j] *= 1 / sum over j of scores[r, j]
        out[i, d] = sum over j of scores[r, j] * v[j, d]

where f is elementwise (a scale, a mask). Reshapes and transposes of q, k, v and of the result become index arithmetic.
Dividing results by the sum instead would save a pass over scores, but overflow where values are near the greatest
float. scores is a scratch buffer with a part for each element of the batch, which may run side by side.

The scheme is that of Rabe and Staats, "Self-attention does not need O(n^2) memory" (arXiv 2112.05682), with whole rows:
they fit a core's cache for the lengths that models take.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from nimblevm import dtypes
from nimblevm.kernels.expr import INDEX, Builder
from nimblevm.kernels.loop_ir import Accumulate, SetLocal, Statement, Store, Value
from nimblevm.kernels.panel_tile import LANES
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Moved,
    Product,
    Softmax,
    Steps,
    TensorExpr,
)
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim

ROWS = 12
"""Rows of a block: two register tiles of six; the scores of 12 rows and 500 keys fit L1 beside a panel of keys."""
TOGETHER = 4
"""Rows whose exponentials are computed side by side, as one waits for 30 operations in a row. A divisor of ROWS."""
FEW = 4
"""With fewer rows packing the keys costs more than it saves."""
MAX_RANK = 7
"""Of a product: packed keys have one axis more, and operands at most 8."""
FLOATS = ("float32", "float64")
_INTEGER = {"float32": "int32", "float64": "int64"}

Users = Mapping[TensorExpr, Sequence[TensorExpr]]


@dataclass(frozen=True, eq=False, slots=True)
class Attention:
    """What is computed together.

    scores, product   the first and the second product
    row, logits       the softmax and what it is of
    path              the tensors from logits down to scores
    before            the moves from the softmax to the second product's left operand, the last one first
    after             the moves of the second product, the last one first
    """

    scores: TensorExpr
    product: TensorExpr
    row: TensorExpr
    logits: TensorExpr
    path: tuple[TensorExpr, ...]
    before: tuple[Moved, ...]
    after: tuple[Moved, ...]

    def of_product(self, index: Index) -> Index:
        """An index of the second product as one of the result."""
        for move in reversed(self.after):
            index = move.forward(index)
        return index

    def of_row(self, index: Index) -> Index:
        """An index of the second product's left operand as one of the softmax."""
        for move in self.before:
            index = move.where(index)
        return index

    def of_scores(self, index: Index) -> Index:
        """An index of the softmax as one of the first product."""
        for tensor in self.path:
            if isinstance(tensor.role, Moved):
                index = tensor.role.where(index)
        return index


def find_attention(out: TensorExpr, users: Users) -> Attention | None:
    """The parts of a kernel's only result; None if it is something else."""
    after, product = _moves(out)
    second = product.role
    if not isinstance(second, Product) or not second.straight:
        return None
    before, row = _moves(second.left)
    if not isinstance(row.role, Softmax) or not all(m.rows for m in before) or row.rank < 2:
        return None
    if product.rank > MAX_RANK:
        return None
    logits = row.role.data
    path = _path(logits, users, row)
    if path is None:
        return None
    scores = path.pop()
    first = scores.role
    if not isinstance(first, Product):
        return None
    tensors = (product, row, logits, scores, first.left, first.right, second.right)
    plain = all(t.dtype == product.dtype for t in tensors) and product.dtype in FLOATS
    ready = not any(t.costly for t in (first.left, first.right, second.right))
    if not (plain and ready):
        return None
    return Attention(scores, product, row, logits, tuple(path), tuple(before), tuple(after))


def _moves(tensor: TensorExpr) -> tuple[list[Moved], TensorExpr]:
    """The moves that make a tensor, the last one first, and what they move."""
    found: list[Moved] = []
    while isinstance(tensor.role, Moved):
        found.append(tensor.role)
        tensor = tensor.role.source
    return found, tensor


def _path(logits: TensorExpr, users: Users, row: TensorExpr) -> list[TensorExpr] | None:
    """The way from logits down to the one product that they are computed from, element by element of a row."""
    inside: set[TensorExpr] = set()
    products: list[TensorExpr] = []
    todo = [logits]
    below: dict[TensorExpr, tuple[TensorExpr, ...]] = {}
    while todo:
        tensor = todo.pop()
        if tensor in below:
            continue
        below[tensor] = _read_in_place(tensor)
        todo.extend(below[tensor])
        if isinstance(tensor.role, Product):
            products.append(tensor)
    if len(products) != 1:
        return None
    above: dict[TensorExpr, list[TensorExpr]] = {}
    for tensor, operands in below.items():
        for operand in operands:
            above.setdefault(operand, []).append(tensor)
    todo = [products[0]]
    while todo:
        tensor = todo.pop()
        if tensor not in inside:
            inside.add(tensor)
            todo.extend(above.get(tensor, ()))
    for tensor in inside:
        for user in users.get(tensor, ()):
            in_place = user in inside and tensor in below[user]
            if not in_place and not (tensor is logits and user is row):
                return None
    path = [logits]
    while path[-1] is not products[0]:
        path.append(next(t for t in below[path[-1]] if t in inside))
    return path


def _read_in_place(tensor: TensorExpr) -> tuple[TensorExpr, ...]:
    """The operands whose rows are the tensor's rows."""
    if isinstance(tensor.role, Moved):
        return (tensor.role.source,) if tensor.role.rows else ()
    return tensor.same


class _Writer:
    """Emits one kernel's loops into its output `buffer`."""

    def __init__(self, em: Emitter, found: Attention, buffer: int) -> None:
        assert isinstance(found.scores.role, Product)
        assert isinstance(found.product.role, Product)
        self.em = em
        self.found = found
        self.buffer = buffer
        self.first: Product = found.scores.role
        self.second: Product = found.product.role
        *batch, self.count, self.width = found.product.shape
        self.batch = tuple(batch)
        self.length: Dim = found.row.shape[-1]
        self.dtype = found.product.dtype
        self.integer = _INTEGER[self.dtype]
        self.panels = dims.floordiv(dims.add(self.length, LANES - 1), LANES)
        padded = dims.mul(self.panels, LANES)
        self.scores = em.new_scratch((*self.batch, ROWS, padded), self.dtype)

    def write(self) -> Steps:
        """Both ways, for few rows and for many, where the number of rows is unknown."""
        em, b = self.em, self.em.b
        for operand in (self.first.left, self.first.right, self.second.right):
            yield from em.cheap(operand)
        with em.loops(self.batch, parallel=True) as batch:
            if isinstance(self.count, int):
                yield from self._blocks(batch, self.count >= FEW)
                return b.i64(0)
            bodies: tuple[list[Statement], list[Statement]] = ([], [])
            for body, packs in zip(bodies, (False, True), strict=True):
                with em.block(body):
                    yield from self._blocks(batch, packs)
            few = b.compare("lt", em.dim(self.count), b.i64(FEW))
            em.branches((few,), bodies)
        return b.i64(0)

    def _blocks(self, batch: Index, packs: bool) -> Steps:
        """All rows of one element of the batch."""
        em, b = self.em, self.em.b
        rows, size = em.dim(self.count), b.i64(ROWS)
        packed = (yield from self._pack(batch)) if packs else None
        blocks = b.binary("floordiv", b.add(rows, b.i64(ROWS - 1)), size)
        with em.loop(blocks) as block:
            start = b.mul(block, size)
            count = b.binary("min", b.sub(rows, start), size)
            with em.loops((count, self.length), parallel=True) as (r, j):
                yield from self._score(batch, b.add(start, r), r, j, packed)
            if packs:
                self._weigh_together(batch, count)
            else:
                with em.loop(count, parallel=True) as r:
                    self._weigh(batch, (r,), em.dim(self.length))
            with em.loops((count, self.width), parallel=True) as (r, d):
                yield from self._mix(batch, b.add(start, r), r, d)
        return b.i64(0)

    def _pack(self, batch: Index) -> Generator[tuple[TensorExpr, Index], Value, int]:
        """Copy the keys of a batch element into panels of LANES keys; the buffer that holds them."""
        em, b = self.em, self.em.b
        shape = (*self.batch, self.panels, self.first.depth, LANES)
        buffer = em.new_scratch(shape, self.dtype)
        with em.loops((self.length, self.first.depth), parallel=True) as (j, k):
            where = self.found.of_scores(self._row_index(batch, b.i64(0), j))
            key = yield self.first.right, self.first.right_index(where, k)
            em.emit(Store(buffer, (*batch, *_place(em, j, k)), key))
        return buffer

    def _row_index(self, batch: Index, row: Value, j: Value) -> Index:
        """The index of the softmax for a row of the second product and key j."""
        zero = self.em.b.i64(0)
        return self.found.of_row(self.second.left_index((*batch, row, zero), j))

    def _score(self, batch: Index, row: Value, r: Value, j: Value, packed: int | None) -> Steps:
        """One score: row `row` and key j, into row r of the block."""
        em, scores, usual = self.em, self.found.scores, self.found.scores.at

        def with_packed_keys(index: Index) -> Steps:
            assert packed is not None

            def term(inner: Index) -> Steps:
                query = yield self.first.left, self.first.left_index(index, inner[0])
                where = (*batch, *_place(em, index[-1], inner[0]))
                return em.b.mul(query, em.b.load(packed, self.dtype, where))

            return em.accumulate(
                "add", em.b.const(0.0, self.dtype), index, (self.first.depth,), term
            )

        if packed is not None:
            scores.at = with_packed_keys
        value = yield self.found.logits, self._row_index(batch, row, j)
        scores.at = usual
        em.emit(Store(self.scores, (*batch, r, j), value))
        return value

    def _weigh_together(self, batch: Index, count: Value) -> None:
        """The weights of all rows of a block, TOGETHER at a time, over whole vectors of keys."""
        em, b = self.em, self.em.b
        keys, size = em.dim(self.length), b.i64(TOGETHER)
        whole = b.mul(em.dim(self.panels), b.i64(LANES))
        with em.loops((count, _beyond(b, keys, LANES)), parallel=True) as (r, j):
            nothing = b.const(float("-inf"), self.dtype)
            em.emit(Store(self.scores, (*batch, r, b.add(keys, j)), nothing))
        with em.loops((_beyond(b, count, TOGETHER), whole), parallel=True) as (r, j):
            zero = b.const(0.0, self.dtype)
            em.emit(Store(self.scores, (*batch, b.add(count, r), j), zero))
        groups = b.binary("floordiv", b.add(count, b.i64(TOGETHER - 1)), size)
        with em.loop(groups) as group:
            first = b.mul(group, size)
            rows = tuple([b.add(first, b.i64(n)) for n in range(TOGETHER)])
            self._weigh(batch, rows, whole)

    def _weigh(self, batch: Index, rows: Index, keys: Value) -> None:
        """The softmax of some rows of scores, in their place."""
        em, b = self.em, self.em.b

        def score(r: Value, j: Value) -> Value:
            return b.load(self.scores, self.dtype, (*batch, r, j))

        bits = 8 * dtypes.dtype(self.dtype).itemsize
        tops = [em.local(self.integer, (*batch, r)) for r in rows]
        for top in tops:
            em.emit(SetLocal(top, b.const(-(2 ** (bits - 1)), self.integer)))
        with em.loop(keys) as j:
            for r, top in zip(rows, tops, strict=True):
                em.emit(Accumulate(top, "max", _ordered(em, score(r, j))))
        most = [_unordered(em, top, self.dtype) for top in tops]
        zero, one = b.const(0.0, self.dtype), b.const(1.0, self.dtype)
        totals = [em.local(self.dtype, (*batch, r)) for r in rows]
        for total in totals:
            em.emit(SetLocal(total, zero))
        with em.loop(keys) as j:
            powers = [em.local(self.dtype, (*batch, r, j)) for r in rows]
            for r, power, greatest in zip(rows, powers, most, strict=True):
                em.emit(SetLocal(power, b.unary("exp", b.sub(score(r, j), greatest))))
            for r, power, total in zip(rows, powers, totals, strict=True):
                em.emit(Store(self.scores, (*batch, r, j), power))
                em.emit(Accumulate(total, "add", power))
        factors = [em.local(self.dtype, (*batch, r)) for r in rows]
        for factor, total in zip(factors, totals, strict=True):
            em.emit(SetLocal(factor, b.binary("div", one, total)))
        with em.loop(keys, parallel=True) as j:
            for r, factor in zip(rows, factors, strict=True):
                em.emit(Store(self.scores, (*batch, r, j), b.mul(score(r, j), factor)))

    def _mix(self, batch: Index, row: Value, r: Value, d: Value) -> Steps:
        """One element of the result."""
        em, b = self.em, self.em.b
        index = (*batch, row, d)

        def term(inner: Index) -> Steps:
            weight = b.load(self.scores, self.dtype, (*batch, r, *inner))
            value = yield self.second.right, self.second.right_index(index, inner[0])
            return b.mul(weight, value)

        total = yield from em.accumulate(
            "add", b.const(0.0, self.dtype), (*index, r), (self.length,), term
        )
        em.emit(Store(self.buffer, self.found.of_product(index), total))
        return total


def _beyond(b: Builder, count: Value, size: int) -> Value:
    """How many elements the last group of `size` has beyond `count`."""
    return b.binary("floormod", b.sub(b.i64(0), count), b.i64(size))


def _ordered(em: Emitter, value: Value) -> Value:
    """A float as an integer of its width that is greater where the float is: a maximum of integers is one instruction.

    Of a NaN, which may be anything in this order, the exponential makes a NaN whatever the maximum is.
    """
    b, integer = em.b, _INTEGER[value.dtype]
    bits = b.bits(value, integer)
    width = 8 * dtypes.dtype(integer).itemsize
    sign = b.binary("shr", bits, b.const(width - 1, integer))
    return b.binary("xor", bits, b.binary("and", sign, b.const(2 ** (width - 1) - 1, integer)))


def _unordered(em: Emitter, value: Value, dtype: str) -> Value:
    """The float of an integer that `_ordered` gave: the same steps lead back."""
    integer = value.dtype
    width = 8 * dtypes.dtype(integer).itemsize
    b = em.b
    sign = b.binary("shr", value, b.const(width - 1, integer))
    mask = b.binary("and", sign, b.const(2 ** (width - 1) - 1, integer))
    return b.bits(b.binary("xor", value, mask), dtype)


def _place(em: Emitter, j: Value, k: Value) -> Index:
    """Where key j has its element k among the panels."""
    lanes = em.b.i64(LANES)
    return em.b.binary("floordiv", j, lanes), k, em.b.binary("floormod", j, lanes)


def attention_kernel(em: Emitter, found: Attention, buffer: int) -> TensorExpr:
    """A tensor whose evaluation, at (), writes the result into an output buffer."""
    return TensorExpr((), INDEX, lambda index: _Writer(em, found, buffer).write())


__all__ = ["Attention", "attention_kernel", "find_attention"]
