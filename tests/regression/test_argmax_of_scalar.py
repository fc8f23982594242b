"""argmax of a scalar: its C kernel wanted a view of what lives in an int register."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float32"])
@pytest.mark.parametrize("options", [{}, {"native": False}, {"native": False, "unbox": False}])
def test_argmax_of_a_scalar(op: str, dtype: str, options: dict[str, Any]) -> None:
    text = f'#[version = "0.0.5"]\ndef @main(%x: {dtype}) {{ ({op}(%x), {op}(%x + %x)) }}'
    with nvm.compile(nvm.relay.parse(text), **options) as exe, nvm.VirtualMachine(exe) as vm:
        assert [int(v) for v in vm.run(np.asarray(3, dtype))] == [0, 0]
