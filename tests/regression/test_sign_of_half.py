"""asin of float16 ended with a sign taken from a double, for which LLVM called a function that was not there."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import nimblevm as nvm

OPERATORS = ("acos", "asin", "asinh", "atan", "atanh", "cosh", "exp", "log", "sinh", "tan", "tanh")


OTHERS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


@pytest.mark.parametrize(
    "target", ["native", *(pytest.param(t, marks=pytest.mark.slow) for t in OTHERS)]
)
def test_functions_of_half_have_machine_code(target: str) -> None:
    lines = [
        f"def @{name}{len(sizes)}(%x: Tensor[({sizes}), float16]) {{ {name}(%x) }}"
        for name in OPERATORS
        for sizes in ("", "?")
    ]
    mod = nvm.relay.parse('#[version = "0.0.5"]\n' + "\n".join(lines))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exe = nvm.compile(mod, target=target)
    if target != "native":
        return
    x = np.asarray([-1.0, -0.5, -0.0, 0.25, 0.5, 1.0, np.nan], np.float16)
    got = nvm.VirtualMachine(exe).invoke("asin1", x).numpy()
    np.testing.assert_allclose(got, np.arcsin(x.astype(np.float64)), rtol=1e-3)
    assert np.signbit(got[2])
