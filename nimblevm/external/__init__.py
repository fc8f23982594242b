"""External codegen: backends that bring their own code, by name (docs/external-codegen.md).

Compile time: External, Region, Blob, register, registered, find. Run time: register_runtime, unregister_runtime,
load_runtime, runtimes. Names are looked up on first use, so that a deployment
runtime, which needs the runtimes alone, never loads the compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nimblevm.arguments import explained

if TYPE_CHECKING:
    from nimblevm.compiler.external import Blob, External, Region, register, registered
    from nimblevm.vm.external import load_runtime, register_runtime, runtimes, unregister_runtime

_COMPILE_TIME = ("Blob", "External", "Region", "register", "registered")
_RUN_TIME = ("load_runtime", "register_runtime", "runtimes", "unregister_runtime")
_BUILT_IN: dict[str, str] = {"blas": "nimblevm.external.blas", "vta": "nimblevm.external.vta"}
"""Backends that come with this package -> the module that registers them when it is imported."""

__all__ = [
    "Blob", "External", "Region", "find", "load_runtime", "register", "register_runtime", "registered", "runtimes",
    "unregister_runtime",
]  # fmt: skip


@explained
def find(name: str) -> External:
    """The backend of a name, one of this package's own or a registered one; CompileError, which says what there is."""
    module = importlib.import_module("nimblevm.compiler.external")
    if name in _BUILT_IN and name not in module.registered():
        importlib.import_module(_BUILT_IN[name])
    found: External = module.find(name, tuple(_BUILT_IN))
    return found


if not TYPE_CHECKING:  # else a misspelt name would have type Any

    def __getattr__(name: str) -> Any:
        if name not in (*_COMPILE_TIME, *_RUN_TIME):
            raise AttributeError(f"module 'nimblevm.external' has no attribute {name!r}")
        module = "nimblevm.compiler.external" if name in _COMPILE_TIME else "nimblevm.vm.external"
        value = getattr(importlib.import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
