"""Equality of values of any kind: VM results against the oracle's. Iterative."""

from __future__ import annotations

from typing import Any

import numpy as np

TOLERANCE = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-9}


def assert_same(got: Any, expected: Any, rtol: float | None = None) -> None:
    """Same structure, constructors, shapes and dtypes; integers and bools bit for bit, floats within tolerance."""
    stack = [(got, expected, "result")]
    while stack:
        have, want, where = stack.pop()
        if isinstance(want, tuple):
            assert isinstance(have, tuple), f"{where}: expected a tuple, got {type(have).__name__}"
            assert len(have) == len(want), f"{where}: {len(want)} fields expected, got {len(have)}"
            stack.extend(
                (h, w, f"{where}[{i}]") for i, (h, w) in enumerate(zip(have, want, strict=True))
            )
        elif hasattr(want, "constructor"):
            names = (_name(have), _name(want))
            assert names[0] == names[1], f"{where}: expected constructor {names[1]}, got {names[0]}"
            stack.append((tuple(have.fields), tuple(want.fields), names[1]))
        else:
            _same_array(np.asarray(have), np.asarray(want), where, rtol)


def _name(value: Any) -> str:
    constructor = value.constructor
    return getattr(constructor, "name_hint", None) or constructor.name


def _same_array(have: np.ndarray, want: np.ndarray, where: str, rtol: float | None) -> None:
    assert have.dtype == want.dtype, f"{where}: expected {want.dtype}, got {have.dtype}"
    assert have.shape == want.shape, f"{where}: expected shape {want.shape}, got {have.shape}"
    if want.dtype.kind != "f":
        assert np.array_equal(have, want), f"{where}: expected {want}, got {have}"
        return
    tolerance = rtol if rtol is not None else TOLERANCE[want.dtype.name]
    np.testing.assert_allclose(have, want, rtol=tolerance, atol=tolerance, err_msg=where)
