"""tvm.nd: tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nimblevm.devices.device import Device
from nimblevm.vm.tensor import Tensor
from nimblevm.vm.tensor import Tensor as NDArray


def cpu(dev_id: int = 0) -> Device:
    """The host."""
    return Device("cpu", dev_id)


def device(dev_type: str, dev_id: int = 0) -> Device:
    """A device by name and number; "llvm" is the host. DeviceError for what this build lacks."""
    return Device("cpu" if dev_type == "llvm" else dev_type, dev_id)


def array(arr: Any, device: Device | None = None) -> Tensor:
    """A copy of anything that numpy takes; lists of floats are float32, of integers int32, as in TVM."""
    found = np.asarray(arr.numpy() if isinstance(arr, Tensor) else arr)
    if not isinstance(arr, np.ndarray | np.generic | Tensor):
        found = found.astype({"float64": "float32", "int64": "int32"}.get(str(found.dtype)))
    return Tensor(np.array(found))


def empty(shape: Sequence[int], dtype: str = "float32", device: Device | None = None) -> Tensor:
    """A tensor of zeros: nothing here hands out memory that was not written."""
    return Tensor(np.zeros(tuple(shape), dtype))


__all__ = ["NDArray", "array", "cpu", "device", "empty"]
