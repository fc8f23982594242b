"""tvm.runtime: tensors, devices, the virtual machine."""

from nimblevm.relay.param_dict import load_param_dict, save_param_dict
from nimblevm.tvm.nd import NDArray, cpu, cuda, device, opencl
from nimblevm.tvm.relay.build_module import load_module
from nimblevm.tvm.runtime import container, profiler_vm, vm
from nimblevm.tvm.runtime.container import ADT

__all__ = [
    "ADT", "NDArray", "container", "cpu", "cuda", "device", "load_module", "load_param_dict", "opencl", "profiler_vm",
    "save_param_dict", "vm",
]  # fmt: skip
