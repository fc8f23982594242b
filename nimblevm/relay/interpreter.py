"""The oracle: evaluates an IRModule with the operators' numpy references, iteratively and without compiler code.

    Interpreter(mod).run("main", x, y)        evaluate(mod, (x, y))

The module may be inferred or not. Where it is, claims of inferred types (what comes out of data types,
references and closures) are checked too. machine.py does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.errors import FunctionNotFound, InvalidInput
from nimblevm.relay import ir
from nimblevm.relay.claims import check
from nimblevm.relay.dim_scope import DimScope
from nimblevm.relay.machine import Machine, Program, param_type
from nimblevm.relay.module import IRModule
from nimblevm.relay.values import Closure, Value, from_python


class Interpreter:
    """Evaluates functions of a module. The module must not change while this object lives."""

    def __init__(self, module: IRModule) -> None:
        self._program = Program(module)

    def run(self, name: str, *args: Any) -> Value:
        """Call a global function with arrays, Python scalars, tuples and ADTValues.

        Raises InvalidInput (number, kind, dtype, rank or a dim of an argument), ShapeMismatch (dims that do not
        agree later on), and what the program raises: MatchFailure, IndexOutOfRange, DivisionByZero, DimOverflow.
        """
        module = self._program.module
        if name not in module:
            known = ", ".join(sorted(var.name_hint for var in module))
            raise FunctionNotFound(f"the module has no function {name!r}; it has: {known}")
        function = module.function(name)
        if len(args) != len(function.params):
            names = ", ".join(p.name_hint for p in function.params)
            raise InvalidInput(
                f"{name}({names}) takes {len(function.params)} arguments, got {len(args)}"
            )
        values = [
            from_python(
                arg, param_type(param), f"{name}: parameter {param.name_hint!r}", self._resolve
            )
            for arg, param in zip(args, function.params, strict=True)
        ]
        claims = [
            (value, type_, f"{name}: parameter {param.name_hint!r}")
            for value, param in zip(values, function.params, strict=True)
            if (type_ := param_type(param)) is not None
        ]
        check(claims, DimScope(), error=InvalidInput)
        return Machine(self._program).call(Closure(function, None, name), values)

    def _resolve(self, constructor: Any) -> ir.Constructor:
        """The node for a constructor that a VM or a file knows by names."""
        return self._program.module.get_constructor(str(constructor.adt), str(constructor.name))


def evaluate(module: IRModule, args: Sequence[Any] = (), name: str = "main") -> Value:
    """The value of a global function of a module for arguments (see Interpreter.run)."""
    return Interpreter(module).run(name, *args)


__all__ = ["Interpreter", "evaluate"]
