"""Cases of random numbers: keys of every kind, counters at their end among them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nimblevm.relay.op import random
from tests.relay.op.draw import Case, Source, pick, shape


def _key(source: Source) -> np.ndarray:
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    key = rng.integers(0, 2**64, 10, "uint64")
    key[7] = pick(source, (0, 5, 2**64 - 1, 2**64 - 4))
    places = ((2**63, 0), (1, 0), (0, 2**63), (0, 1), (0, 0))
    key[8:] = pick(source, places)
    return np.asarray(key)


def _generate(source: Source, dtype: str) -> Case:
    return Case((_key(source),), random.ThreefryGenerateAttrs(shape(source)))


def _split(source: Source, dtype: str) -> Case:
    return Case((_key(source),))


def _drawn(attrs: type, source: Source) -> Case:
    kind = pick(source, random.SINGLE)
    scalars = tuple(np.asarray(source.integer(-3, 3), kind) for _ in range(2))
    return Case((_key(source), *scalars), attrs(shape(source), kind))


def _multinomial(source: Source, dtype: str) -> Case:
    """Sixteenths that sum to one: the sums are exact in every order."""
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    rows, choices = shape(source, 0, 2), pick(source, (1, 2, 5))
    counts = rng.multinomial(16, np.full(choices, 1 / choices), rows).reshape(*rows, choices)
    kind = pick(source, ("float32", "float64", "float16", "int32"))
    probs = counts.astype(kind) / (1 if kind == "int32" else 16)
    attrs = random.MultinomialAttrs(source.integer(0, 4))
    return Case((_key(source), probs.astype(kind)), attrs)


CASES: dict[str, Callable[[Source, str], Case]] = {
    "random.threefry_generate": _generate, "random.threefry_split": _split,
    "random.uniform": lambda source, dtype: _drawn(random.UniformAttrs, source),
    "random.normal": lambda source, dtype: _drawn(random.NormalAttrs, source), "random.multinomial": _multinomial,
}  # fmt: skip
