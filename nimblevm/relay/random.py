"""relay.random: numbers that follow from a key, with TVM's argument order and defaults."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from nimblevm.relay import ir, op
from nimblevm.relay.builder_sizes import dims_of
from nimblevm.relay.call import Operand, TupleWrapper, call_op, constant


def threefry_key(seed: int) -> ir.Constant:
    """The key of a seed, an integer >= 0 of at most 256 bits."""
    number = operator.index(seed)
    if not 0 <= number < 2**256:
        raise ValueError(f"threefry_key: seed must lie in 0..2**256 - 1, not {number}")
    words = [number >> 64 * n & 2**64 - 1 for n in range(4)]
    return ir.Constant(np.asarray([*words, 0, 0, 0, 0, 2**63, 0], "uint64"))


def threefry_generate(key: Operand, shape: Any) -> TupleWrapper:
    """(the next key, uint64 numbers of a shape)."""
    attrs = op.random.ThreefryGenerateAttrs(dims_of(shape))
    return TupleWrapper(call_op("random.threefry_generate", key, attrs=attrs), 2)


def threefry_split(key: Operand) -> TupleWrapper:
    """Two keys whose numbers have nothing in common."""
    return TupleWrapper(call_op("random.threefry_split", key), 2)


def _scalar(value: Operand, dtype: str) -> Operand:
    return constant(value, dtype) if isinstance(value, bool | int | float) else value


def uniform(
    key: Operand, shape: Any, dtype: str = "float32", low: Operand = 0.0, high: Operand = 1.0
) -> TupleWrapper:
    """(the next key, floats from low up to high)."""
    attrs = op.random.UniformAttrs(dims_of(shape), dtype)
    bounds = (_scalar(low, dtype), _scalar(high, dtype))
    return TupleWrapper(call_op("random.uniform", key, *bounds, attrs=attrs), 2)


def normal(
    key: Operand, shape: Any, dtype: str = "float32", mean: Operand = 0.0, scale: Operand = 1.0
) -> TupleWrapper:
    """(the next key, floats around mean with the standard deviation scale)."""
    attrs = op.random.NormalAttrs(dims_of(shape), dtype)
    moments = (_scalar(mean, dtype), _scalar(scale, dtype))
    return TupleWrapper(call_op("random.normal", key, *moments, attrs=attrs), 2)


def multinomial(key: Operand, probs: Operand, num_samples: int) -> TupleWrapper:
    """(the next key, indices drawn by the probabilities along the last axis)."""
    attrs = op.random.MultinomialAttrs(num_samples)
    return TupleWrapper(call_op("random.multinomial", key, probs, attrs=attrs), 2)


__all__ = [
    "multinomial", "normal", "threefry_generate", "threefry_key", "threefry_split", "uniform",
]  # fmt: skip
