"""tvm.runtime.module: a program as TVM's libraries are handed about: written, read, given to an executor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nimblevm.arguments import explain_arguments, explained_methods
from nimblevm.bytecode import executable
from nimblevm.devices.device import Device
from nimblevm.errors import NotProvided
from nimblevm.tvm.timing import BenchmarkResult


@dataclass(frozen=True, slots=True)
class OnDevice:
    """What `module["default"](dev)` gives: a program and where it runs."""

    program: executable.Executable
    device: Device | None


@explained_methods
class Module:
    """A whole program: code, constants and kernels. `inner` is this library's Executable.

    VirtualMachine(module, device) runs it, and so does graph_executor.GraphModule(module["default"](device)).
    """

    def __init__(self, inner: executable.Executable) -> None:
        self.inner = inner

    def __getitem__(self, name: str) -> Any:
        if name != "default":
            raise NotProvided(f"the one module is called 'default', not {name!r}")
        return lambda *devices: OnDevice(self.inner, devices[0] if devices else None)

    def export_library(self, file_name: str | Path, *_: Any, **__: Any) -> str:
        """Write the program's file, whatever the name ends with; load_module and nvm.load read it. Options such as
        fcompile decide nothing: no compiler is called."""
        self.inner.save(file_name)
        return str(file_name)


def load_module(path: str | Path, fmt: str = "") -> Module:
    """What export_library wrote; its machine code is trusted. fmt decides nothing: there is one format. Raises
    InvalidExecutable, FileError."""
    return Module(executable.load(path))


__all__ = ["BenchmarkResult", "Module", "OnDevice", "load_module"]

explain_arguments(globals(), __all__)
