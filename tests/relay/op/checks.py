"""What tests of single operators check: that a program says what the oracle says, fails where it fails, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import RelayTypeError
from nimblevm.relay.interpreter import evaluate
from tests.kernels.native import flat

Refused = tuple[Callable[[], relay.Expr], str]
"""What makes an expression that inference refuses, and what the message says."""


def f32(values: Any) -> np.ndarray:
    return np.array(values, "float32")


def i32(values: Any) -> np.ndarray:
    return np.array(values, "int32")


def i64(values: Any) -> np.ndarray:
    return np.array(values, "int64")


def program(made: Any, values: tuple[np.ndarray, ...]) -> relay.IRModule:
    params = [
        relay.var(f"p{i}", shape=tuple(relay.Any() for _ in v.shape), dtype=v.dtype.name)
        for i, v in enumerate(values)
    ]
    body = made(*params)
    body = body.tuple_value if isinstance(body, relay.TupleWrapper) else body
    return relay.infer_type(relay.IRModule.from_expr(relay.Function(params, body)))


def run(made: Any, *values: np.ndarray) -> Any:
    """The compiled program's value on unknown sizes, near the oracle's. made: parameters -> expression."""
    mod = program(made, values)
    expected = evaluate(mod, values)
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        for a, b in zip(flat(vm.run(*values)), flat(expected), strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-6)
    return expected


def fails(error: type[Exception], made: Any, *values: np.ndarray) -> None:
    """Both the oracle and the compiled program raise."""
    mod = program(made, values)
    with pytest.raises(error):
        evaluate(mod, values)
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        with pytest.raises(error):
            vm.run(*values)


def refused(body: relay.Expr, message: str) -> None:
    """Inference refuses the expression and says where it stands in the text."""
    function = relay.Function(relay.analysis.free_vars(body), body)
    text = relay.IRModule.from_expr(function).astext()
    with pytest.raises(RelayTypeError, match=message) as found:
        relay.parse(text, source_name="here.rly")
    assert "here.rly:" in str(found.value)
