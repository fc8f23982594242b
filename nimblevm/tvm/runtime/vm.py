"""tvm.runtime.vm: Executable and VirtualMachine with TVM's method names around those of this library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nimblevm.arguments import explained_methods, shown
from nimblevm.bytecode import executable
from nimblevm.bytecode.types import TupleType
from nimblevm.devices.device import Device
from nimblevm.errors import InvalidInput, InvalidInputType, NameNotProvided
from nimblevm.tvm.runtime.module import Module
from nimblevm.tvm.timing import BenchmarkResult, benchmark
from nimblevm.vm import vm
from nimblevm.vm.tensor import Tensor

_NONE_YET = object()


def _program(given: executable.Executable | Module) -> executable.Executable:
    return given.inner if isinstance(given, Module) else given


@explained_methods
class Executable:
    """A compiled program. `inner` is this library's Executable.

    TVM saves code and a library of kernels, and the virtual machine needs both. Here the code's bytes hold all, and
    so does the file that `lib` writes: one of the two is enough, whichever a script keeps.
    """

    def __init__(self, mod: executable.Executable | Module) -> None:
        self.inner = _program(mod)

    def save(self) -> tuple[bytearray, Module]:
        """(the file's bytes, lib): what load_exec takes."""
        return bytearray(self.inner.to_bytes()), self.lib

    @staticmethod
    def load_exec(bytecode: Any, lib: Module | None = None) -> Executable:
        """From the bytes of `save`; its machine code is trusted, and lib decides nothing. Raises InvalidExecutable."""
        if not isinstance(bytecode, bytes | bytearray | memoryview):
            raise InvalidInputType(
                f"load_exec takes the bytes that save() gave, not {shown(bytecode)}"
            )
        if not isinstance(lib, Module | None):
            raise InvalidInputType(
                f"load_exec takes the lib that save() gave or load_module read, or None, not {shown(lib)}"
            )
        return Executable(executable.load(bytes(bytecode)))

    def __getattr__(self, name: str) -> Any:
        if "late_bound_consts" in name:
            raise NameNotProvided(
                f"{name} is not here: nvm.compile(late_bound=, weights_file=) leaves weights out of the file, and "
                "nvm.load(path, weights=) brings them (docs/from-tvm.md)"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def lib(self) -> Module:
        """The program, for export_library."""
        return Module(self.inner)

    @property
    def mod(self) -> Module:
        """As lib."""
        return Module(self.inner)

    @property
    def bytecode(self) -> str:
        """The code as text."""
        return self.inner.disassemble()

    @property
    def stats(self) -> str:
        """Counts of functions and kernels."""
        return repr(self.inner)

    @property
    def primitive_ops(self) -> list[str]:
        """The names of the kernels."""
        return [kernel.name for kernel in self.inner.kernels]

    @property
    def globals(self) -> list[str]:
        """The names of the functions that may be invoked."""
        functions = self.inner.functions
        return [name for name in functions if functions[name].public]

    def get_function_params(self, func_name: str) -> list[str]:
        """The names of a function's parameters."""
        return [p.name for p in self.inner.function(func_name).params]


@explained_methods
class VirtualMachine:
    """Runs an Executable (this library's, too) or what load_module read.

    On a device, the first of a list: the host's part needs none. memory_cfg decides nothing: there is one kind of pool.
    """

    def __init__(
        self,
        exe: Executable | executable.Executable | Module,
        device: Device | str | list[Device],
        memory_cfg: Any = None,
    ) -> None:
        first = device[0] if isinstance(device, list) else device
        self.module = exe.inner if isinstance(exe, Executable) else _program(exe)
        self._device = first
        self._vm = vm.VirtualMachine(self.module, first)
        self._inputs: dict[str, dict[str, Any]] = {}
        self._outputs: Any = _NONE_YET

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep the arguments of a function for runs without arguments. InvalidInput if one is missing or extra."""
        names = [p.name for p in self.module.function(func_name).params]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        twice = len(given) < len(args) + len(kwargs)
        if len(args) > len(names) or set(given) != set(names) or twice:
            raise InvalidInput(f"@{func_name} takes {', '.join(names)}, got {', '.join(given)}")
        self._inputs[func_name] = given

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep one argument: (index or name, value), or name=value. InvalidInput if the function has none such."""
        given = [args, *kwargs.items()] if args else [*kwargs.items()]
        if len(given) != 1 or len(given[0]) != 2:
            raise InvalidInput(
                "set_one_input takes an index or a name and a value, or one name=value"
            )
        [(tag, value)] = given
        names = [p.name for p in self.module.function(func_name).params]
        name = names[tag] if isinstance(tag, int) and 0 <= tag < len(names) else tag
        if name not in names:
            raise InvalidInput(f"@{func_name} has no parameter {tag!r}; it has: {', '.join(names)}")
        self._inputs.setdefault(func_name, {})[name] = value

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Run a function with these arguments, or with those that set_input kept."""
        if not args and not kwargs:
            kwargs = self._inputs.get(func_name, {})
        self._outputs = self._vm.invoke(func_name, *args, **kwargs)
        return self._outputs

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run main."""
        return self.invoke("main", *args, **kwargs)

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Run a function; get_outputs has the result."""
        self.invoke(func_name, *args, **kwargs)

    def invoke_with_outputs(
        self, func_name: str, input_args: Mapping[str, Any], output_args: Sequence[Any]
    ) -> None:
        """Run a function on arguments by name and fill the caller's tensors or arrays, one a field of the result."""
        buffers = [out.numpy() if isinstance(out, Tensor) else out for out in output_args]
        is_tuple = isinstance(self.module.function(func_name).result, TupleType)
        outs = buffers if is_tuple or len(buffers) != 1 else buffers[0]
        self._outputs = self._vm.invoke_into(outs, func_name, **input_args)

    def get_outputs(self) -> list[Any]:
        """The fields of what the last call returned; one for a result that is no tuple. InvalidInput before a call."""
        kept = self._outputs
        if kept is _NONE_YET:
            raise InvalidInput("get_outputs: nothing has run yet; call invoke or invoke_stateful")
        return list(kept) if isinstance(kept, tuple) else [kept]

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """The position of a parameter, -1 if there is none of that name."""
        names = [p.name for p in self.module.function(func_name).params]
        return names.index(input_name) if input_name in names else -1

    def benchmark(
        self,
        device: Any,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Seconds a call, as tvm.timing.benchmark measures them; the arguments are those of invoke.

        Every call copies its arguments to where the program runs, so that all are end to end. device and
        limit_zero_time_iterations decide nothing: the machine has its device, and the clock is fine enough.
        """
        return benchmark(
            lambda: self.invoke(func_name, *args, **kwargs),
            repeat,
            number,
            min_repeat_ms,
            cooldown_interval_ms,
            repeats_to_cooldown,
        )


__all__ = ["Executable", "VirtualMachine"]
