"""tvm.relay.build_module: build, executors and parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nimblevm.arguments import explain_arguments, explained_methods
from nimblevm.bytecode import executable
from nimblevm.devices.device import Device
from nimblevm.errors import NotProvided
from nimblevm.executor import Executor
from nimblevm.executor import create_executor as _create_executor
from nimblevm.relay.builder import bind
from nimblevm.relay.ir import Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.tvm.contrib.graph_executor import OnDevice
from nimblevm.tvm.nd import NDArray
from nimblevm.tvm.relay import vm
from nimblevm.tvm.target import places


@explained_methods
class ExecutorFactory:
    """What build() returns: `lib["default"](dev)` goes to contrib.graph_executor.GraphModule.

    inner   this library's Executable
    """

    def __init__(self, inner: executable.Executable) -> None:
        self.inner = inner

    def __getitem__(self, name: str) -> Any:
        if name != "default":
            raise NotProvided(f"the one module is called 'default', not {name!r}")
        return lambda *devices: OnDevice(self.inner, devices[0] if devices else None)

    def __iter__(self) -> Iterator[Any]:
        raise NotProvided(
            "build() gives no (graph, lib, params) here: GraphModule(lib['default'](dev)) runs what it returned"
        )

    def get_params(self) -> dict[str, NDArray]:
        """Nothing: parameters are constants of the program."""
        return {}

    def get_graph_json(self) -> str:
        """NotProvided: programs are no graphs in JSON here."""
        raise NotProvided(
            "there is no graph in JSON here; lib.inner.disassemble() shows the instructions"
        )

    def export_library(self, file_name: str | Path, **_: Any) -> str:
        """Write the program's file, whatever the name ends with; tvm.runtime.load_module and nvm.load read it.
        Options such as fcompile decide nothing: no compiler is called."""
        self.inner.save(file_name)
        return str(file_name)


def build(
    ir_mod: IRModule | Function,
    target: Any = None,
    target_host: Any = None,
    executor: Any = None,
    runtime: Any = None,
    workspace_memory_pools: Any = None,
    constant_memory_pools: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> ExecutorFactory:
    """Compile for contrib.graph_executor. The virtual machine runs it, so that programs may have control flow too;
    executor, runtime, memory pools and the name decide nothing."""
    return ExecutorFactory(vm.compile(ir_mod, target, target_host, params).inner)


def load_module(path: str | Path, fmt: str = "") -> ExecutorFactory:
    """What export_library wrote; its machine code is trusted. fmt decides nothing: there is one format. Raises
    InvalidExecutable, FileError."""
    return ExecutorFactory(executable.load(path))


def create_executor(
    kind: str = "debug",
    mod: IRModule | None = None,
    device: Device | str | None = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Executor:
    """nimblevm.executor.create_executor for a target of TVM's; "debug" evaluates on this machine, whatever it is."""
    place, compiled_for = places(target)
    made = _create_executor(kind, mod, device, place, params)
    return replace(made, compiled_for=compiled_for)


def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Expr:
    """A function with parameters replaced by constants; names that it does not have are passed over, as in TVM."""
    names = {p.name_hint for p in func.params}
    return bind(func, {key: value for key, value in params.items() if key in names})


__all__ = ["ExecutorFactory", "bind_params_by_name", "build", "create_executor", "load_module"]

explain_arguments(globals(), __all__)
