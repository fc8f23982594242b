"""The data of a constant whose elements come when the program is loaded: a shape, a dtype, and where in a named weight
each element lies.

A LateArray stands for an array where only shape and dtype are asked for. What the compiler does to weights (slices,
transposes, panels, 16 bits) it does here to the description, which the file keeps and weights/bind.c carries out.
Everything that would need the elements raises TypeError.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """In elements, of a row-major array."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass(frozen=True, slots=True)
class LateArray:
    """Row-major over `sizes`: element i is element base + sum(i * strides) of the weight where sum(i * steps) < limit,
    else 0. `shape` has the same elements in other axes.

    name, weight_shape, weight_dtype   of the weight; digest: SHA-256 of its row-major bytes, b"" if it may be any
    dtype                              the weight's, or float16 or uint16 (bfloat16's bits) of float32
    """

    name: str
    weight_shape: tuple[int, ...]
    weight_dtype: np.dtype[Any]
    digest: bytes
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    base: int
    limit: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    steps: tuple[int, ...]

    @staticmethod
    def of(name: str, shape: tuple[int, ...], dtype: str, digest: bytes = b"") -> LateArray:
        """A whole weight as it is."""
        kind = np.dtype(dtype)
        zeros = (0,) * len(shape)
        strides = _strides(shape)
        return LateArray(name, shape, kind, digest, shape, kind, 0, 1, shape, strides, zeros)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def layout(self) -> tuple[int, ...]:
        """The words of docs/format.md, "Late-bound constants"."""
        return (self.base, self.limit, *self.sizes, *self.strides, *self.steps)

    @property
    def key(self) -> object:
        """Equal for equal elements."""
        return (self.name, self.shape, self.dtype.name, self.layout)

    def sliced(self, axis: int, begin: int, end: int) -> LateArray:
        """Elements begin to end of an axis; of an array without padding."""
        self._require_whole()
        shape = (*self.shape[:axis], end - begin, *self.shape[axis + 1 :])
        base = self.base + begin * self.strides[axis]
        return replace(self, shape=shape, sizes=shape, base=base)

    def transposed(self, *axes: int) -> LateArray:
        """As numpy's transpose."""
        self._require_whole()
        shape = tuple(self.shape[a] for a in axes)
        strides = tuple(self.strides[a] for a in axes)
        return replace(self, shape=shape, sizes=shape, strides=strides)

    def with_rank(self, rank: int) -> LateArray:
        """Axes of size 1 in front."""
        self._require_whole()
        missing = rank - self.ndim
        shape = (1,) * missing + self.shape
        strides, steps = (0,) * missing + self.strides, (0,) * rank
        return replace(self, shape=shape, sizes=shape, strides=strides, steps=steps)

    def without_leading_ones(self) -> LateArray:
        self._require_whole()
        ones = next((a for a, size in enumerate(self.shape) if size != 1), self.ndim)
        shape = self.shape[ones:]
        return replace(
            self, shape=shape, sizes=shape, strides=self.strides[ones:], steps=self.steps[ones:]
        )

    def panels(self, lanes: int) -> LateArray:
        """(units, *depth) as (ceil(units / lanes), product of depth, lanes), zeros behind the last unit."""
        self._require_whole()
        units, *depth = self.shape
        across, *down = self.strides
        count = -(-units // lanes)
        return replace(
            self, shape=(count, math.prod(depth), lanes), limit=units, sizes=(count, *depth, lanes),
            strides=(lanes * across, *down, across), steps=(lanes, *(0 for _ in depth), 1),
        )  # fmt: skip

    def in_pairs(self, blocks: int, lanes: int) -> LateArray:
        """Of panels the last axis, blocks * 2 * lanes columns, as (blocks, lanes, 2): see relay/op/dense_pack.py."""
        axes, across = (blocks, lanes, 2), self.strides[-1]
        return replace(
            self, shape=(*self.shape[:-1], *axes), sizes=(*self.sizes[:-1], *axes),
            strides=(*self.strides[:-1], 2 * lanes * across, across, lanes * across),
            steps=(*self.steps[:-1], 2 * lanes, 1, lanes),
        )  # fmt: skip

    def stored_as(self, dtype: str) -> LateArray:
        """float32 rounded to "float16", or to bfloat16 as its bits, "uint16"."""
        if self.dtype != np.float32:
            raise TypeError(f"{self.dtype.name} is not stored in 16 bits")
        return replace(self, dtype=np.dtype(dtype))

    def _require_whole(self) -> None:
        if self.sizes != self.shape or any(self.steps):
            raise TypeError(f"weight {self.name} has its last layout already")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise TypeError(
            f"weight {self.name} is bound when the program is loaded; its elements are not known here"
        )


__all__ = ["LateArray"]
