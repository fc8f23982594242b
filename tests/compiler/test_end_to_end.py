"""Whole programs: compiled in several ways = the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import DivisionByZero, MatchFailure, NimbleError, ShapeMismatch
from nimblevm.relay.interpreter import evaluate
from tests.properties.compare import assert_same

HEADER = '#[version = "0.0.5"]\n'
LIST = "type L { C(Tensor[(?, 4), float32], L), N }\n"
GENERIC = "type List[A] { Cons(A, List[A]), Nil }\n"
X = np.arange(8, dtype="float32").reshape(2, 4)

# name -> (program, arguments of main)
CASES: dict[str, tuple[str, list[Any]]] = {
    "scalars": ('def @main(%x: int32, %y: int32) { (%x + %y * 3, %x < %y, floor_divide(%x, %y), mod(%x, %y), cast(%x, dtype="int8")) }', [-7, 300]),
    "scalar_unary": ("def @main(%x: int32, %y: int32) { (where(%x < %y, %x, %y), negative(%x), abs(%y), logical_not(%x < %y), minimum(%x, %y)) }", [-7, -3]),
    "wraps": ('def @main(%x: int8) { (%x + 100i8, abs(%x), cast(%x, dtype="uint8")) }', [np.int8(-128)]),
    "tail_loop": ('def @loop(%i: int32, %s: int64) -> int64 { if (%i < 100) { @loop(%i + 1, %s + cast(%i, dtype="int64")) } else { %s } }\ndef @main(%x: int32) { @loop(%x, 0i64) }', [3]),
    "closure": ("def @twice(%f: fn (int32) -> int32, %x: int32) -> int32 { %f(%f(%x)) }\ndef @main(%x: int32, %k: int32) { let %g = fn (%a: int32) -> int32 { %a * %k + 1 }; (@twice(%g, %x), %g(%x)) }", [5, 7]),
    "closure_result": ("def @adder(%k: int32) -> fn (int32) -> int32 { fn (%a: int32) -> int32 { %a + %k } }\ndef @main(%n: int32) { let %f = @adder(%n); let %g = @adder(2); %f(%g(1)) }", [7]),
    "global_value": ("def @inc(%a: int32) -> int32 { %a + 1 }\ndef @ap(%f: fn (int32) -> int32, %x: int32) -> int32 { %f(%x) }\ndef @main(%n: int32) { @ap(@inc, %n) }", [7]),
    "constructor_value": ("type O { S(int32), Z }\ndef @ap(%f: fn (int32) -> O, %x: int32) -> O { %f(%x) }\ndef @main(%n: int32) { @ap(S, %n) }", [7]),
    "constructor_renamed": ("type O { S(int32), Z }\ndef @main(%n: int32) { let %c = S; (%c(%n), %c(2)) }", [7]),
    "local_recursion": ("def @main(%n: int32) { let %f = fn (%i: int32) -> int32 { if (%i < 2) { 1 } else { %f(%i - 1) + %f(%i - 2) } }; %f(%n) }", [10]),
    "nested_recursion": ("def @main(%n: int32, %x: Tensor[(?k, 4), float32]) { let %f = fn (%i: int32) -> Tensor[(?k, 4), float32] { let %g = fn (%j: int32) -> Tensor[(?k, 4), float32] { if (%j < 2) { %x } else { tanh(%f(%j - 2)) } }; if (%i < 1) { %x } else { %g(%i - 1) + %x } }; %f(%n) }", [7, X]),
    "mutual_recursion": ("def @even(%n: int32) -> bool { if (%n == 0) { True } else { @odd(%n - 1) } }\ndef @odd(%n: int32) -> bool { if (%n == 0) { False } else { @even(%n - 1) } }\ndef @main(%n: int32) { @even(%n) }", [7]),
    "split": ("def @main(%x: Tensor[(2, 4), float32]) { let %t = split(%x, indices_or_sections=2, axis=1); (%t.1, %t.0 + %t.1, %t) }", [X]),
    "join_of_dims_true": ("def @main(%x: Tensor[(?n, 4), float32], %c: bool) { let %y = if (%c) { tanh(%x) } else { concatenate((%x, %x), axis=0) }; %y + %y }", [X, True]),
    "join_of_dims_false": ("def @main(%x: Tensor[(?n, 4), float32], %c: bool) { let %y = if (%c) { tanh(%x) } else { concatenate((%x, %x), axis=0) }; %y + %y }", [X, False]),
    "ref": ("def @main(%x: int32) { let %r = ref(%x); let %u = ref_write(%r, ref_read(%r) + 1); let %v = ref_write(%r, ref_read(%r) * 2); ref_read(%r) }", [4]),
    "ref_in_branch": ("def @main(%x: int32, %c: bool) { let %r = ref(0); let %z = if (%c) { ref_write(%r, %x) } else { () }; ref_read(%r) }", [5, True]),
    "nested_patterns": (LIST + 'def @sum(%l: L) -> Tensor[(?, 4), float32] { match (%l) { C(%h, N) => %h, C(%h, C(%g, _)) => %h + %g, N => zeros(shape=[1, 4], dtype="float32") } }\ndef @main(%x: Tensor[(?n, 4), float32]) { (@sum(N), @sum(C(%x, N)), @sum(C(%x, C(tanh(%x), N)))) }', [X]),
    "tuple_patterns": ("def @main(%n: int32, %x: float32) { let %t = ((%n, %x), %n + 1); match (%t) { ((%a, %b), %c) => (%a + %c, %b) } }", [7, np.float32(2)]),
    "generic_map": (GENERIC + "def @map[A, B](%f: fn (A) -> B, %l: List[A]) -> List[B] { match (%l) { Cons(%h, %t) => Cons(%f(%h), @map(%f, %t)), Nil => Nil } }\ndef @main(%x: int32) { let %one = 1; @map(fn (%a: int32) -> int32 { %a + %one }, Cons(%x, Cons(2, Nil))) }", [4]),
    "shared_dag": ("def @main(%x: Tensor[(?n, 4), float32], %c: bool) { %0 = tanh(%x); %1 = %0 + %0; if (%c) { %1 * %0 } else { %1 } }", [X, True]),
    "broadcast_of_unknowns": ("def @main(%x: Tensor[(?n, 4), float32], %y: Tensor[(?m, 4), float32]) { %x + %y }", [X, X[:1]]),
    "views": ("def @main(%x: Tensor[(?n, 4), float32]) { (reshape(%x, newshape=[-1]), expand_dims(%x, axis=0), reshape(tanh(%x), newshape=[2, -1])) }", [X]),
    "checked_dense": ("def @main(%x: Tensor[(?n, ?m), float32], %w: Tensor[(3, ?k), float32]) { nn.dense(%x, %w) }", [X, np.ones((3, 4), "float32")]),
    "constants": ('def @main(%x: Tensor[(2, 4), float32]) { let %c = ones(shape=[2, 4], dtype="float32"); (%x * 2f + %c, True, 3i64) }', [X]),
    "dim_values": ("def @main(%x: Tensor[(?n, 4), float32]) { (take(shape_of(%x), 0), shape_of(%x)) }", [X]),
    "dead_in_later_clause": ("type E { A(int32), B(Tensor[(?, 4), float32], Tensor[(?, 4), float32]) }\ndef @f(%e: E, %x: Tensor[(?n, 4), float32]) -> Tensor[(?, 4), float32] { match (%e) { A(%i) => tanh(%x), B(%p, %q) => %p + %q } }\ndef @main(%x: Tensor[(?n, 4), float32]) { let %y = tanh(%x); (@f(A(1), %y), @f(B(%x, %y), %y)) }", [X]),
    "arange": ('def @main(%n: float32, %i: int32) { let %a = arange(0f, %n, 1f, dtype="float32"); (%a + %a, arange(%i, -3, -2, dtype="int32")) }', [np.float32(4.5), 4]),
    "captured_dim": ("def @ap(%f: fn (Tensor[(?, 4), float32]) -> Tensor[(?, 4), float32], %x: Tensor[(?n, 4), float32]) -> Tensor[(?, 4), float32] { %f(%x) }\ndef @main(%x: Tensor[(?n, 4), float32]) { @ap(fn (%y: Tensor[(?n, 4), float32]) -> Tensor[(?n, 4), float32] { tanh(%y) + %y }, %x) }", [X]),
}  # fmt: skip

OPTIONS: dict[str, dict[str, Any]] = {
    "native": {"verify": True},
    "ir": {"native": False},
    "boxed": {"native": False, "unbox": False},
    "unplanned": {"native": False, "plan_memory": False},
    "plain": {"native": False, "passes_off": ("simplify", "fold_constant", "cse", "dead_code")},
}


def arguments(args: list[Any]) -> list[Any]:
    types = {int: "int32", bool: "bool"}
    return [np.asarray(a, types.get(type(a))) for a in args]


@pytest.mark.parametrize("name", CASES)
def test_program(name: str) -> None:
    text, args = CASES[name]
    mod = nvm.relay.parse(HEADER + text, source_name=name)
    expected = evaluate(mod, arguments(args))
    for options in OPTIONS.values():
        with nvm.VirtualMachine(nvm.compile(mod, **options)) as vm:
            assert_same(vm.run(*args), expected)


FAILURES: dict[str, tuple[str, list[Any], type[NimbleError], str]] = {
    "dense": ("def @main(%x: Tensor[(?n, ?m), float32], %w: Tensor[(3, ?k), float32]) { nn.dense(%x, %w) }", [X, np.ones((3, 5), "float32")], ShapeMismatch, "nn.dense"),
    "broadcast": ("def @main(%x: Tensor[(?n, 4), float32], %y: Tensor[(?m, 4), float32]) { %x + %y }", [X, X[[0, 0, 0]]], ShapeMismatch, ""),
    "adt_field": ("type B { B(Tensor[(2, 4), float32]) }\ndef @get(%b: B) -> Tensor[(2, 4), float32] { match (%b) { B(%x) => %x } }\ndef @main(%x: Tensor[(?n, 4), float32]) { @get(B(%x)) }", [X[:1]], ShapeMismatch, "field 0 of B"),
    "ref": ("def @f(%r: ref(Tensor[(2, 4), float32])) -> Tensor[(2, 4), float32] { tanh(ref_read(%r)) }\ndef @main(%x: Tensor[(?n, 4), float32]) { let %r = ref(%x); @f(%r) }", [X[:1]], ShapeMismatch, "reference"),
    "closure_result": ("def @f(%g: fn (int32) -> Tensor[(2, 4), float32]) -> Tensor[(2, 4), float32] { tanh(%g(1)) }\ndef @main(%x: Tensor[(?n, 4), float32]) { @f(fn (%i: int32) -> Tensor[(?, 4), float32] { %x }) }", [X[:1]], ShapeMismatch, "closure"),
    "closure_param": ("def @f(%g: fn (Tensor[(?, 4), float32]) -> Tensor[(?, 4), float32], %x: Tensor[(?n, 4), float32]) -> Tensor[(?, 4), float32] { %g(%x) }\ndef @main(%x: Tensor[(?n, 4), float32]) { @f(fn (%y: Tensor[(2, 4), float32]) -> Tensor[(2, 4), float32] { tanh(%y) }, %x) }", [X[:1]], ShapeMismatch, "%y"),
    "argument": ("def @f(%y: Tensor[(2, 4), float32]) -> Tensor[(2, 4), float32] { tanh(%y) }\ndef @main(%x: Tensor[(?n, 4), float32]) { @f(%x) }", [X[:1]], ShapeMismatch, "%y"),
    "repeated_dim": ("def @f(%x: Tensor[(?n, 4), float32], %y: Tensor[(?n, 4), float32]) -> Tensor[(?n, 4), float32] { %x + %y }\ndef @main(%x: Tensor[(?n, 4), float32], %y: Tensor[(?m, 4), float32]) { @f(%x, %y) }", [X, X[:1]], ShapeMismatch, "%y"),
    "result": ("def @f(%x: Tensor[(?n, 4), float32]) -> Tensor[(3, 4), float32] { tanh(%x) }\ndef @main(%x: Tensor[(?n, 4), float32]) { @f(%x) }", [X], ShapeMismatch, "result of @f"),
    "let": ("def @main(%x: Tensor[(?n, 4), float32]) { let %y: Tensor[(3, 4), float32] = tanh(%x); %y }", [X], ShapeMismatch, "%y"),
    "arange_step": ('def @main(%s: float32) { arange(0f, 3f, %s, dtype="float32") }', [np.float32(0)], DivisionByZero, ""),
    "division": ("def @main(%x: int32) { floor_divide(1, %x) }", [0], DivisionByZero, ""),
    "match": ("type O { S(int32), Z }\ndef @f(%o: O) -> int32 { match? (%o) { S(%a) => %a } }\ndef @main(%x: int32) { if (%x < 1) { @f(Z) } else { @f(S(%x)) } }", [0], MatchFailure, "match"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_failure(name: str) -> None:
    text, args, error, words = FAILURES[name]
    mod = nvm.relay.parse(HEADER + text, source_name=name)
    with pytest.raises(error):
        evaluate(mod, arguments(args))
    for options in OPTIONS.values():
        with nvm.VirtualMachine(nvm.compile(mod, **options)) as vm:
            with pytest.raises(error) as caught:
                vm.run(*args)
            assert words in str(caught.value)


def test_equal_inputs_give_equal_bytes() -> None:
    text = HEADER + CASES["nested_recursion"][0]
    first = nvm.compile(nvm.relay.parse(text), native=False).to_bytes()
    assert nvm.compile(nvm.relay.parse(text), native=False).to_bytes() == first
