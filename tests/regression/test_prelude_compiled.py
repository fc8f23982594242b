"""Every function of the prelude, compiled: against the oracle and plain Python, on short and very long lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import MatchFailure
from tests.properties.everywhere import fails_everywhere, run_everywhere

INC = "fn (%x: int32) -> int32 { %x + 1 }"
SUB = "fn (%a: int32, %b: int32) -> int32 { %a - %b }"
ODD = "fn (%x: int32) -> bool { mod(%x, 2) == 1 }"
PAIR = "fn (%s: int32, %x: int32) -> (int32, int32) { (%s + %x, %s * %x) }"
COUNT = "fn (%n: int32) -> Option[(int32, int32)] { if (%n > 5) { None } else { Some((%n + 1, %n * %n)) } }"
XS = "(fn () -> List[int32] { Cons(3, Cons(1, Cons(4, Cons(1, Cons(5, Nil))))) })()"
TREE = "Rose(1, Cons(Rose(2, Nil), Cons(Rose(3, Cons(Rose(4, Nil), Nil)), Nil)))"

CASES: dict[str, tuple[str, Any]] = {
    "id": ("@id(3)", 3),
    "compose": (f"@compose({INC}, {INC})(1)", 3),
    "flip": (f"@flip({SUB})(1, 10)", 9),
    "iterate": (f"@iterate({INC}, 4)(1)", 5),
    "hd": (f"@hd({XS})", 3),
    "tl": (f"@tl({XS})", [1, 4, 1, 5]),
    "nth": (f"@nth({XS}, 2)", 4),
    "length": (f"@length({XS})", 5),
    "update": (f"@update({XS}, 1, 9)", [3, 9, 4, 1, 5]),
    "map": (f"@map({INC}, {XS})", [4, 2, 5, 2, 6]),
    "foldl": (f"@foldl({SUB}, 0, {XS})", -14),
    "foldr": (f"@foldr({SUB}, 0, {XS})", 3 - (1 - (4 - (1 - 5)))),
    "foldr1": (f"@foldr1({SUB}, {XS})", 3 - (1 - (4 - (1 - 5)))),
    "sum": (f"@sum({XS})", 14),
    "concat": (f"@concat({XS}, @tl({XS}))", [3, 1, 4, 1, 5, 1, 4, 1, 5]),
    "filter": (f"@filter({ODD}, {XS})", [3, 1, 1, 5]),
    "zip": (f"@zip({XS}, @tl({XS}))", [(3, 1), (1, 4), (4, 1), (1, 5)]),
    "rev": (f"@rev({XS})", [5, 1, 4, 1, 3]),
    "map_accumr": (f"@map_accumr({PAIR}, 1, {XS})", (15, [36, 11, 28, 6, 5])),
    "map_accuml": (f"@map_accuml({PAIR}, 1, {XS})", (15, [50, 9, 20, 4, 3])),
    "unfoldr": (f"@unfoldr({COUNT}, 2)", [4, 9, 16, 25]),
    "unfoldl": (f"@unfoldl({COUNT}, 2)", [25, 16, 9, 4]),
    "tmap": (f"@size(@tmap({INC}, {TREE}))", 4),
    "size": (f"@size({TREE})", 4),
}


def module(body: str) -> relay.IRModule:
    return relay.parse(f'#[version = "0.0.5"]\n{body}', init_module=relay.Prelude().mod)


def plain(value: Any) -> Any:
    """Lists as Python lists, tensors as numbers. Lists may be long."""
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    if not hasattr(value, "constructor"):
        return np.asarray(value).item()
    items = []
    while value.fields:
        items.append(plain(value.fields[0]))
        value = value.fields[1]
    return items


@pytest.mark.parametrize("name", CASES)
def test_function(name: str) -> None:
    expr, expected = CASES[name]
    assert plain(run_everywhere(module(f"def @main() {{ {expr} }}"))) == expected


def test_every_function_has_a_case() -> None:
    assert {var.name_hint for var in relay.Prelude().mod} == set(CASES)


@pytest.mark.parametrize(
    "expr", ["@hd(%xs)", "@hd(@tl(%xs))", "@nth(%xs, 3)", "@foldr1(%f, %xs)", "@update(%xs, 0, 1)"]
)
def test_parts_that_an_empty_list_lacks(expr: str) -> None:
    text = f"def @main() {{ let %f = {SUB}; let %xs = (fn () -> List[int32] {{ Nil }})(); {expr} }}"
    fails_everywhere(module(text), MatchFailure)


LONG = 100_000
LONG_CASES: dict[str, tuple[str, Callable[[list[int]], Any]]] = {
    "rev": ("@rev(%xs)", lambda xs: xs[::-1]),
    "foldl": (f"@foldl({SUB}, 0, %xs)", lambda xs: -sum(xs)),
    "length": ("@length(%xs)", len),
    "nth": (f"@nth(%xs, {LONG - 1})", lambda xs: xs[-1]),
    "map": (f"@map({INC}, %xs)", lambda xs: [x + 1 for x in xs]),
    "concat": ("@concat(%xs, %xs)", lambda xs: xs + xs),
    "filter": (f"@filter({ODD}, %xs)", lambda xs: [x for x in xs if x % 2]),
    "zip": ("@length(@zip(%xs, @tl(%xs)))", lambda xs: len(xs) - 1),
    "foldr": ("@foldr(fn (%x: int32, %s: int32) -> int32 { %x - %s }, 0, %xs)", lambda xs: sum(xs[::2]) - sum(xs[1::2])),
    "map_accumr": (f"@map_accumr({PAIR}, 1, %xs).0", lambda xs: 1 + sum(xs)),
}  # fmt: skip


@pytest.fixture(scope="module")
def long_vm() -> Any:
    functions = [
        f"def @{name}_case(%xs: List[int32]) {{ {expr} }}" for name, (expr, _) in LONG_CASES.items()
    ]
    with nvm.VirtualMachine(nvm.compile(module("\n".join(functions)))) as vm:
        yield vm


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG_CASES)
def test_long_lists(name: str, long_vm: nvm.VirtualMachine) -> None:
    items = [int(x) for x in np.random.default_rng(0).integers(0, 10, LONG)]
    cons, nil = (long_vm.executable.constructor(c) for c in ("Cons", "Nil"))
    xs = nil()
    for item in reversed(items):
        xs = cons(np.int32(item), xs)
    got = long_vm.invoke(f"{name}_case", xs)
    assert plain(got) == LONG_CASES[name][1](items)
