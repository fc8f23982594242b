"""tvm.nd: tensors and devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nimblevm import dtypes
from nimblevm.arguments import explain_arguments, shown
from nimblevm.devices.device import Device
from nimblevm.errors import InvalidInputType
from nimblevm.vm.tensor import Tensor
from nimblevm.vm.tensor import Tensor as NDArray


def cpu(dev_id: int = 0) -> Device:
    """The host."""
    return Device("cpu", dev_id)


def cuda(dev_id: int = 0) -> Device:
    """A GPU by NVIDIA's driver. Programs are compiled for it: target "cuda"."""
    return Device("cuda", dev_id)


def opencl(dev_id: int = 0) -> Device:
    """A device by OpenCL. Programs are compiled for it: target "opencl"."""
    return Device("opencl", dev_id)


gpu = cuda


def device(dev_type: str, dev_id: int = 0) -> Device:
    """A device by name and number; "llvm" is the host, and so is a target's text for it. DeviceError for what this
    build lacks."""
    name = str(dev_type).split(" ")[0]
    return Device("cpu" if name in ("llvm", "c") else name, dev_id)


def array(arr: Any, device: Device | None = None) -> Tensor:
    """A copy of anything that numpy takes; lists of floats are float32, of integers int32, as in TVM. The copy is on
    the host, from where a call takes it."""
    try:
        found = np.asarray(arr)
        if not hasattr(arr, "dtype"):
            found = found.astype({"float64": "float32", "int64": "int32"}.get(str(found.dtype)))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputType(f"array: {shown(arr)} is no array: {error}") from None
    if found.dtype.name not in dtypes.BY_NAME:
        raise InvalidInputType(f"array: {shown(arr)} has no dtype of Relay, but {found.dtype}")
    return Tensor(np.array(found))


def empty(shape: Sequence[int], dtype: str = "float32", device: Device | None = None) -> Tensor:
    """A tensor of zeros on the host: nothing here hands out memory that was not written."""
    if dtype not in dtypes.BY_NAME:
        raise InvalidInputType(
            f"empty: dtype must be one of {', '.join(dtypes.BY_NAME)}, not {shown(dtype)}"
        )
    return Tensor(np.zeros(tuple(shape), dtype))


def from_dlpack(tensor: Any) -> Tensor:
    """A copy of anything with DLPack whose elements the host can read."""
    if not hasattr(tensor, "__dlpack__"):
        raise InvalidInputType(f"from_dlpack: {shown(tensor)} has no __dlpack__")
    return array(np.from_dlpack(tensor))


__all__ = ["NDArray", "array", "cpu", "cuda", "device", "empty", "from_dlpack", "gpu", "opencl"]

explain_arguments(globals(), __all__)
