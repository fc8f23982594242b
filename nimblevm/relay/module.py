"""IRModule: the functions and type definitions of a program, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, overload

from nimblevm.arguments import explained, shown
from nimblevm.errors import FunctionNotFound, InvalidInputType, TypeNotFound
from nimblevm.relay.ir import Constructor, Expr, Function, GlobalVar, TypeData, free_vars
from nimblevm.relay.libraries import add_library
from nimblevm.relay.node import HasText, meant
from nimblevm.relay.types import GlobalTypeVar


def _global_name(var: GlobalVar | str) -> str:
    if isinstance(var, str):
        return var
    if not isinstance(var, GlobalVar):
        raise InvalidInputType(
            f"a module's functions are named by a string or a GlobalVar, not by {shown(var)}"
        )
    return var.name_hint


class IRModule(HasText):
    """Functions and type definitions by name: a mutable mapping with TVM's methods.

    Passes copy it (`shallow_copy`) and never change their argument. Keys are GlobalVars; a string works too.
    """

    @explained
    def __init__(
        self,
        functions: Mapping[GlobalVar, Function] | None = None,
        type_definitions: Mapping[GlobalTypeVar, TypeData] | None = None,
    ) -> None:
        self._functions: dict[GlobalVar, Function] = {}
        self._globals: dict[str, GlobalVar] = {}
        self._types: dict[GlobalTypeVar, TypeData] = dict(type_definitions or {})
        for var, function in (functions or {}).items():
            self[var] = function

    @property
    def functions(self) -> Mapping[GlobalVar, Function]:
        return MappingProxyType(self._functions)

    @property
    def type_definitions(self) -> Mapping[GlobalTypeVar, TypeData]:
        return MappingProxyType(self._types)

    def _key(self, var: GlobalVar | str) -> GlobalVar:
        name = _global_name(var)
        if name not in self._globals:
            raise FunctionNotFound(
                f"the module has no function @{name}; it has: {', '.join(sorted(self._globals))}"
            )
        return self._globals[name]

    def __contains__(self, var: GlobalVar | str) -> bool:
        return _global_name(var) in self._globals

    @overload
    def __getitem__(self, var: GlobalVar | str) -> Function: ...
    @overload
    def __getitem__(self, var: GlobalTypeVar) -> TypeData: ...
    def __getitem__(self, var: GlobalVar | GlobalTypeVar | str) -> Function | TypeData:
        if isinstance(var, GlobalTypeVar):
            return self._types[self.get_global_type_var(var.name_hint)]
        return self._functions[self._key(var)]

    def function(self, var: GlobalVar | str) -> Function:
        """The function of that name (typed access for our own code); KeyError lists what there is."""
        return self._functions[self._key(var)]

    def __setitem__(self, var: GlobalVar | GlobalTypeVar | str, value: Expr | TypeData) -> None:
        """Define a function (what is none becomes one of its free variables) or a type."""
        if isinstance(value, TypeData):
            self._types[value.header] = value
            return
        if isinstance(var, GlobalTypeVar):
            raise TypeError(f"{var.name_hint} names a type; give a TypeData")
        value = meant(value)
        if not isinstance(value, Expr):
            raise TypeError(f"a module holds relay.Functions and TypeData, not {shown(value)}")
        if not isinstance(value, Function):
            value = Function(free_vars(value), value)
        name = _global_name(var)
        key = self._globals.get(name)
        if key is None:
            key = GlobalVar(name) if isinstance(var, str) else var
        elif isinstance(var, GlobalVar) and var is not key:
            # One object a name: the newer GlobalVar replaces the older one.
            del self._functions[key]
            key = var
        self._globals[name] = key
        self._functions[key] = value

    def __delitem__(self, var: GlobalVar | str) -> None:
        key = self._key(var)
        del self._functions[key]
        del self._globals[key.name_hint]

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def get_global_var(self, name: str) -> GlobalVar:
        return self._key(name)

    def get_global_vars(self) -> list[GlobalVar]:
        return list(self._functions)

    def get_global_type_var(self, name: str) -> GlobalTypeVar:
        var = GlobalTypeVar(name)
        if var not in self._types:
            raise TypeNotFound(
                f"the module has no type {name}; it has: {', '.join(t.name_hint for t in self._types)}"
            )
        return var

    def get_constructor(self, type_name: str, name: str) -> Constructor:
        for constructor in self._types[self.get_global_type_var(type_name)].constructors:
            if constructor.name_hint == name:
                return constructor
        raise TypeNotFound(f"type {type_name} has no constructor {name}")

    def get_type(self, name: str) -> tuple[Any, ...]:
        """As TVM: (type variable, constructor, constructor...)."""
        definition = self._types[self.get_global_type_var(name)]
        return (definition.header, *definition.constructors)

    @explained
    def add_type(self, definition: TypeData) -> None:
        self._types[definition.header] = definition

    @explained
    def update(self, other: IRModule) -> None:
        """Add all functions and types of `other`; equal names are replaced."""
        self._types.update(other._types)
        for var, function in other._functions.items():
            self[var] = function

    def import_from_std(self, file_rel_path: str) -> None:
        """Add a library of Relay's by its file's name: "prelude.rly", "nat.rly". FileError for another one."""
        add_library(self, file_rel_path)

    def shallow_copy(self) -> IRModule:
        return IRModule(self._functions, self._types)

    __copy__ = shallow_copy

    def __deepcopy__(self, memo: object) -> IRModule:
        return self.shallow_copy()  # what it holds is immutable

    @staticmethod
    @explained
    def from_expr(
        expr: Expr,
        functions: Mapping[GlobalVar, Function] | None = None,
        type_defs: Mapping[GlobalTypeVar, TypeData] | None = None,
    ) -> IRModule:
        """A module whose `main` is `expr` (wrapped in a function of its free variables if it is none)."""
        module = IRModule(functions, type_defs)
        module["main"] = expr
        return module


__all__ = ["IRModule"]
