"""Which global functions a program carries."""

from __future__ import annotations

from typing import Any

import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import CompileError

TEXT = """#[version = "0.0.5"]
def @helper(%xs: List[int32]) -> int32 { @sum(%xs) }
def @other(%n: int32) -> int32 { @other(%n - 1) }
def @main(%n: int32) { @helper(Cons(%n, Nil)) }
"""


def names(mod: relay.IRModule, **options: Any) -> set[str]:
    """Functions of the file that are the module's own (lambda_lift adds others)."""
    found = nvm.compile(mod, native=False, **options).functions
    return set(found) & {var.name_hint for var in mod.functions}


def test_functions_of_the_prelude_that_nothing_reaches_are_left_out() -> None:
    mod = relay.parse(TEXT, init_module=relay.Prelude().mod)
    assert names(mod) == {"main", "helper", "other", "sum", "foldl"}
    assert len(mod.functions) > 20, "the argument keeps its functions"


def test_entry_points() -> None:
    mod = relay.parse(TEXT, init_module=relay.Prelude().mod)
    assert names(mod, entry_points=["main"]) == {"main", "helper", "sum", "foldl"}
    assert names(mod, entry_points="main") == {"main", "helper", "sum", "foldl"}
    assert names(mod, entry_points=("other", "rev")) == {"other", "rev", "foldl"}
    with pytest.raises(CompileError, match="entry_points names mian, but the module has"):
        names(mod, entry_points=["mian"])


def test_the_prelude_alone_keeps_all() -> None:
    assert {"map", "tmap", "unfoldl"} <= names(relay.Prelude().mod)
