"""numpy arrays with masked elements are refused wherever a tensor is taken: what lies behind the mask is no value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import InvalidInputType
from nimblevm.relay.interpreter import evaluate

PROGRAM = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(3), float32]) { exp(%x) }'
X = np.ma.masked_greater(np.arange(3, dtype=np.float32), 1)
OPEN = np.ma.masked_greater(np.arange(3, dtype=np.float32), 9)


def _run(value: Any) -> Any:
    with nvm.VirtualMachine(nvm.compile(nvm.relay.parse(PROGRAM))) as vm:
        return vm.run(value).numpy()


def _bind(value: Any) -> Any:
    with nvm.VirtualMachine(nvm.compile(nvm.relay.parse(PROGRAM), params={"x": value})) as vm:
        return vm.run().numpy()


def _load(value: Any) -> Any:
    mod, plain = nvm.relay.parse(PROGRAM), np.zeros(3, np.float32)
    blob = nvm.compile(mod, params={"x": plain}, late_bound=True).to_bytes()
    return nvm.load(blob, weights={"x": value})


def _operand(value: Any) -> Any:
    x = relay.var("x", shape=(3,))
    return relay.add(x, value)


TAKERS: list[Callable[[Any], Any]] = [
    _run,
    _bind,
    _load,
    _operand,
    relay.const,
    lambda value: evaluate(nvm.relay.parse(PROGRAM), (value,), "main"),
]


@pytest.mark.parametrize("take", TAKERS)
def test_masked_elements_are_refused(take: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidInputType, match=r"1 of 3 elements are masked.*x\.filled\(value\)"):
        take(X)


@pytest.mark.parametrize("take", [_run, _bind])
def test_a_mask_of_nothing_is_no_fault(take: Callable[[Any], Any]) -> None:
    np.testing.assert_array_equal(take(OPEN), _run(np.asarray(OPEN)))
