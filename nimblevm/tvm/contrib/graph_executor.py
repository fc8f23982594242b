"""tvm.contrib.graph_executor: set_input, run, get_output over what relay.build made. The virtual machine runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nimblevm.arguments import explained_methods, refuse_mask, shown
from nimblevm.bytecode.types import TensorType
from nimblevm.devices.device import Device
from nimblevm.errors import InvalidInput, InvalidInputType
from nimblevm.relay.param_dict import load_param_dict
from nimblevm.tvm.nd import NDArray, array
from nimblevm.tvm.runtime.module import Module, OnDevice
from nimblevm.tvm.timing import BenchmarkResult, benchmark
from nimblevm.vm.vm import VirtualMachine


@explained_methods
class GraphModule:
    """Runs function main. Inputs are kept from run to run; those that were never set are an InvalidInput of run().

    module   lib["default"](dev) of what relay.build returned
    """

    def __init__(self, module: OnDevice) -> None:
        if not isinstance(module, OnDevice):
            raise InvalidInputType(
                f'GraphModule takes lib["default"](dev) of what relay.build returned, not {shown(module)}'
            )
        self._vm = VirtualMachine(module.program, module.device)
        params = module.program.function("main").params
        self._names = [p.name for p in params]
        tensors = {p.name: p.type for p in params if isinstance(p.type, TensorType)}
        self._dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
        self._shapes = {
            name: tuple([d if isinstance(d, int) else -1 for d in tensor.dims])
            for name, tensor in tensors.items()
        }
        self._inputs: dict[str, Any] = {}
        self._outputs: list[Any] | None = None

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Keep an input by name or number; by keywords several, of which those that main lacks are left aside (they
        were bound by relay.build). Arrays, lists and numbers become the input's dtype, as in TVM; a tensor of
        tvm.nd must have it already."""
        if key is not None:
            params[self._name(key)] = value
        known = {k: v for k, v in params.items() if k in self._names}
        self._inputs.update({k: _copied(k, v, self._dtypes.get(k)) for k, v in known.items()})

    def run(self, **input_dict: Any) -> None:
        """Run on what was set; keywords are set first."""
        self.set_input(**input_dict)
        self._outputs = _leaves(self._vm.invoke("main", **self._inputs))

    def get_num_inputs(self) -> int:
        return len(self._names)

    def get_num_outputs(self) -> int:
        """The tensors of what the last run returned, those of tuples in tuples too; 1 for no tuple."""
        return len(self._results())

    def get_input(self, index: int | str) -> NDArray | None:
        """What was set for an input by number or name; None if it was not. InvalidInput if main has no such input."""
        found = self._inputs.get(self._name(index))
        return None if found is None else array(found)

    def get_input_index(self, name: str) -> int:
        """The number of an input, -1 if there is none of that name."""
        return self._names.index(name) if name in self._names else -1

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """(shapes, dtypes) of inputs that are tensors, by name; -1 is a size that the run decides."""
        return dict(self._shapes), dict(self._dtypes)

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """A result of the last run; copied into `out` where that is given."""
        results = self._results()
        if not -len(results) <= index < len(results):
            raise InvalidInput(
                f"the last run has {len(results)} outputs, so there is no number {index}"
            )
        found: NDArray = results[index]
        return found if out is None else found.copyto(out)

    def load_params(self, params_bytes: bytes) -> None:
        """set_input of what relay.save_param_dict wrote."""
        self.set_input(None, None, **load_param_dict(params_bytes))

    def benchmark(
        self,
        device: Device,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Seconds a run, as tvm.timing.benchmark measures them; kwargs are set first.

        Every run copies its arguments to where the program runs, so that all are end to end. func_name must be "run"
        (InvalidInput); device and limit_zero_time_iterations decide nothing: the module has its device, and the clock
        is fine enough.
        """
        if func_name != "run":
            raise InvalidInput(f'benchmark: func_name must be "run", not {func_name!r}')
        self.set_input(**kwargs)
        return benchmark(
            self.run, repeat, number, min_repeat_ms, cooldown_interval_ms, repeats_to_cooldown
        )

    def _name(self, key: int | str) -> str:
        """The name of an input by number or name."""
        name = self._names[key] if isinstance(key, int) and 0 <= key < len(self._names) else key
        if name not in self._names:
            raise InvalidInput(f"main has no input {key!r}; it has: {', '.join(self._names)}")
        return str(name)

    def _results(self) -> list[Any]:
        if self._outputs is None:
            raise InvalidInput("nothing has run yet; call run() first")
        return self._outputs


def _leaves(result: Any) -> list[Any]:
    """The fields of a tuple, with those of tuples in it, from left to right."""
    found, stack = [], [result]
    while stack:
        value = stack.pop()
        if isinstance(value, tuple):
            stack.extend(reversed(value))
        else:
            found.append(value)
    return found


def _copied(name: str, value: Any, dtype: str | None) -> Any:
    """An array of one's own: a later change of the caller's is no change of the input."""
    refuse_mask(value, lambda: f"input {name}")
    if isinstance(value, NDArray):
        return np.array(value.numpy())
    if dtype is None:
        return value
    numpy = getattr(value, "numpy", None)
    try:
        found = np.asarray(numpy() if callable(numpy) else value)
        if found.dtype.kind not in "biuf":
            raise TypeError(f"its elements are {found.dtype}")
        return found.astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputType(
            f"input {name}: {shown(value)} is no array of numbers: {error}"
        ) from None


def create(
    graph_json_str: str, libmod: Module, device: Device | Sequence[Device] | None = None
) -> GraphModule:
    """A GraphModule of `graph, lib, params = relay.build(...)`, or of such a library that load_module read. The library
    is the whole program, so that the graph decides nothing."""
    if not isinstance(libmod, Module):
        raise InvalidInputType(
            f"create takes the library of relay.build or load_module, not {shown(libmod)}"
        )
    return GraphModule(
        libmod["default"](*(device if isinstance(device, list | tuple) else [device]))
    )


__all__ = ["BenchmarkResult", "GraphModule", "create"]
