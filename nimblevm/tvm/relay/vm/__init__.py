"""tvm.relay.vm: compile a module for the virtual machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nimblevm import driver
from nimblevm.arguments import explain_arguments, explained_methods
from nimblevm.relay.ir import Function
from nimblevm.relay.module import IRModule
from nimblevm.tvm.absent import VM, explain_absent
from nimblevm.tvm.relay.transform import passes_off
from nimblevm.tvm.runtime.vm import Executable
from nimblevm.tvm.target import places


def compile(
    mod: IRModule | Function,
    target: Any = None,
    target_host: Any = None,
    params: Mapping[str, Any] | None = None,
) -> Executable:
    """Compile for a target. Passes that the PassContext disables are left out; its level decides nothing."""
    compiler = VMCompiler()
    compiler.set_params(params or {})
    compiler.lower(mod, target, target_host)
    return compiler.get_exec()


@explained_methods
class VMCompiler:
    """compile() in TVM's steps: set_params, lower, codegen, get_exec; optimize shows what lower makes code of."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._exec: Executable | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Values for parameters of main, by name."""
        self._params = dict(params)

    def get_params(self) -> dict[str, Any]:
        """What set_params was given."""
        return dict(self._params)

    def optimize(
        self,
        mod: IRModule | Function,
        target: Any = None,
        target_host: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> tuple[IRModule, dict[str, Any]]:
        """(the module that lower makes instructions of, the parameters), to look at: lower takes the program itself.
        Params, where given, are set first."""
        if params:
            self.set_params(params)
        _, device = places(target, target_host)
        made = driver.optimize(mod, self._params, passes_off=passes_off(), device=device)
        return made, self.get_params()

    def lower(self, mod: IRModule | Function, target: Any = None, target_host: Any = None) -> None:
        """Compile."""
        place, device = places(target, target_host)
        inner = driver.compile(mod, self._params, place, passes_off=passes_off(), device=device)
        self._exec = Executable(inner)

    def codegen(self) -> None:
        """Nothing: lower made the kernels."""

    def get_exec(self) -> Executable:
        """The program; ValueError before lower."""
        if self._exec is None:
            raise ValueError("call lower(mod) first")
        return self._exec


__all__ = ["VMCompiler", "compile"]

explain_arguments(globals(), __all__)

__getattr__ = explain_absent(__name__, VM, __all__)
