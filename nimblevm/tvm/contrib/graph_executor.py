"""tvm.contrib.graph_executor: set_input, run, get_output over what relay.build made. The virtual machine runs it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.arguments import explained_methods, shown
from nimblevm.bytecode.executable import Executable
from nimblevm.devices.device import Device
from nimblevm.errors import InvalidInput, InvalidInputType
from nimblevm.relay.param_dict import load_param_dict
from nimblevm.tvm.nd import NDArray, array
from nimblevm.vm.vm import VirtualMachine


@dataclass(frozen=True, slots=True)
class OnDevice:
    """What `lib["default"](dev)` gives: a program and where it runs."""

    program: Executable
    device: Device | None


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Seconds a run."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.results))

    @property
    def median(self) -> float:
        return float(np.median(self.results))

    @property
    def min(self) -> float:
        return float(np.min(self.results))

    @property
    def max(self) -> float:
        return float(np.max(self.results))

    @property
    def std(self) -> float:
        return float(np.std(self.results))

    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        heads = " ".join(f"{f'{name} (ms)':>13}" for name in names)
        return f"{heads}\n" + " ".join(f"{getattr(self, name) * 1e3:13.4f}" for name in names)


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
        self._names = [p.name for p in module.program.function("main").params]
        self._inputs: dict[str, Any] = {}
        self._outputs: list[Any] | None = None

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Keep an input by name or number; by keywords several, of which those that main lacks are left aside (they
        were bound by relay.build)."""
        if key is not None:
            name = self._names[key] if isinstance(key, int) and key < len(self._names) else key
            if name not in self._names:
                raise InvalidInput(f"main has no input {key!r}; it has: {', '.join(self._names)}")
            params[str(name)] = value
        self._inputs.update({k: _copied(v) for k, v in params.items() if k in self._names})

    def run(self, **input_dict: Any) -> None:
        """Run on what was set; keywords are set first."""
        self.set_input(**input_dict)
        result = self._vm.invoke("main", **self._inputs)
        self._outputs = list(result) if isinstance(result, tuple) else [result]

    def get_num_inputs(self) -> int:
        return len(self._names)

    def get_num_outputs(self) -> int:
        """The fields of what the last run returned; 1 for no tuple."""
        return len(self._results())

    def get_input(self, index: int | str) -> NDArray | None:
        """What was set for an input by number or name; None if it was not."""
        name = self._names[index] if isinstance(index, int) else index
        found = self._inputs.get(name)
        return None if found is None else array(found)

    def get_input_index(self, name: str) -> int:
        """The number of an input, -1 if there is none of that name."""
        return self._names.index(name) if name in self._names else -1

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
        """Time `number` runs, `repeat` times; at least min_repeat_ms each time. kwargs are set first."""
        self.set_input(**kwargs)
        seconds = []
        for _ in range(repeat):
            start, runs = time.perf_counter(), 0
            while runs < number or (time.perf_counter() - start) * 1e3 < (min_repeat_ms or 0):
                self.run()
                runs += 1
            seconds.append((time.perf_counter() - start) / runs)
        return BenchmarkResult(tuple(seconds))

    def _results(self) -> list[Any]:
        if self._outputs is None:
            raise InvalidInput("nothing has run yet; call run() first")
        return self._outputs


def _copied(value: Any) -> Any:
    """An array of one's own: a later change of the caller's is no change of the input."""
    numpy = getattr(value, "numpy", None)
    return np.array(numpy() if callable(numpy) else value) if not np.isscalar(value) else value


def create(*args: Any, **kwargs: Any) -> GraphModule:
    """InvalidInput: programs are no graphs in JSON here."""
    raise InvalidInput(
        'there is no graph in JSON here: GraphModule(lib["default"](dev)) runs a program'
    )


__all__ = ["BenchmarkResult", "GraphModule", "OnDevice", "create"]
