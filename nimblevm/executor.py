"""Evaluate Relay expressions: by the interpreter ("debug") or by compiling and running them ("vm").

create_executor("vm", mod).evaluate()(x)              # function main
create_executor("debug", mod).evaluate(expr)          # the value of an expression
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from nimblevm.arguments import explained, refuse_mask
from nimblevm.bytecode.types import TensorType
from nimblevm.devices.device import Device
from nimblevm.driver import bind_params, compile
from nimblevm.relay.builder import bind
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import Interpreter
from nimblevm.relay.ir import Constant, Expr, Function, GlobalVar, free_vars
from nimblevm.relay.module import IRModule
from nimblevm.relay.values import ADTValue
from nimblevm.vm.tensor import Tensor
from nimblevm.vm.vm import VirtualMachine

KINDS = ("debug", "vm")


@dataclass(frozen=True, slots=True)
class Executor:
    """Evaluates expressions in a module; see create_executor."""

    kind: str
    mod: IRModule
    device: str | Device = "cpu"
    target: str = "native"
    compiled_for: str | None = None  # the devices of compile(device=)
    converts: bool = False
    """Whether arrays become the parameter's dtype; else one of another dtype is refused."""

    @explained
    def evaluate(self, expr: Expr | None = None, binds: Mapping[Any, Any] | None = None) -> Any:
        """The value of `expr`, or for a function (None: main) a callable that takes its arguments.

        binds   variables of `expr` that are free, or parameters, and their values
        Tensors are Tensor objects, tuples Python tuples. Raises what compile() and run() raise; ValueError
        for free variables without a value.
        """
        mod = self.mod
        if expr is None:
            return self._callable(mod, "main")
        if isinstance(expr, GlobalVar):
            return self._callable(mod, expr.name_hint)
        if binds:
            expr = bind(expr, dict(binds))
        name = "main" if "main" not in mod else "evaluated"
        mod = mod.shallow_copy()
        if isinstance(expr, Function):
            mod[name] = expr
            return self._callable(mod, name)
        unbound = free_vars(expr)
        if unbound:
            names = ", ".join(f"%{v.name_hint}" for v in unbound)
            raise ValueError(f"the expression has no value for {names}; give them in binds")
        mod[name] = Function((), expr)
        return self._callable(mod, name)()

    def _callable(self, mod: IRModule, name: str) -> Callable[..., Any]:
        params = [p.name_hint for p in mod.function(name).params]
        if self.kind == "vm":
            program = compile(
                mod, target=self.target, entry_points=[name], device=self.compiled_for
            )
            machine = VirtualMachine(program, self.device)
            known = {p.name: p.type for p in program.function(name).params} if self.converts else {}
            dtypes = {key: t.dtype for key, t in known.items() if isinstance(t, TensorType)}

            def run(*args: Any, **named: Any) -> Any:
                given = [
                    _value(a, dtypes.get(p)) for p, a in zip_longest(params[: len(args)], args)
                ]
                return machine.invoke(
                    name,
                    *given,
                    **{key: _value(arg, dtypes.get(key)) for key, arg in named.items()},
                )

            return run
        interpreter = Interpreter(infer_type(mod))

        def call(*args: Any, **named: Any) -> Any:
            unknown = set(named) - set(params[len(args) :])
            if unknown:
                raise TypeError(f"@{name} has no other parameter {', '.join(sorted(unknown))}")
            rest = [named[p] for p in params[len(args) :] if p in named]
            return _tensors(interpreter.run(name, *map(_value, (*args, *rest))))

        return call


def create_executor(
    kind: str = "debug",
    mod: IRModule | None = None,
    device: str | Device | None = None,
    target: str = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Executor:
    """An Executor of a kind: "debug" evaluates with numpy, "vm" compiles.

    params   parameters of main by name, bound as constants
    "graph" and "aot" are "vm": it runs what they run in TVM, programs without control flow, too. Raises ValueError for
    another kind.
    """
    if kind in ("graph", "aot"):
        kind = "vm"
    if kind not in KINDS:
        raise ValueError(
            f"no executor is called {kind!r}; there are {', '.join(KINDS)}, graph and aot"
        )
    mod = IRModule() if mod is None else mod
    if params:
        mod = bind_params(mod, params)
    return Executor(kind, mod, device or "cpu", target)


def _value(argument: Any, dtype: str | None = None) -> Any:
    """Of a relay.const its array; other arguments are values themselves, numpy's arrays of this dtype."""
    if dtype is not None and isinstance(argument, np.ndarray) and argument.dtype.kind in "biuf":
        refuse_mask(argument, lambda: "an argument")
        return argument.astype(dtype)
    return argument.data if isinstance(argument, Constant) else argument


def _tensors(value: Any) -> Any:
    """An interpreter's value with arrays as Tensors. Iterative: lists may be long."""
    done: list[Any] = []
    stack: list[tuple[Any, bool]] = [(value, False)]
    while stack:
        item, ready = stack.pop()
        if isinstance(item, np.ndarray):
            done.append(Tensor(item))
        elif not isinstance(item, tuple | ADTValue):
            done.append(item)
        else:
            parts = item if isinstance(item, tuple) else item.fields
            if not ready:
                stack.append((item, True))
                stack.extend((part, False) for part in reversed(parts))
                continue
            new = tuple(done[len(done) - len(parts) :])
            del done[len(done) - len(parts) :]
            done.append(new if isinstance(item, tuple) else ADTValue(item.constructor, new))
    return done[0]


__all__ = ["Executor", "create_executor"]
