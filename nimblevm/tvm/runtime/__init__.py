"""tvm.runtime: tensors, devices, the virtual machine."""

from typing import TypeVar

from nimblevm.relay.param_dict import load_param_dict, save_param_dict
from nimblevm.tvm.nd import NDArray, cpu, cuda, device, opencl
from nimblevm.tvm.runtime import container, module, profiler_vm, vm
from nimblevm.tvm.runtime.container import ADT
from nimblevm.tvm.runtime.module import Module, load_module

T = TypeVar("T")


def convert(value: T) -> T:
    """The value: numbers, texts, lists and functions of Python are taken as they are."""
    return value


__all__ = [
    "ADT", "Module", "NDArray", "container", "convert", "cpu", "cuda", "device", "load_module", "load_param_dict",
    "module", "opencl", "profiler_vm", "save_param_dict", "vm",
]  # fmt: skip
