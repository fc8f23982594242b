"""Fused groups that run several times: what the attribute "Steps" of a primitive function says.

    fn (%rows: Tensor[(?n, 4)], %i: int32, %h: Tensor[(1, 4)], %count: int32,
        Primitive=1, Steps=[3, [[1, 1]], [[2, 0]], []]) {
      tanh(take(%rows, %i) + %h)
    }

The body is one step. `%count` steps follow each other: %i grows by one, and each step has the first result of the one
before as %h. Results are those of the last step; behind them come the rows of all steps, of results that are collected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.relay.ir import Function

Array = np.ndarray[Any, Any]

ATTRIBUTE = "Steps"


@dataclass(frozen=True, slots=True)
class StepLoop:
    """Positions are those of the function's parameters and results.

    count      the parameter that is the number of steps, at least 1; the body does not read it
    counters   (parameter, slope): rank-0 integers that grow by the slope with each step
    carried    (parameter, result): the result is the parameter of the next step
    collected  results with one row whose rows of all steps are results too, in this order
    """

    count: int
    counters: tuple[tuple[int, int], ...]
    carried: tuple[tuple[int, int], ...]
    collected: tuple[int, ...]

    @staticmethod
    def of(function: Function) -> StepLoop | None:
        """The steps of a fused group; None for a group that runs once."""
        found: Any = function.attrs.get(ATTRIBUTE)
        if found is None:
            return None
        count, counters, carried, collected = found
        return StepLoop(count, _pairs(counters), _pairs(carried), tuple(collected))

    @property
    def attribute(self) -> tuple[Any, ...]:
        """The attribute's value."""
        return (self.count, self.counters, self.carried, self.collected)


def _pairs(rows: Any) -> tuple[tuple[int, int], ...]:
    return tuple((int(a), int(b)) for a, b in rows)


class Repetition:
    """The steps of one call, for an evaluator: run it on `inputs` and `take` what it gives while any are `left`."""

    def __init__(self, steps: StepLoop, inputs: Sequence[Array]) -> None:
        self.steps = steps
        self.inputs = tuple(inputs)
        self.left = int(inputs[steps.count])
        self.results: tuple[Array, ...] | None = None
        self.rows: tuple[list[Array], ...] = tuple([] for _ in steps.collected)

    def take(self, value: Array | tuple[Array, ...]) -> None:
        """The results of a step."""
        self.results = value if isinstance(value, tuple) else (value,)
        self.left -= 1
        for rows, result in zip(self.rows, self.steps.collected, strict=True):
            rows.append(self.results[result])
        new = dict(enumerate(self.inputs))
        new.update({param: self.results[result] for param, result in self.steps.carried})
        for param, slope in self.steps.counters:
            new[param] = np.asarray(new[param] + slope, new[param].dtype)
        self.inputs = tuple(new.values())

    def all(self) -> tuple[Array, ...]:
        """The results of the last step, and the rows of all steps."""
        return (*(self.results or ()), *(np.concatenate(rows) for rows in self.rows))


__all__ = ["ATTRIBUTE", "Repetition", "StepLoop"]
