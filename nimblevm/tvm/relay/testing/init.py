"""tvm.relay.testing.init: a network as a module with values for its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nimblevm.arguments import explain_arguments
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType
from nimblevm.tvm.nd import NDArray, array

Values = np.ndarray[Any, Any]
_ZEROS = ("bias", "beta", "moving_mean", "mean")
_ONES = ("gamma", "moving_var", "var")


class Xavier:
    """Weights drawn evenly from an interval that keeps the variance of what flows through; vectors of normalizations
    are zeros and ones. Called with a parameter's name and an array to fill."""

    def __init__(self, magnitude: float = 3.0, seed: int = 0) -> None:
        self.magnitude = magnitude
        self._random = np.random.default_rng(seed)

    def __call__(self, name: str, out: Values) -> None:
        if name.endswith(_ZEROS):
            out[...] = 0
        elif name.endswith(_ONES):
            out[...] = 1
        elif out.ndim < 2:
            out[...] = self._random.uniform(-1, 1, out.shape)
        else:
            window = int(np.prod(out.shape[2:]))
            mean = (out.shape[0] + out.shape[1]) * window / 2
            bound = (self.magnitude / max(mean, 1)) ** 0.5
            out[...] = self._random.uniform(-bound, bound, out.shape)


def create_workload(
    net: Function, initializer: Callable[[str, Values], None] | None = None, seed: int = 0
) -> tuple[IRModule, dict[str, NDArray]]:
    """(module with types, values of all parameters but those whose name begins with "data").

    The values are reproducible, and are not those that TVM draws.
    """
    mod = infer_type(IRModule.from_expr(net))
    fill = Xavier(seed=seed) if initializer is None else initializer
    params = {}
    for param in mod.function("main").params:
        kind = param.checked_type
        if not isinstance(kind, TensorType) or param.name_hint.startswith("data"):
            continue
        values = np.zeros(kind.concrete_shape, kind.dtype)
        fill(param.name_hint, values)
        params[param.name_hint] = array(values)
    return mod, params


__all__ = ["Xavier", "create_workload"]

explain_arguments(globals(), __all__)
