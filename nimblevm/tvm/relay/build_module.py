"""tvm.relay.build_module: build, executors and parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from nimblevm.arguments import explain_arguments, explained_methods
from nimblevm.devices.device import Device
from nimblevm.executor import Executor
from nimblevm.executor import create_executor as _create_executor
from nimblevm.relay.builder import bind
from nimblevm.relay.ir import Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.tvm.nd import NDArray
from nimblevm.tvm.relay import vm
from nimblevm.tvm.runtime.module import Module
from nimblevm.tvm.target import places


@explained_methods
class ExecutorFactory(Module):
    """What build() returns: `lib["default"](dev)` goes to contrib.graph_executor.GraphModule; or, as graph, lib and
    params, to contrib.graph_executor.create."""

    def __iter__(self) -> Iterator[Any]:
        """graph, lib, params = build(...): for graph_executor.create(graph, lib, dev)."""
        return iter((self.get_graph_json(), self, self.get_params()))

    @property
    def lib(self) -> Module:
        """The library of the three parts: this one."""
        return self

    @property
    def graph_json(self) -> str:
        """get_graph_json()."""
        return self.get_graph_json()

    @property
    def params(self) -> dict[str, NDArray]:
        """get_params()."""
        return self.get_params()

    def get_params(self) -> dict[str, NDArray]:
        """Nothing: parameters are constants of the program."""
        return {}

    def get_graph_json(self) -> str:
        """A text in JSON that names the inputs and says that the program is in the library: there is no graph."""
        names = [p.name for p in self.inner.function("main").params]
        return json.dumps({"format": "nimblevm", "inputs": names, "program": "in the library"})


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


def create_executor(
    kind: str = "debug",
    mod: IRModule | None = None,
    device: Device | str | None = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Executor:
    """nimblevm.executor.create_executor for a target of TVM's; "debug" evaluates on this machine, whatever it is.

    "graph" and "aot" turn arrays into the parameters' dtypes, as GraphModule.set_input does, and as they do in TVM.
    """
    place, compiled_for = places(target)
    made = _create_executor(kind, mod, device, place, params)
    return replace(made, compiled_for=compiled_for, converts=kind in ("graph", "aot"))


def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Expr:
    """A function with parameters replaced by constants; names that it does not have are passed over, as in TVM."""
    names = {p.name_hint for p in func.params}
    return bind(func, {key: value for key, value in params.items() if key in names})


__all__ = ["ExecutorFactory", "bind_params_by_name", "build", "create_executor"]

explain_arguments(globals(), __all__)
