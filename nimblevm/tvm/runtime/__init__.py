"""tvm.runtime: tensors, devices, the virtual machine."""

from nimblevm.tvm.nd import NDArray, cpu, device
from nimblevm.tvm.runtime import vm

__all__ = ["NDArray", "cpu", "device", "vm"]
