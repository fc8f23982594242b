"""Tensors as functions of an index, and the emitter that turns them into loops.

A TensorExpr says how one element is computed. Its `at` is a generator: it yields (tensor, index)
where it needs an element of another tensor and gets that value back, so a chain of any length is
evaluated by one flat loop (`Emitter.evaluate`).

    def at(index):
        x = yield data, index
        return em.b.unary("exp", x)

Elementwise and injective tensors become plain values. A tensor that needs statements (a
reduction's loop, the branches of concatenate) emits them at the outermost loop that its index
allows, and its value is a Local. `costly` tensors are never computed twice for one index: where
the loops around would repeat them they are computed once into a scratch buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from nimblevm.kernels.expr import INDEX, Builder
from nimblevm.kernels.loop_ir import (
    Accumulate,
    Const,
    For,
    If,
    Local,
    LoopVar,
    SetLocal,
    Statement,
    Store,
    Value,
)
from nimblevm.relay.dims import Dim, DimExpr
from nimblevm.relay.types import TensorType

Index = tuple[Value, ...]
Steps = Generator[tuple["TensorExpr", Index], Value, Value]
At = Callable[[Index], Steps]
Filling = Generator[tuple["TensorExpr", Index], Value, None]

RECOMPUTE_LIMIT = 8
"""A tensor of more arithmetic than this per element is stored before a loop that reads it many times."""


@dataclass(frozen=True, eq=False, slots=True)
class Moved:
    """How a tensor that holds another one's elements in other places relates to it.

    source   the other tensor
    where    index of the tensor -> index of the source
    forward  index of the source -> index of the tensor
    rows     the last two axes are the source's last two
    """

    source: TensorExpr
    where: Callable[[Index], Index]
    forward: Callable[[Index], Index]
    rows: bool


@dataclass(frozen=True, eq=False, slots=True)
class Product:
    """A batch of matrix products, out[.., m, n] = sum over k < depth of left[...] * right[...].

    left_index, right_index   (index of out, k) -> index of the operand
    straight                  the last axis of left is k's, and it has all axes of the batch, whole
    """

    left: TensorExpr
    right: TensorExpr
    depth: Dim
    left_index: Callable[[Index, Value], Index]
    right_index: Callable[[Index, Value], Index]
    straight: bool


@dataclass(frozen=True, eq=False, slots=True)
class Softmax:
    """Exponentials that sum to one along the last axis of `data`."""

    data: TensorExpr


@dataclass(eq=False, slots=True)
class TensorExpr:
    """A tensor of `shape` and `dtype`.

    at          the element at an index, see the module's docstring
    cost        operations an element takes, operands included; 0 for loads and moved data
    costly      computed by loops: at most once per index
    same        operands that are read at the very index of the element (elementwise chains)
    pieces      for concatenate: the axis and the parts
    storage     the buffer that holds it, once it is stored
    stored      store it before its first use, in buffer `target` (None: a new scratch buffer)
    fill        emits the loops that write all of it into a buffer, for tensors whose elements are not found one by one
                (scans); such are `stored`
    role        what kind of tensor it is, for lowerings of several operators at once
    memo        the elements that have been evaluated, by index
    """

    shape: tuple[Dim, ...]
    dtype: str
    at: At
    cost: int = 0
    costly: bool = False
    same: tuple[TensorExpr, ...] = ()
    pieces: tuple[int, tuple[TensorExpr, ...]] | None = None
    storage: int | None = None
    stored: bool = False
    target: int | None = None
    fill: Callable[[int], Filling] | None = None
    role: Moved | Product | Softmax | None = None
    memo: dict[Index, Value] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        return len(self.shape)


Tensors = TensorExpr | tuple[TensorExpr, ...]
Compute = Callable[["Emitter", Sequence[Tensors], Any, Any], Tensors]


@dataclass(eq=False, slots=True)
class Frame:
    """An open block. `var` is its loop variable; None for the kernel's own block, a branch, or a loop of one turn."""

    body: list[Statement]
    var: LoopVar | None = None
    barrier: bool = False


class Emitter:
    """The state of lowering one kernel: open loops, buffers, in-dims."""

    def __init__(self) -> None:
        self.b = Builder()
        self.body: list[Statement] = []
        self.frames: list[Frame] = [Frame(self.body)]
        self.in_dims: dict[object, int] = {}
        self.scratch: list[TensorExpr] = []
        self.first_scratch = 0
        self.chosen: dict[TensorExpr, tuple[int, Index, Index]] = {}
        self._broadcast: dict[Value, tuple[Value, Dim]] = {}
        self._journal: list[tuple[dict[Index, Value], Index]] = []
        self._names = 0

    # --- dims -----------------------------------------------------------------------------------

    def dim(self, dim: Dim) -> Value:
        """The value of a dim: a constant, or an in-dim of the kernel."""
        if isinstance(dim, DimExpr):
            return self.in_dim(dim)
        return self.b.i64(dim)

    def in_dim(self, key: object) -> Value:
        """The in-dim that the caller computes from `key`."""
        return self.b.dim(self.in_dims.setdefault(key, len(self.in_dims)))

    def size(self, shape: Sequence[Dim]) -> Value:
        """The number of elements of a shape."""
        total = self.b.i64(1)
        for dim in shape:
            total = self.b.mul(total, self.dim(dim))
        return total

    def broadcast(self, shape: tuple[Dim, ...], out: tuple[Dim, ...], index: Index) -> Index:
        """The index into a tensor of `shape` that is stretched to `out`, at `index` of out (shapes aligned right)."""
        found: list[Value] = []
        for at, dim in enumerate(shape, len(out) - len(shape)):
            if dim == 1 and isinstance(dim, int):
                found.append(self.b.i64(0))
            elif isinstance(dim, int) or dim is out[at]:
                found.append(index[at])
            else:
                found.append(self._stretched(dim, out[at], index[at]))
        return tuple(found)

    def _stretched(self, dim: DimExpr, out: Dim, index: Value) -> Value:
        """0 where the axis of unknown size `dim` turns out to have one element, else `index`."""
        # What is stretched to a tensor that is stretched in turn: only the innermost size decides.
        index = self._broadcast[index][0] if index in self._broadcast else index
        one = self.b.compare("eq", self.dim(dim), self.b.i64(1))
        found = self.b.select(one, self.b.i64(0), index)
        if found is not index and not isinstance(found, Const):
            self._broadcast[found] = (index, out)
        return found

    def stretch_of(self, index: Value) -> tuple[Value, Dim] | None:
        """(plain index, size it runs over) if `index` was made for an axis that may be stretched."""
        return self._broadcast.get(index)

    # --- statements -----------------------------------------------------------------------------

    def emit(self, statement: Statement) -> None:
        self.frames[-1].body.append(statement)

    def local(self, dtype: str, index: Index) -> Local:
        """A fresh local that belongs to an element at `index`."""
        self._names += 1
        return self.b.local(f"v{self._names}", dtype, self.b.deps_of(index))

    @contextmanager
    def loop(self, extent: Dim | Value, parallel: bool = False, name: str = "i") -> Iterator[Value]:
        """for var in range(extent): the statements emitted inside. A loop of one turn is none, its variable is 0."""
        bound = extent if isinstance(extent, Value) else self.dim(extent)
        if isinstance(bound, Const) and bound.value == 1:
            yield self.b.i64(0)
            return
        self._names += 1
        frame = Frame([], self.b.loop_var(f"{name}{self._names}"))
        assert frame.var is not None
        frames = self.frames
        self.frames = [*frames, frame]
        yield frame.var
        self.frames = frames
        self.emit(For(frame.var, bound, tuple(frame.body), parallel=parallel))

    @contextmanager
    def loops(self, extents: Sequence[Dim | Value], parallel: bool = False) -> Iterator[Index]:
        """Nested loops, the first extent outermost."""
        frames = self.frames
        opened: list[tuple[Frame, Value]] = []
        index: list[Value] = []
        for extent in extents:
            bound = extent if isinstance(extent, Value) else self.dim(extent)
            if isinstance(bound, Const) and bound.value == 1:
                index.append(self.b.i64(0))
                continue
            self._names += 1
            var = self.b.loop_var(f"i{self._names}")
            opened.append((Frame([], var), bound))
            index.append(var)
        self.frames = [*frames, *(frame for frame, _ in opened)]
        yield tuple(index)
        self.frames = frames
        below: tuple[Statement, ...] = ()
        for frame, bound in reversed(opened):
            assert frame.var is not None
            below = (For(frame.var, bound, (*frame.body, *below), parallel=parallel),)
        for statement in below:
            self.emit(statement)

    @contextmanager
    def block(self, body: list[Statement]) -> Iterator[None]:
        """Emit into `body`, a branch: nothing is moved out of it, and values found in it are forgotten after it."""
        frames, mark = self.frames, len(self._journal)
        self.frames = [*frames, Frame(body, barrier=True)]
        yield
        self.frames = frames
        while len(self._journal) > mark:
            memo, index = self._journal.pop()
            memo.pop(index, None)

    @contextmanager
    def hoisted(self, index: Index) -> Iterator[None]:
        """Emit at the outermost place where everything in `index` is known."""
        frames = self.frames
        self.frames = frames[: self._level(index) + 1]
        yield
        self.frames = frames

    @contextmanager
    def at_top(self) -> Iterator[None]:
        """Emit before all loops."""
        frames = self.frames
        self.frames = frames[:1]
        yield
        self.frames = frames

    def _level(self, index: Index) -> int:
        deps = self.b.deps_of(index)
        level = 0
        for at, frame in enumerate(self.frames):
            if frame.barrier or frame.var in deps:
                level = at
        return level

    def repeats(self, index: Index) -> bool:
        """Whether what `hoisted(index)` emits would run several times for one index."""
        deps = self.b.deps_of(index)
        around = self.frames[: self._level(index) + 1]
        return any(frame.var is not None and frame.var not in deps for frame in around)

    # --- evaluation -----------------------------------------------------------------------------

    def evaluate(self, tensor: TensorExpr, index: Index) -> Value:
        """The element of `tensor` at `index`; statements it needs are emitted on the way. Iterative."""
        stack: list[tuple[Steps, TensorExpr, Index]] = []
        request: tuple[TensorExpr, Index] | None = (tensor, index)
        answer: Value | None = None
        while True:
            if request is not None:
                wanted, where = request
                answer = wanted.memo.get(where)
                request = None
                if answer is None:
                    stack.append((self._steps(wanted, where), wanted, where))
            if not stack:
                assert answer is not None
                return answer
            steps, wanted, where = stack[-1]
            try:
                request = steps.send(answer) if answer is not None else next(steps)
                answer = None
            except StopIteration as done:
                stack.pop()
                answer = done.value
                assert answer is not None
                wanted.memo[where] = answer
                self._journal.append((wanted.memo, where))

    def _steps(self, tensor: TensorExpr, index: Index) -> Steps:
        if tensor.storage is not None:
            return ready(self.b.load(tensor.storage, tensor.dtype, index))
        if tensor.stored or (tensor.costly and self.repeats(index)):
            return self._store_first(tensor, index)
        if tensor in self.chosen:
            piece, where, inside = self.chosen[tensor]
            if where == index:
                assert tensor.pieces is not None
                return _forward(tensor.pieces[1][piece], inside)
        return tensor.at(index)

    def _store_first(self, tensor: TensorExpr, index: Index) -> Steps:
        yield from self.store(tensor)
        assert tensor.storage is not None
        return self.b.load(tensor.storage, tensor.dtype, index)

    def new_scratch(self, shape: tuple[Dim, ...], dtype: str) -> int:
        """The number of a new scratch buffer."""
        self.scratch.append(TensorExpr(shape, dtype, _nothing))
        return self.first_scratch + len(self.scratch) - 1

    def store(self, tensor: TensorExpr) -> Generator[Any, Value, None]:
        """Compute a whole tensor before all loops, into its target or into a new scratch buffer."""
        buffer = tensor.target
        if buffer is None:
            self.scratch.append(tensor)
            buffer = self.first_scratch + len(self.scratch) - 1
        tensor.stored = False
        with self.at_top():
            if tensor.fill is not None:
                yield from tensor.fill(buffer)
            elif tensor.pieces is not None:
                yield from self._store_parts(tensor.shape, *tensor.pieces, buffer)
            else:
                with self.loops(tensor.shape, parallel=True) as index:
                    value = yield from tensor.at(index)
                    self.emit(Store(buffer, index, value))
        tensor.storage = buffer

    def _store_parts(
        self, shape: tuple[Dim, ...], axis: int, parts: tuple[TensorExpr, ...], buffer: int
    ) -> Generator[Any, Value, None]:
        """Parts one after the other along `axis`, each by loops of its own: no branches inside."""
        offset: Value = self.b.i64(0)
        for part in parts:
            extents = (*shape[:axis], part.shape[axis], *shape[axis + 1 :])
            with self.loops(extents, parallel=True) as index:
                value = yield part, index
                where = (*index[:axis], self.b.add(offset, index[axis]), *index[axis + 1 :])
                self.emit(Store(buffer, where, value))
            offset = self.b.add(offset, self.dim(part.shape[axis]))

    def cheap(self, tensor: TensorExpr) -> Generator[Any, Value, None]:
        """Make sure that reading elements of `tensor` many times costs little: store it if it is computed."""
        if tensor.storage is None and (tensor.costly or tensor.cost > RECOMPUTE_LIMIT):
            yield from self.store(tensor)

    # --- forms that many operators share --------------------------------------------------------

    def accumulate(
        self,
        op: str,
        start: Value,
        index: Index,
        extents: Sequence[Dim | Value],
        value: Callable[[Index], Steps],
    ) -> Steps:
        """The Local that holds start op value(i) op value(i') ... over loops of `extents`."""
        with self.hoisted(index):
            total = self.local(start.dtype, index)
            self.emit(SetLocal(total, start))
            with self.loops(extents) as at:
                found = yield from value(at)
                self.emit(Accumulate(total, op, found))
        return total

    def branches(self, conds: Sequence[Value], bodies: Sequence[list[Statement]]) -> None:
        """if conds[0]: bodies[0] elif conds[1]: bodies[1] ... else: the last body."""
        chain: tuple[Statement, ...] = tuple(bodies[-1])
        for cond, body in zip(reversed(conds), reversed(bodies[:-1]), strict=True):
            chain = (If(cond, tuple(body), chain),)
        for statement in chain:
            self.emit(statement)


def _nothing(index: Index) -> Steps:
    raise ValueError("an element of a scratch buffer")


def ready(value: Value) -> Steps:
    """Steps that have their answer at once."""
    return value
    yield


def _forward(tensor: TensorExpr, index: Index) -> Steps:
    return (yield tensor, index)


def elementwise(
    em: Emitter,
    operands: Sequence[TensorExpr],
    out: TensorType,
    function: Callable[..., Value],
    cost: int = 1,
) -> TensorExpr:
    """out[i] = function(operands[i]...), operands stretched to out's shape."""

    def at(index: Index) -> Steps:
        values: list[Value] = []
        for operand in operands:
            value = yield operand, em.broadcast(operand.shape, out.shape, index)
            values.append(value)
        return function(*values)

    same = tuple(x for x in operands if x.shape == out.shape)
    total = min(cost + sum(x.cost for x in operands), 1 << 20)
    return TensorExpr(out.shape, out.dtype, at, total, same=same)


def moved(
    source: TensorExpr,
    shape: tuple[Dim, ...],
    where: Callable[[Index], Index],
    dtype: str | None = None,
    forward: Callable[[Index], Index] | None = None,
    rows: bool = False,
) -> TensorExpr:
    """out[i] = source[where(i)]: data in other places. `forward`, `rows`: see Moved."""

    def at(index: Index) -> Steps:
        return (yield source, where(index))

    role = None if forward is None else Moved(source, where, forward, rows)
    return TensorExpr(shape, dtype or source.dtype, at, source.cost, role=role)


def single(operand: Tensors) -> TensorExpr:
    """An operand that is one tensor."""
    if not isinstance(operand, TensorExpr):
        raise TypeError("a tuple where a tensor was expected")
    return operand


def several(operand: Tensors) -> tuple[TensorExpr, ...]:
    """The fields of an operand that is a tuple."""
    if isinstance(operand, TensorExpr):
        raise TypeError("a tensor where a tuple was expected")
    return operand


_COMPUTES: dict[str, tuple[Compute, frozenset[str] | None]] = {}


def register_compute(op: str, compute: Compute, dtypes: Sequence[str] | None = None) -> None:
    """Say how an operator is computed; `dtypes` of its first operand (None: all that its record allows)."""
    if op in _COMPUTES:
        raise ValueError(f"operator {op} has two computes")
    _COMPUTES[op] = (compute, None if dtypes is None else frozenset(dtypes))


def find_compute(op: str) -> Compute | None:
    """How an operator is computed, or None."""
    found = _COMPUTES.get(op)
    return None if found is None else found[0]


def has_compute(op: str, dtype: str | None = None) -> bool:
    """Whether an operator can be lowered (for a dtype of its first operand)."""
    found = _COMPUTES.get(op)
    return found is not None and (dtype is None or found[1] is None or dtype in found[1])


__all__ = [
    "INDEX", "RECOMPUTE_LIMIT", "At", "Compute", "Emitter", "Filling", "Index", "Moved", "Product", "Softmax", "Steps",
    "TensorExpr", "Tensors",
    "elementwise", "find_compute", "has_compute", "moved", "ready", "register_compute", "several", "single",
]  # fmt: skip
