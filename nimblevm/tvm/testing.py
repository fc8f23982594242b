"""tvm.testing: comparing results."""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.arguments import explain_arguments, shown
from nimblevm.devices.device import Device
from nimblevm.errors import InvalidInputType
from nimblevm.tvm.nd import cpu


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """AssertionError unless both are equal within tolerances and of one shape."""
    actual, desired = _numbers("actual", actual), _numbers("desired", desired)
    np.testing.assert_allclose(actual.shape, desired.shape)
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol, verbose=True)


def _numbers(name: str, given: Any) -> np.ndarray[Any, Any]:
    found = np.asarray(given)
    if found.dtype.kind in "OSU":
        raise InvalidInputType(
            f"assert_allclose: {name} must be an array or numbers, not {shown(given)}"
        )
    return found


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets that tests go through, each with its device: the host."""
    return [("llvm", cpu())]


__all__ = ["assert_allclose", "enabled_targets"]

explain_arguments(globals(), __all__)
