"""A remainder of 0 has the divisor's sign in machine code and in numpy; interpreted kernels gave it the dividend's."""

import itertools

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.relay.interpreter import evaluate

VALUES = (0.0, -0.0, 1.0, -1.0, 6.0, -6.0, 0.5, -0.75, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_sign_of_zero(dtype: str) -> None:
    pairs = np.array(list(itertools.product(VALUES, VALUES)), dtype)
    given = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    x, y = (relay.var(name, shape=given[0].shape, dtype=dtype) for name in "xy")
    mod = relay.IRModule.from_expr(relay.Function([x, y], relay.floor_mod(x, y)))
    folded = relay.floor_mod(*map(relay.const, given))
    found = [evaluate(mod, given)]
    for module, args, native in (
        (mod, given, True),
        (mod, given, False),
        (relay.IRModule.from_expr(relay.Function([], folded)), (), False),
    ):
        with nvm.VirtualMachine(nvm.compile(module, native=native)) as vm:
            found.append(vm.run(*args).numpy())
    with np.errstate(invalid="ignore"):
        expected = np.mod(*(value.astype("float64") for value in given)).astype(dtype)
    for value in found:
        np.testing.assert_array_equal(value, expected)
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(value[known]), np.signbit(expected[known]))
