"""random.*: blocks of four numbers from a key, and what is drawn with them."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any

from nimblevm.kernels.compute.common import flat_position, named
from nimblevm.kernels.compute.scatter import filled
from nimblevm.kernels.expr import INDEX
from nimblevm.kernels.loop_ir import SetLocal, Statement, Store, Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Filling,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import product
from nimblevm.relay.op.random import FRACTION, KEY, ONES, PARITY, ROTATIONS, ROUNDS
from nimblevm.relay.types import TensorType

WORD = "uint64"


def _word(em: Emitter, value: int) -> Value:
    return em.b.const(value, WORD)


def _hash(em: Emitter, key: Sequence[Value], block: Sequence[Value], index: Index) -> list[Value]:
    """Threefry of a block of four words; each round's are locals."""
    b = em.b
    words = list(key[:4])
    parity = _word(em, PARITY)
    for word in words:
        parity = b.binary("xor", parity, word)
    words.append(parity)
    x = list(block)
    for turn in range(ROUNDS):
        if turn % 4 == 0:
            step = turn // 4
            for n in range(4):
                x[n] = b.add(x[n], words[(step + n) % 5])
            x[3] = b.add(x[3], _word(em, step))
        for pair, by in enumerate(ROTATIONS[turn % 8]):
            second = named(em, x[2 * pair + 1], index)
            left = b.binary("shl", second, _word(em, by))
            around = b.binary("or", left, b.binary("shr", second, _word(em, 64 - by)))
            x[2 * pair] = named(em, b.add(x[2 * pair], second), index)
            x[2 * pair + 1] = b.binary("xor", x[2 * pair], around)
        x[1], x[3] = x[3], x[1]
    return x


def _words(em: Emitter, key: TensorExpr) -> Generator[Any, Value, list[Value]]:
    found = []
    for n in range(10):
        word = yield key, (em.b.i64(n),)
        found.append(word)
    return found


def _pick(em: Emitter, first: Value, yes: Sequence[Value], no: Sequence[Value]) -> list[Value]:
    return [em.b.select(first, a, b) for a, b in zip(yes, no, strict=True)]


def _shifted(em: Emitter, high: Value, low: Value) -> list[Value]:
    """The next place in the path, of one bit among 128."""
    b, zero, one = em.b, _word(em, 0), _word(em, 1)
    across = [zero, _word(em, 2**63)]
    inside = _pick(em, b.compare("eq", high, one), across, [b.binary("shr", high, one), zero])
    return _pick(em, b.compare("eq", high, zero), [zero, b.binary("shr", low, one)], inside)


def _no_place(em: Emitter, words: Sequence[Value]) -> Value:
    """Whether a path has no place any more."""
    return em.b.compare("eq", em.b.binary("or", words[8], words[9]), _word(em, 0))


def _right(em: Emitter, words: Sequence[Value]) -> list[Value]:
    """The path with a step in the next place."""
    return [em.b.binary("or", words[4 + n], words[8 + n]) for n in (0, 1)]


def _state(em: Emitter, key: TensorExpr, count: Value) -> TensorExpr:
    """The key with room in its counter for `count` numbers, stored."""
    b, zero = em.b, _word(em, 0)

    def fill(buffer: int) -> Filling:
        words = yield from _words(em, key)
        fresh = _hash(em, words, [_word(em, ONES)] * 4, ())
        restarted = [*fresh, zero, zero, zero, zero, _word(em, 2**63), zero]
        path = [*words[:4], *_right(em, words), zero, zero, *_shifted(em, words[8], words[9])]
        moved = _pick(em, _no_place(em, words), restarted, path)
        room = b.compare("lt", words[7], b.sub(_word(em, ONES), count))
        for n, value in enumerate(_pick(em, room, words, moved)):
            em.emit(Store(buffer, (b.i64(n),), value))

    return filled(KEY, fill)


def _generated(em: Emitter, key: TensorExpr, shape: Sequence[Dim]) -> tuple[TensorExpr, TensorExpr]:
    """The next key, and the numbers of a shape as one vector."""
    b, total = em.b, product(shape)
    size = em.dim(total)
    count = b.cast(size, WORD)
    state = _state(em, key, count)
    fours, rest = (b.binary(op, size, b.i64(4)) for op in ("floordiv", "floormod"))
    whole = b.binary("sub", count, b.cast(rest, WORD))

    def fill(buffer: int) -> Filling:
        words = yield from _words(em, state)
        with em.loop(fours, parallel=True) as turn:
            here = b.cast(turn, WORD)
            found = _hash(em, words, [b.add(words[4 + n], here) for n in range(4)], (turn,))
            for n, value in enumerate(found):
                place = b.add(b.mul(turn, b.i64(4)), b.i64(n))
                em.emit(Store(buffer, (place,), value))
        last = _hash(em, words, [*words[4:7], b.add(words[7], whole)], ())
        for n, value in enumerate(last[:3]):
            body: list[Statement] = [Store(buffer, (b.add(b.sub(size, rest), b.i64(n)),), value)]
            em.branches([b.compare("lt", b.i64(n), rest)], [body, []])

    def word(index: Index) -> Steps:
        value = yield state, index
        some = b.compare("ne", rest, b.i64(0))
        grown = b.add(b.add(value, whole), b.select(some, _word(em, 4), _word(em, 0)))
        cleared = b.select(b.compare("eq", index[0], b.i64(6)), _word(em, 0), value)
        return b.select(b.compare("eq", index[0], b.i64(7)), grown, cleared)

    after = TensorExpr(KEY.shape, WORD, word, 1 << 20)
    return after, filled(TensorType((total,), WORD), fill)


def _generate(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    shape = out.fields[1].shape
    after, numbers = _generated(em, single(args[0]), shape)

    def at(index: Index) -> Steps:
        return (yield numbers, (flat_position(em, shape, index),))

    return after, TensorExpr(shape, WORD, at, 1 << 20)


def _split(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    key, zero = single(args[0]), _word(em, 0)

    def side(right: bool) -> TensorExpr:
        def fill(buffer: int) -> Filling:
            words = yield from _words(em, key)
            fresh = _hash(em, words, words[4:8], ())
            first = _word(em, 2**63 if right else 0)
            restarted = [*fresh, first, zero, zero, zero, _word(em, 2**62), zero]
            path = _right(em, words) if right else words[4:6]
            place = _shifted(em, words[8], words[9])
            moved = [*words[:4], *path, *words[6:8], *place]
            for n, value in enumerate(_pick(em, _no_place(em, words), restarted, moved)):
                em.emit(Store(buffer, (em.b.i64(n),), value))

        return filled(KEY, fill)

    return side(right=False), side(right=True)


def _unit(em: Emitter, number: Value, dtype: str) -> Value:
    """A generated number as a float in [0, 1)."""
    b = em.b
    kind, shift, one = FRACTION[dtype]
    bits = b.binary("shr", b.cast(number, kind), b.const(shift, kind))
    return b.sub(b.bits(b.binary("or", bits, b.const(one, kind)), dtype), b.const(1, dtype))


def _uniform(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    key, low, high = (single(arg) for arg in args)
    shape, dtype = out.fields[1].shape, out.fields[1].dtype
    after, numbers = _generated(em, key, shape)

    def at(index: Index) -> Steps:
        number = yield numbers, (flat_position(em, shape, index),)
        start = yield low, ()
        end = yield high, ()
        return em.b.add(em.b.mul(_unit(em, number, dtype), em.b.sub(end, start)), start)

    return after, TensorExpr(shape, dtype, at, 1 << 20)


def _normal(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    key, mean, scale = (single(arg) for arg in args)
    b, shape, dtype = em.b, out.fields[1].shape, out.fields[1].dtype
    after, numbers = _generated(em, key, (2, *shape))

    def at(index: Index) -> Steps:
        place = flat_position(em, shape, index)
        first = yield numbers, (place,)
        second = yield numbers, (b.add(em.size(shape), place),)
        middle = yield mean, ()
        factor = yield scale, ()
        rest = b.sub(b.const(1, dtype), _unit(em, first, dtype))
        length = b.unary("sqrt", b.mul(b.const(-2, dtype), b.unary("log", rest)))
        angle = b.mul(b.const(2 * math.pi, dtype), _unit(em, second, dtype))
        return b.add(b.mul(b.mul(length, b.unary("sin", angle)), factor), middle)

    return after, TensorExpr(shape, dtype, at, 1 << 20)


def _multinomial(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    key, probs = (single(arg) for arg in args)
    b, shape, dtype = em.b, out.fields[1].shape, "float32"
    after, numbers = _generated(em, key, shape)
    choices = probs.shape[-1:]

    def share(where: Index) -> Steps:
        value = yield probs, where
        return b.binary("max", b.cast(value, dtype), b.const(0, dtype))

    def total(index: Index) -> Steps:
        return (
            yield from em.accumulate(
                "add", b.const(0, dtype), index, choices, lambda turn: share((*index, *turn))
            )
        )

    totals = TensorExpr(probs.shape[:-1], dtype, total, 1 << 20, costly=True, stored=True)

    def at(index: Index) -> Steps:
        yield from em.cheap(probs)
        number = yield numbers, (flat_position(em, shape, index),)
        whole = yield totals, index[:-1]
        drawn = named(em, _unit(em, number, dtype), index)
        with em.hoisted(index):
            upto, best, found = (em.local(kind, index) for kind in (dtype, dtype, INDEX))
            for local, start in ((upto, 0.0), (best, math.inf)):
                em.emit(SetLocal(local, b.const(start, dtype)))
            em.emit(SetLocal(found, b.i64(0)))
            with em.loops(choices) as turn:
                value = yield from share((*index[:-1], *turn))
                em.emit(SetLocal(upto, b.add(upto, b.binary("div", value, whole))))
                over = b.sub(upto, drawn)
                above = b.select(b.compare("gt", over, b.const(0, dtype)), over, b.const(1, dtype))
                body: list[Statement] = [SetLocal(best, above), SetLocal(found, turn[0])]
                em.branches([b.compare("lt", above, best)], [body, []])
        return b.cast(found, "int32")

    return after, TensorExpr(shape, "int32", at, 1 << 20, costly=True)


for _name, _rule in (
    ("threefry_generate", _generate), ("threefry_split", _split), ("uniform", _uniform), ("normal", _normal),
    ("multinomial", _multinomial),
):  # fmt: skip
    register_compute(f"random.{_name}", _rule)
