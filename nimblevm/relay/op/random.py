"""random.*: numbers that follow from a key (Threefry), uniform and normal ones, and places drawn by probabilities.

    random.threefry_generate(key, out_shape)     a tuple: the next key; uint64 out, out_shape
    random.threefry_split(key)                   a tuple: two keys whose numbers have nothing in common
    random.uniform(key, low, high, out_shape, out_dtype)
        a tuple: the next key; low + (high - low) * u[i]         u in [0, 1): the leading bits after the point are the
        generated number's, of float32 the 23 upper ones of its lower half, of float64 its 52 upper ones
    random.normal(key, mean, scale, out_shape, out_dtype)
        a tuple: the next key; mean + scale * sqrt(-2 log(1 - u[0, i])) * sin(2 pi u[1, i])          u as above, (2, ..)
    random.multinomial(key, probs, num_samples=1)
        a tuple: the next key; out[.., s] = the first index at which the sum of probs[..] up to it, of probabilities
        below 0 counted as 0 and divided by their sum, is above u[.., s]; 0 if none is

    key: words 0..3 of a hash, 4, 5 a path, 6, 7 a counter, 8, 9 the next place in the path. Numbers 4 i .. 4 i + 3 are
    Threefry-4x64 of 20 rounds (Skein's rotations, no key behind the last) of words 4..7, each + i, the last incomplete
    four of word 7 + n div 4 * 4; word 7 grows by n, of an incomplete four by 4 more than that. A counter that would run
    over goes on with the next step of the path; without a place in it the hash of all ones is the key

key: uint64, (10,). out_shape: sizes, which may be dim expressions; low, high, mean, scale: scalars of out_dtype,
float32 or float64; probs: numbers, rank >= 1, at least one along the last axis, computed in float32. Result: keys, and
out_shape; random.multinomial: int32, (.., num_samples). A key that is used twice gives the same numbers. Attrs:
out_shape, out_dtype, num_samples. Source: Relay's random operators (TOPI), which leave half of the ones undefined.
Differs from numpy: keys are values, there is no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ACCUMULATED,
    NUMERIC,
    Array,
    Attrs,
    require_nonempty,
    set_axes,
    shape_attr,
    tensor_of,
)
from nimblevm.relay.op.full import concrete_shape
from nimblevm.relay.op.registry import (
    Effect,
    Op,
    OpPattern,
    Reference,
    TypeContext,
    TypeRelation,
    register,
)
from nimblevm.relay.types import TensorType, TupleType, Type

KEY = TensorType((10,), "uint64")
SINGLE = ("float32", "float64")
ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
"""Of the two pairs of words in rounds 0..7, from the Skein paper; then again."""
ROUNDS = 20
PARITY = 0x1BD11BDAA9FC1A22
ONES = 2**64 - 1
TOLERANCE = {"uint64": ACCUMULATED["float32"], **ACCUMULATED}
"""By the first operand's dtype, a key's; what is an integer is equal bit for bit."""
FRACTION = {"float32": ("uint32", 9, 127 << 23), "float64": ("uint64", 12, 1023 << 52)}
"""dtype -> unsigned integers of its width, bits that are not its fraction's, the bits of 1."""


class _OutShape(Attrs):
    __slots__ = ()

    def __post_init__(self) -> None:
        set_axes(self, "out_shape")
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class ThreefryGenerateAttrs(_OutShape):
    """out_shape: the numbers'."""

    out_shape: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class UniformAttrs(_OutShape):
    """out_shape, out_dtype: the numbers'."""

    out_shape: tuple[Dim, ...]
    out_dtype: str = ""


@dataclass(frozen=True, slots=True)
class NormalAttrs(UniformAttrs):
    """out_shape, out_dtype: the numbers'."""


@dataclass(frozen=True, slots=True)
class MultinomialAttrs(Attrs):
    """num_samples: drawn from each row."""

    num_samples: int = 1


def _key(ctx: TypeContext, arg_types: tuple[Type, ...]) -> None:
    key = tensor_of(ctx, arg_types, 0, ("uint64",))
    if len(key.shape) != 1:
        raise ctx.fail(f"key must be (10,), not of rank {len(key.shape)}", 0)
    ctx.require_dim(0, 0, 10)


def _generate(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    _key(ctx, arg_types)
    return TupleType((KEY, TensorType(shape_attr(ctx, attrs.out_shape), "uint64")))


def _split(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    _key(ctx, arg_types)
    return TupleType((KEY, KEY))


def _drawn(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    _key(ctx, arg_types)
    if attrs.out_dtype not in SINGLE:
        raise ctx.fail(f"out_dtype must be float32 or float64, not {attrs.out_dtype!r}")
    for index in (1, 2):
        if tensor_of(ctx, arg_types, index, (attrs.out_dtype,)).shape:
            raise ctx.fail(f"argument {index} must be a scalar", index)
    return TupleType((KEY, TensorType(shape_attr(ctx, attrs.out_shape), attrs.out_dtype)))


def _multinomial(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: MultinomialAttrs) -> Type:
    _key(ctx, arg_types)
    probs = tensor_of(ctx, arg_types, 1, NUMERIC)
    count: Any = attrs.num_samples
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**31:
        raise ctx.fail(f"num_samples must be an integer >= 0, not {count!r}")
    if not probs.shape:
        raise ctx.fail("probs must have an axis", 1)
    require_nonempty(ctx, 1, len(probs.shape) - 1, probs.shape[-1], "a draw")
    return TupleType((KEY, TensorType((*probs.shape[:-1], count), "int32")))


def _hash(key: Array, block: Array) -> Array:
    """Threefry of blocks (.., 4) under the first four words of a key."""
    words = [key[n] for n in range(4)]
    words.append(words[0] ^ words[1] ^ words[2] ^ words[3] ^ np.uint64(PARITY))
    x = [block[..., n].copy() for n in range(4)]
    for turn in range(ROUNDS):
        if turn % 4 == 0:
            step = turn // 4
            for n in range(4):
                x[n] = x[n] + words[(step + n) % 5] + np.uint64(step if n == 3 else 0)
        for pair, by in enumerate(ROTATIONS[turn % 8]):
            a, b = x[2 * pair], x[2 * pair + 1]
            around = (b << np.uint64(by)) | (b >> np.uint64(64 - by))
            x[2 * pair] = a + b
            x[2 * pair + 1] = x[2 * pair] ^ around
        x[1], x[3] = x[3], x[1]
    return np.stack(x, -1)


def _shifted(high: int, low: int) -> tuple[int, int]:
    """The next place in the path, of one bit among 128."""
    return ((high >> 1, 0) if high > 1 else (0, 2**63)) if high else (0, low >> 1)


def _ready(key: Array, count: int) -> Array:
    """The key with room in its counter for `count` numbers."""
    words = [int(word) for word in key]
    if words[7] < (ONES - count) % 2**64:
        return key
    if words[8] == 0 and words[9] == 0:
        fresh = _hash(key, np.full(4, ONES, "uint64"))
        return np.asarray([*fresh.tolist(), 0, 0, 0, 0, 2**63, 0], "uint64")
    path = (words[4] | words[8], words[5] | words[9])
    return np.asarray([*words[:4], *path, 0, 0, *_shifted(words[8], words[9])], "uint64")


def _generated(key: Array, count: int) -> tuple[Array, Array]:
    """The next key, and `count` numbers."""
    state = _ready(key, count)
    fours = np.uint64(count // 4)
    blocks = state[4:8] + np.arange(count // 4, dtype="uint64")[:, None]
    numbers = _hash(state, blocks).reshape(-1)
    after = state.copy()
    after[6] = 0
    after[7] = state[7] + np.uint64(count)
    if count % 4:
        last = state[4:8].copy()
        last[3] += fours * np.uint64(4)
        numbers = np.concatenate((numbers, _hash(state, last)[: count % 4]))
        after[7] = last[3] + np.uint64(4)
    return after, numbers


def _unit(numbers: Array, dtype: str) -> Array:
    """Generated numbers as floats in [0, 1)."""
    kind, shift, one = FRACTION[dtype]
    bits = (numbers.astype(kind) >> np.dtype(kind).type(shift)) | np.dtype(kind).type(one)
    return np.asarray(bits.view(dtype) - np.dtype(dtype).type(1))


def _numbers(inputs: tuple[Array, ...], shape: tuple[int, ...]) -> tuple[Array, Array]:
    with np.errstate(all="ignore"):
        after, numbers = _generated(inputs[0], int(np.prod(shape, dtype="int64")))
    return after, np.asarray(numbers.reshape(shape))


def _generate_reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> tuple[Array, ...]:
    return _numbers(inputs, concrete_shape("random.threefry_generate", attrs.out_shape))


def _split_reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> tuple[Array, ...]:
    (key,) = inputs
    words = [int(word) for word in key]
    if words[8] == 0 and words[9] == 0:
        with np.errstate(all="ignore"):
            fresh = _hash(key, key[4:8]).tolist()
        sides: Any = ([*fresh, side, 0, 0, 0, 2**62, 0] for side in (0, 2**63))
    else:
        place = _shifted(words[8], words[9])
        stepped = (words[4] | words[8], words[5] | words[9])
        sides = ([*words[:4], *path, *words[6:8], *place] for path in (words[4:6], stepped))
    left, right = (np.asarray(side, "uint64") for side in sides)
    return left, right


def _uniform_reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> tuple[Array, ...]:
    after, numbers = _numbers(inputs, concrete_shape("random.uniform", attrs.out_shape))
    _, low, high = inputs
    with np.errstate(all="ignore"):
        return after, np.asarray(_unit(numbers, attrs.out_dtype) * (high - low) + low)


def _normal_reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> tuple[Array, ...]:
    shape = concrete_shape("random.normal", attrs.out_shape)
    after, numbers = _numbers(inputs, (2, *shape))
    kind = np.dtype(attrs.out_dtype).type
    uniform = _unit(numbers, attrs.out_dtype)
    with np.errstate(all="ignore"):
        length = np.sqrt(kind(-2) * np.log(kind(1) - uniform[0]))
        found = length * np.sin(kind(2 * np.pi) * uniform[1]) * inputs[2] + inputs[1]
    return after, np.asarray(found)


def _multinomial_reference(
    inputs: tuple[Array, ...], attrs: MultinomialAttrs, result: Type
) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        probs = np.maximum(inputs[1].astype("float32"), np.float32(0))
        after, numbers = _numbers(inputs, (*probs.shape[:-1], attrs.num_samples))
        shares = probs / probs.sum(-1, keepdims=True, dtype="float32")
        sums = np.cumsum(shares, -1, dtype="float32")
        above = sums[..., None] - _unit(numbers, "float32")[..., None, :]
        places = np.where(above > 0, above, np.float32(1)).argmin(-2)
    return after, places.astype("int32")


def _register(
    name: str, args: tuple[str, ...], attrs: type | None, relation: TypeRelation, reference: Reference,
    dtypes: tuple[tuple[str, ...], ...] = (),
) -> None:  # fmt: skip
    register(
        Op(
            name=f"random.{name}",
            args=("key", *args),
            attrs=attrs,
            relation=relation,
            reference=reference,
            pattern=OpPattern.OPAQUE,
            effect=Effect.TOTAL,
            dtypes=(("uint64",), *dtypes),
            doc=__doc__ or "",
            tolerance=TOLERANCE,
        )
    )


_register("threefry_generate", (), ThreefryGenerateAttrs, _generate, _generate_reference)
_register("threefry_split", (), None, _split, _split_reference)
_register("uniform", ("low", "high"), UniformAttrs, _drawn, _uniform_reference, (SINGLE, SINGLE))
_register("normal", ("mean", "scale"), NormalAttrs, _drawn, _normal_reference, (SINGLE, SINGLE))
_register(
    "multinomial", ("probs",), MultinomialAttrs, _multinomial, _multinomial_reference, (NUMERIC,)
)
