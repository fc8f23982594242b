"""Fused groups that run for each level of a tree: what the attribute "Levels" of a primitive function says.

    fn (%done: Tensor[(?m, 4)], %names: Tensor[(?all), int32], %sizes: Tensor[(?levels), int32], %n: int64, %row: int64,
        %most: int64, %rows: int64, Primitive=1, Levels=[2, 3, 4, 5, 1, [[0, 6, 0]]],
        dim_params=[[3, ?n], [5, ?most], [6, ?m]]) {
      tanh(take(%done, vm.rows(%names, %row, shape=[?n]), axis=0))
    }

The body is one level. Levels follow each other: %n is how many rows this one has (%sizes says it), %row how many those
before had, %rows how many %done has by now: the rows of a level's result are joined to it. Results are the tables
behind the last level. What the call passes for these three numbers does not count; %most is the largest of %sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay.ir import Function

Array = np.ndarray[Any, Any]

ATTRIBUTE = "Levels"


@dataclass(frozen=True, slots=True)
class LevelLoop:
    """Positions are those of the function's parameters and results.

    sizes    the parameter with the number of rows of each level
    size     the parameter that is this number for one level
    row      the parameter that is the sum of those before
    most     the parameter that is the number of rows of the largest level
    whole    a parameter of which each level reads its rows: it has as many as all levels together
    tables   (parameter, parameter that is its number of rows, result that is joined to it); all results in order
    """

    sizes: int
    size: int
    row: int
    most: int
    whole: int
    tables: tuple[tuple[int, int, int], ...]

    @staticmethod
    def of(function: Function) -> LevelLoop | None:
        """The levels of a fused group; None for a group that has none."""
        found: Any = function.attrs.get(ATTRIBUTE)
        if found is None:
            return None
        sizes, size, row, most, whole, tables = found
        rows = tuple((int(a), int(b), int(c)) for a, b, c in tables)
        return LevelLoop(int(sizes), int(size), int(row), int(most), int(whole), rows)

    @property
    def attribute(self) -> tuple[Any, ...]:
        """The attribute's value."""
        return (self.sizes, self.size, self.row, self.most, self.whole, self.tables)


class LevelRun:
    """The levels of one call, for an evaluator: run it on `inputs` and `take` what it gives while any are `left`."""

    def __init__(self, levels: LevelLoop, inputs: Sequence[Array]) -> None:
        self.levels = levels
        self.inputs = tuple(inputs)
        self.sizes = [int(n) for n in inputs[levels.sizes]]
        self.left = len(self.sizes)
        self.row = 0
        self._begin()

    def _begin(self) -> None:
        """The inputs of the next level."""
        if not self.left:
            return
        new = list(self.inputs)
        new[self.levels.size] = np.asarray(self.sizes[-self.left], "int64")
        new[self.levels.row] = np.asarray(self.row, "int64")
        for table, rows, _ in self.levels.tables:
            new[rows] = np.asarray(len(new[table]), "int64")
        self.inputs = tuple(new)

    def take(self, value: Array | tuple[Array, ...]) -> None:
        """The results of a level."""
        results = value if isinstance(value, tuple) else (value,)
        new = list(self.inputs)
        for table, _, result in self.levels.tables:
            new[table] = np.concatenate((new[table], results[result]))
        self.inputs = tuple(new)
        self.row += self.sizes[-self.left]
        self.left -= 1
        self._begin()

    def all(self) -> tuple[Array, ...]:
        """The tables behind the last level."""
        return tuple(self.inputs[table] for table, _, _ in self.levels.tables)


__all__ = ["ATTRIBUTE", "LevelLoop", "LevelRun"]
