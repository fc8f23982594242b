"""The prelude as users of Relay know it: List, Option, Tree and the functions of prelude.rly.

TVM's tensor arrays, which its prelude also registers for every dtype, are not here.
"""

from __future__ import annotations

import functools
from importlib import resources

from nimblevm.relay.ir import Constructor, GlobalVar, IRModule
from nimblevm.relay.parser import parse_module
from nimblevm.relay.types import GlobalTypeVar


@functools.cache
def _standard() -> IRModule:
    """The parsed text. Its nodes are immutable and shared by all modules that load it."""
    text = resources.files("nimblevm.relay").joinpath("prelude.rly").read_text(encoding="utf-8")
    return parse_module(text, "prelude.rly")


def from_prelude(mod: IRModule, var: GlobalVar) -> bool:
    """Whether a function of a module is the prelude's, also after passes (which keep spans)."""
    standard = _standard()
    span = mod.function(var).span
    return span is not None and var in standard and standard.function(var).span == span


class Prelude:
    """Adds the prelude to `mod` (a new module if None) and finds its parts by name.

    Loading twice changes nothing. A type or function of the same name that is not the prelude's is a ValueError.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        standard = _standard()
        loaded = all(
            self.mod.type_definitions.get(t) is d for t, d in standard.type_definitions.items()
        )
        if not loaded:
            self._check_free(standard)
            for definition in standard.type_definitions.values():
                self.mod.add_type(definition)
        for var in standard:
            if var not in self.mod:
                self.mod[var] = standard.function(var)

    def _check_free(self, standard: IRModule) -> None:
        taken = [t.name_hint for t in standard.type_definitions if t in self.mod.type_definitions]
        taken += [f"@{var.name_hint}" for var in standard if var in self.mod]
        if taken:
            raise ValueError(
                f"the module already defines {', '.join(taken)}: load the prelude before, or rename them"
            )

    def get_name(self, canonical: str, dtype: str | None = None) -> str:
        """TVM's name of a part for a dtype; without dtype the name itself."""
        return canonical if dtype is None else f"{canonical}_{dtype}"

    def get_type(self, canonical: str, dtype: str | None = None) -> GlobalTypeVar:
        """The name of an ADT: `prelude.get_type("List")`; call it with type arguments."""
        return self.mod.get_global_type_var(self.get_name(canonical, dtype))

    def get_ctor(self, ty_name: str, canonical: str, dtype: str | None = None) -> Constructor:
        """A constructor: `prelude.get_ctor("List", "Cons")`."""
        return self.mod.get_constructor(
            self.get_name(ty_name, dtype), self.get_name(canonical, dtype)
        )

    def get_global_var(self, canonical: str, dtype: str | None = None) -> GlobalVar:
        """A function: `prelude.get_global_var("map")`."""
        return self.mod.get_global_var(self.get_name(canonical, dtype))


__all__ = ["Prelude", "from_prelude"]
