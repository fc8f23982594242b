"""nimblevm: compile dynamic Relay programs to one file, run it on a register VM in C.

    import nimblevm as nvm
    mod = nvm.relay.parse(text)            # compile time
    exe = nvm.compile(mod)
    exe.save("model.nvm")
    vm = nvm.VirtualMachine(nvm.load("model.nvm"))   # run time: needs numpy, cffi and msgpack alone
    out = vm.run(x)

Compile time: relay (the language), compile, dim_report. Run time: load, Executable, VirtualMachine, Limits, Tensor,
ADTValue, Handle, move, KEEP, Device and devices, profiling, set_log, build_info. Both: external (codegen of one's own).
Errors of programs, files and runs are NimbleErrors and a fitting builtin exception; nimblevm.errors has them all.
Builders of programs refuse wrong arguments with a TypeError or ValueError too.

Names are looked up on first use, so that a deployment runtime never loads the compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nimblevm import devices, errors, external, profiling, relay
    from nimblevm.bytecode.adt import ADTValue
    from nimblevm.bytecode.executable import Executable, load
    from nimblevm.compiler.dim_report import dim_report
    from nimblevm.devices.device import Device
    from nimblevm.driver import compile, tune
    from nimblevm.errors import (
        Cancelled,
        InvalidExecutable,
        InvalidInput,
        InvalidWeights,
        LimitExceeded,
        NimbleError,
        SignatureError,
        ValueMoved,
        VMBusy,
        WeightsMismatch,
        WeightsNotBound,
    )
    from nimblevm.vm.arguments import Handle
    from nimblevm.vm.installation import build_info
    from nimblevm.vm.logs import set_log
    from nimblevm.vm.tensor import Tensor, move
    from nimblevm.vm.vm import Limits, VirtualMachine
    from nimblevm.vm.wants import KEEP

__version__ = "0.2.0"

# name -> (module, attribute); attribute None: the module itself
_PUBLIC: dict[str, tuple[str, str | None]] = {
    "ADTValue": ("nimblevm.bytecode.adt", "ADTValue"),
    "Cancelled": ("nimblevm.errors", "Cancelled"),
    "Device": ("nimblevm.devices.device", "Device"),
    "Executable": ("nimblevm.bytecode.executable", "Executable"),
    "Handle": ("nimblevm.vm.arguments", "Handle"),
    "InvalidExecutable": ("nimblevm.errors", "InvalidExecutable"),
    "InvalidInput": ("nimblevm.errors", "InvalidInput"),
    "InvalidWeights": ("nimblevm.errors", "InvalidWeights"),
    "KEEP": ("nimblevm.vm.wants", "KEEP"),
    "LimitExceeded": ("nimblevm.errors", "LimitExceeded"),
    "Limits": ("nimblevm.vm.vm", "Limits"),
    "NimbleError": ("nimblevm.errors", "NimbleError"),
    "SignatureError": ("nimblevm.errors", "SignatureError"),
    "Tensor": ("nimblevm.vm.tensor", "Tensor"),
    "ValueMoved": ("nimblevm.errors", "ValueMoved"),
    "VMBusy": ("nimblevm.errors", "VMBusy"),
    "WeightsMismatch": ("nimblevm.errors", "WeightsMismatch"),
    "WeightsNotBound": ("nimblevm.errors", "WeightsNotBound"),
    "VirtualMachine": ("nimblevm.vm.vm", "VirtualMachine"),
    "build_info": ("nimblevm.vm.installation", "build_info"),
    "compile": ("nimblevm.driver", "compile"),
    "devices": ("nimblevm.devices", None),
    "dim_report": ("nimblevm.compiler.dim_report", "dim_report"),
    "errors": ("nimblevm.errors", None),
    "external": ("nimblevm.external", None),
    "load": ("nimblevm.bytecode.executable", "load"),
    "move": ("nimblevm.vm.tensor", "move"),
    "profiling": ("nimblevm.profiling", None),
    "relay": ("nimblevm.relay", None),
    "set_log": ("nimblevm.vm.logs", "set_log"),
    "tune": ("nimblevm.driver", "tune"),
}

__all__ = [
    "ADTValue", "Cancelled", "Device", "Executable", "Handle", "InvalidExecutable", "InvalidInput",
    "InvalidWeights", "KEEP", "LimitExceeded", "Limits", "NimbleError", "SignatureError", "Tensor", "VMBusy",
    "ValueMoved", "VirtualMachine", "WeightsMismatch", "WeightsNotBound", "__version__", "build_info", "compile",
    "devices", "dim_report", "errors", "external", "load", "move", "profiling", "relay", "set_log", "tune",
]  # fmt: skip


if not TYPE_CHECKING:  # else a misspelt name would have type Any

    def __getattr__(name: str) -> Any:
        try:
            module_name, attribute = _PUBLIC[name]
        except KeyError:
            raise AttributeError(f"module 'nimblevm' has no attribute {name!r}") from None
        module = importlib.import_module(module_name)
        value = module if attribute is None else getattr(module, attribute)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
