"""tvm.runtime.profiler_vm: a virtual machine that times its kernels."""

from __future__ import annotations

from typing import Any

from nimblevm.arguments import explained_methods
from nimblevm.bytecode import executable
from nimblevm.devices.device import Device
from nimblevm.tvm.runtime.module import Module
from nimblevm.tvm.runtime.vm import Executable, VirtualMachine
from nimblevm.vm import vm
from nimblevm.vm.profiler import Profile


@explained_methods
class VirtualMachineProfiler(VirtualMachine):
    """As VirtualMachine, and `profile` runs a function and tells where its time went."""

    def __init__(
        self,
        exe: Executable | executable.Executable | Module,
        device: Device | str | list[Device],
        memory_cfg: Any = None,
    ) -> None:
        super().__init__(exe, device, memory_cfg)
        self._vm = vm.VirtualMachine(self.module, self._device, profile=True)

    def profile(
        self, *args: Any, func_name: str = "main", collectors: Any = None, **kwargs: Any
    ) -> Profile:
        """Run a function once; print the result, or read its kernels and lines. Collectors decide nothing."""
        self._vm.reset_profile()
        self.invoke(func_name, *args, **kwargs)
        return self._vm.profile()


def enabled() -> bool:
    """True: every build can profile."""
    return True


__all__ = ["VirtualMachineProfiler", "enabled"]
