"""One program on every path: the oracle, compiled in several ways, saved and loaded, without native code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import nimblevm as nvm
from nimblevm.errors import NimbleError
from nimblevm.relay.interpreter import evaluate
from tests.properties.compare import assert_same

OPTIONAL_PASSES = ("inline", "simplify", "fold_constant", "cse", "dead_code", "plan_memory")
PRODUCT_PASSES = (
    "specialize_loops",
    "split_inputs",
    "split_loops",
    "hoist_projection",
    "batch_leaves",
    "batch_levels",
    "join_inputs",
    "project_tables",
    "split_products",
    "combine_parallel_dense",
)
PLAIN: Mapping[str, Any] = {"passes_off": OPTIONAL_PASSES + PRODUCT_PASSES}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "verified": {"verify": True},
    "boxed": {"unbox": False},
    "plain": PLAIN,
    **{f"no {name}": {"passes_off": (name,)} for name in OPTIONAL_PASSES},
}


def module(program: str | nvm.relay.IRModule) -> nvm.relay.IRModule:
    """Text without its version line, or a module as it is."""
    if not isinstance(program, str):
        return program
    return nvm.relay.parse('#[version = "0.0.5"]\n' + program, source_name="program.rly")


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """The value, or the error."""
    try:
        return function(*args)
    except NimbleError as error:
        return error


def run_everywhere(
    program: str | nvm.relay.IRModule, *args: Any, name: str = "main", native: bool = True
) -> Any:
    """The oracle's value; AssertionError if any other path gives another one or fails."""
    mod = module(program)
    expected = evaluate(mod, args, name)
    for label, options in VARIANTS.items():
        blob = nvm.compile(mod, native=native and label == "default", **options).to_bytes()
        for executable in (nvm.load(blob), nvm.load(blob, native=False)):
            with nvm.VirtualMachine(executable) as vm:
                for _ in range(2):  # state left over from an earlier call would show
                    try:
                        assert_same(vm.invoke(name, *args), expected)
                    except (AssertionError, NimbleError) as error:
                        error.add_note(f"variant: {label}")
                        raise
    return expected


def fails_everywhere(
    program: str | nvm.relay.IRModule, error: type[NimbleError], *args: Any, name: str = "main"
) -> None:
    """AssertionError unless the oracle and all variants raise `error` (exactly this class)."""
    mod = module(program)
    found = {"oracle": outcome(evaluate, mod, args, name)}
    for label, options in VARIANTS.items():
        with nvm.VirtualMachine(nvm.compile(mod, native=label == "default", **options)) as vm:
            found[label] = outcome(vm.invoke, name, *args)
    wrong = {label: got for label, got in found.items() if type(got) is not error}
    assert not wrong, f"expected {error.__name__} everywhere, but {wrong}"
