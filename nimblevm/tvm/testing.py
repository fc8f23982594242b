"""tvm.testing: comparing results."""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.arguments import explain_arguments
from nimblevm.devices.device import Device
from nimblevm.tvm.nd import cpu


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """AssertionError unless both are equal within tolerances and of one shape."""
    actual, desired = np.asarray(actual), np.asarray(desired)
    np.testing.assert_allclose(actual.shape, desired.shape)
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol, verbose=True)


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets that tests go through, each with its device: the host."""
    return [("llvm", cpu())]


__all__ = ["assert_allclose", "enabled_targets"]

explain_arguments(globals(), __all__)
