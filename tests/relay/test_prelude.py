"""The prelude: types, functions, their meaning by the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nimblevm import relay
from nimblevm.errors import RelaySyntaxError
from nimblevm.relay.interpreter import evaluate

HEADER = '#[version = "0.0.5"]\n'
INC = "fn (%x: int32) -> int32 { %x + 1 }"
SUB = "fn (%a: int32, %b: int32) -> int32 { %a - %b }"


def listed(*items: object) -> str:
    out = "Nil"
    for item in reversed(items):
        out = f"Cons({item}, {out})"
    return out


def run(expr: str) -> Any:
    text = f"{HEADER}def @main() {{ {expr} }}"
    return plain(evaluate(relay.parse(text, init_module=relay.Prelude().mod)))


def plain(value: Any) -> Any:
    """Lists as Python lists, other ADTs as (name, fields...), tensors as numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.item()
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    name, fields = value.constructor.name_hint, value.fields
    if name == "Nil":
        return []
    if name == "Cons":
        return [plain(fields[0]), *plain(fields[1])]
    return (name, *(plain(f) for f in fields))


def test_names() -> None:
    prelude = relay.Prelude()
    assert prelude.get_type("List") is relay.GlobalTypeVar("List")
    assert prelude.get_ctor("Option", "Some").name_hint == "Some"
    assert prelude.get_ctor("Tree", "Rose").belong_to is prelude.get_type("Tree")
    names = {
        "id", "compose", "flip", "hd", "tl", "nth", "length", "update", "map", "foldl", "foldr", "foldr1", "sum", "concat",
        "filter", "zip", "rev", "map_accumr", "map_accuml", "unfoldr", "unfoldl", "tmap", "size", "iterate",
    }  # fmt: skip
    assert {v.name_hint for v in prelude.mod} == names
    assert prelude.get_global_var("map") is prelude.mod.get_global_var("map")
    assert prelude.get_name("tensor_t", "float32") == "tensor_float32_t"


def test_loading_is_idempotent_and_adds_to_a_module() -> None:
    module = relay.parse_module(HEADER + "def @main() { () }")
    relay.Prelude(module)
    typed = relay.infer_type(module)
    relay.Prelude(typed)
    assert len(typed) == len(relay.Prelude(module).mod) == 25


def test_conflicts_are_refused() -> None:
    module = relay.parse_module(HEADER + "type List { End }\ndef @map() { () }")
    with pytest.raises(ValueError, match="List, @map"):
        relay.Prelude(module)


def test_text_round_trip() -> None:
    module = relay.Prelude().mod
    relay.assert_structural_equal(relay.parse_module(module.astext()), module)
    relay.check_well_formed(relay.infer_type(module))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("@id(3)", 3),
        (f"@compose({INC}, {INC})(1)", 3),
        (f"@flip({SUB})(1, 10)", 9),
        (f"@iterate({INC}, 5)(1)", 6),
        (f"@iterate({INC}, 0)(1)", 1),
        (f"@hd({listed(1, 2)})", 1),
        (f"@tl({listed(1, 2)})", [2]),
        (f"@nth({listed(5, 6, 7)}, 2)", 7),
        (f"@length({listed(5, 6, 7)})", 3),
        (f"@update({listed(5, 6, 7)}, 1, 9)", [5, 9, 7]),
        (f"@map({INC}, {listed(1, 2, 3)})", [2, 3, 4]),
        (f"@foldl({SUB}, 10, {listed(1, 2, 3)})", 4),
        (f"@foldr({SUB}, 10, {listed(1, 2, 3)})", 1 - (2 - (3 - 10))),
        (f"@foldr1({SUB}, {listed(1, 2, 3)})", 1 - (2 - 3)),
        (f"@sum({listed(1, 2, 3)})", 6),
        (f"@concat({listed(1, 2)}, {listed(3)})", [1, 2, 3]),
        (f"@filter(fn (%x: int32) -> bool {{ %x > 1 }}, {listed(1, 2, 0, 3)})", [2, 3]),
        (f"@zip({listed(1, 2)}, {listed('1f', '2f', '3f')})", [(1, 1.0), (2, 2.0)]),
        (f"@rev({listed(1, 2, 3)})", [3, 2, 1]),
        (
            f"@map_accumr(fn (%a: int32, %b: int32) {{ (%a + %b, %a) }}, 0, {listed(1, 2, 3)})",
            (6, [5, 3, 0]),
        ),
        (
            f"@map_accuml(fn (%a: int32, %b: int32) {{ (%a + %b, %a) }}, 0, {listed(1, 2, 3)})",
            (6, [3, 1, 0]),
        ),
        (
            "@unfoldr(fn (%n: int32) { if (%n == 0) { None } else { Some((%n - 1, %n)) } }, 3)",
            [3, 2, 1],
        ),
        (
            "@unfoldl(fn (%n: int32) { if (%n == 0) { None } else { Some((%n - 1, %n)) } }, 3)",
            [1, 2, 3],
        ),
        (f"@tmap({INC}, Rose(1, Cons(Rose(2, Nil), Nil)))", ("Rose", 2, [("Rose", 3, [])])),
        ("@size(Rose(1, Cons(Rose(2, Nil), Cons(Rose(3, Nil), Nil))))", 3),
    ],
)
def test_meaning(expr: str, expected: Any) -> None:
    assert run(expr) == expected


@pytest.mark.parametrize(
    "body",
    [
        "def @main(%x: int32) { Cons(%x, Nil) }",
        "def @main(%l: List[int32]) { %l }",
        "def @main(%x: int32) { @length(%x) }",
        "type L { N }\ndef @main(%l: L) { match (%l) { Nil => { 1 } } }",
    ],
)
def test_names_of_the_prelude_say_how_it_is_loaded(body: str) -> None:
    text = '#[version = "0.0.5"]\n' + body
    with pytest.raises(RelaySyntaxError, match="the prelude has it: parse"):
        relay.parse(text)


def test_text_over_the_prelude() -> None:
    text = '#[version = "0.0.5"]\ndef @main(%x: int32) { @length(Cons(%x, Nil)) }'
    mod = relay.parse(text, init_module=relay.prelude.Prelude().mod)
    assert evaluate(mod, (3,)) == 1
