"""Defunctionalization: programs of all kinds of function values, their values and the text of the result, and errors."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.compiler.function_types import TypeEncoder
from nimblevm.errors import CompileError, InvalidInput, InvalidInputType, NimbleError
from nimblevm.relay.analysis import global_calls
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.ir import Call, Function, GlobalVar, Leaf, Let, Tuple, Var
from nimblevm.relay.module import IRModule
from nimblevm.relay.parser import parse_module
from nimblevm.relay.printer import astext
from nimblevm.relay.structural import structural_equal
from nimblevm.relay.types import TensorType
from nimblevm.relay.visitor import post_order
from nimblevm.relay.well_formed import check_well_formed
from nimblevm.tvm.relay import transform
from tests.properties.closures import program
from tests.properties.compare import assert_same
from tests.properties.recurrent import to_adt
from tests.properties.test_closure_programs import inputs

HEAD = '#[version = "0.0.5"]\n'
LIST = "type List[A] { Cons(A, List[A]), Nil, }\n"
MAP = (
    LIST
    + """def @map[A, B](%f: fn (A) -> B, %xs: List[A]) -> List[B] {
  match (%xs) { Cons(%x, %rest) => Cons(%f(%x), @map(%f, %rest)), Nil => Nil, }
}
"""
)


def parsed(text: str) -> IRModule:
    return infer_type(parse_module(HEAD + text, "mod.rly"))


def first_order(mod: IRModule, name: str = "main") -> IRModule:
    """The module with that function rewritten: nothing that it reaches has functions as values."""
    new = mod.shallow_copy()
    before = dict(mod.functions)
    new[name] = transform.Defunctionalization(new[name], new)
    assert dict(mod.functions) == before, "what was there stays"
    check_well_formed(new)
    new = infer_type(new)
    has_functions = TypeEncoder(new).has_functions
    seen: set[GlobalVar] = set()
    stack = [new.get_global_var(name)]
    while stack:
        var = stack.pop()
        if var in seen:
            continue
        seen.add(var)
        stack += global_calls(new.function(var))
        for node in post_order(new.function(var).body):
            assert not isinstance(node, Function)
            if not isinstance(node, Leaf) or isinstance(node, Var):
                assert node.checked_type is not None
                assert not has_functions(node.checked_type)
            if isinstance(node, Call):
                assert not any(isinstance(a, Leaf) and a.checked_type is None for a in node.args)
    return new


def test_a_closure_becomes_a_constructor() -> None:
    mod = parsed(
        """def @twice[A](%f: fn (A) -> A, %x: A) -> A { %f(%f(%x)) }
        def @main(%x: float32, %y: float32) { @twice(fn (%a: float32) { %a + %y }, %x) }"""
    )
    new = first_order(mod)
    expected = parsed(
        """type Defunc { Of_main_v1(float32), }
        def @apply(%f: Defunc, %a0: float32) -> float32 { match (%f) { Of_main_v1(%y) => { @main_v1(%y, %a0) }, } }
        def @main(%x: float32, %y: float32) -> float32 {
          let %v1: Defunc = Of_main_v1(%y);
          @twice_1(%v1, %x)
        }
        def @main_v1(%y: float32, %a: float32, Lifted=1, captures=1) -> float32 { %a + %y }
        def @twice[A](%f: fn (A) -> A, %x: A) -> A { %f(%f(%x)) }
        def @twice_1(%f: Defunc, %x: float32) -> float32 {
          let %v0: float32 = @apply(%f, %x);
          @apply(%f, %v0)
        }"""
    )
    assert structural_equal(new, expected), astext(new)


PROGRAMS = {
    "generic literal": """def @simple[A, B](%f: fn(A) -> B, %xs: A) -> B { %f(%xs) }
        def @main(%x: Tensor[(3, 2), float32]) { let %id = fn[A](%x: A) -> A { %x }; @simple(%id, (%x, @simple(%id, 1))) }""",
    "a global as a value": MAP
    + """def @id[A](%x: A) -> A { %x }
        def @main(%x: float32) { (@map(@id, Cons(%x, Nil)), @map(@id, Cons(1, Nil)), @id(%x)) }""",
    "an alias of a generic function": MAP
    + """def @id[A](%x: A) -> A { %x }
        def @main(%x: float32) { let %f = @id; let %g = %f; (%g(1), @map(%g, Cons(%x, Nil))) }""",
    "a constructor as a value": MAP
    + """type Box[A] { Full(A) }
        def @main(%x: float32) { (@map(Full, Cons(%x, Nil)), @map(Full, Cons(2, Nil))) }""",
    "continuations": LIST
    + """def @sum(%f: fn (int32) -> int32, %k: List[int32]) -> int32 {
          match (%k) { Cons(%x, %rest) => { @sum(fn (%n: int32) { %x + %f(%n) }, %rest) }, Nil => { %f(0) }, }
        }
        def @main(%x: int32) { @sum(fn (%n: int32) { %n * %x }, Cons(%x, Cons(2, Nil))) }""",
    "functions that are returned": """def @compose[A, B, C](%f: fn(A) -> B, %g: fn(B) -> C) -> fn(A) -> C { fn (%x: A) { %g(%f(%x)) } }
        def @add(%a: float32) -> fn (float32) -> fn (float32) -> float32 { fn (%b: float32) { fn (%c: float32) { %a + %b * %c } } }
        def @main(%x: float32) {
          let %f = @compose(@add, fn (%h: fn (float32) -> fn (float32) -> float32) { %h(2f) });
          %f(%x)(3f)
        }""",
    "tuples, references and branches": """def @main(%x: float32) {
          let %r = ref(fn (%a: float32) { %a * 2f });
          let %p = (fn (%a: float32) { %a + %x }, ref_read(%r));
          let %u = ref_write(%r, if (less(%x, 0f)) { %p.0 } else { %p.1 });
          let %u2 = ref_write(%r, %p.0);
          (ref_read(%r)(%x), %p.1(%x))
        }""",
    "lists of functions": MAP
    + """def @all[A, B](%fs: List[fn (A) -> B], %x: A) -> List[B] { @map(fn (%f: fn (A) -> B) { %f(%x) }, %fs) }
        def @main(%x: float32) { @all(Cons(fn (%a: float32) { %a < %x }, Cons(fn (%a: float32) { %a < 1f }, Nil)), %x) }""",
    "data types that hold functions": """type Lazy[A] { Done(A), Later(fn () -> Lazy[A]) }
        def @force[A](%l: Lazy[A]) -> A { match (%l) { Done(%x) => { %x }, Later(%f) => { @force(%f()) } } }
        def @count(%n: int32) -> Lazy[int32] { if (%n <= 0) { Done(%n) } else { Later(fn () { @count(%n - 2) }) } }
        def @main(%x: float32) { (@force(@count(5)), match ((Done(%x), 1)) { (Done(%y), _) => { %y }, (Later(_), _) => { 0f } }) }""",
    "recursion": """def @iterate[A](%f: fn (A) -> A, %n: int32) -> fn (A) -> A {
          if (%n <= 0) { fn (%x: A) { %x } } else { let %g = @iterate(%f, %n - 1); fn (%x: A) { %g(%f(%x)) } }
        }
        def @main(%x: float32) {
          let %loop = fn (%i: int32, %f: fn (float32) -> float32) -> float32 {
            if (%i <= 0) { %f(%x) } else { %loop(%i - 1, fn (%a: float32) { %f(%a) + 1f }) }
          };
          (@iterate(fn (%a: float32) { %a * 2f }, 3)(%x), %loop(3, @iterate(fn (%a: float32) { %a - 3f }, 2)))
        }""",
    "two that call each other": """def @even(%f: fn (int32) -> int32, %n: int32) -> int32 { if (%n <= 0) { %f(%n) } else { @odd(%f, %n - 1) } }
        def @odd(%f: fn (int32) -> int32, %n: int32) -> int32 { if (%n <= 0) { 0 - %f(%n) } else { @even(%f, %n - 1) } }
        def @main(%x: int32) { @even(fn (%a: int32) { %a + %x }, %x) }""",
    "a function that calls itself": """def @main(%x: int32) -> int32 {
          let %f = fn (%a: int32) { %a - 1 }; let %p = (%f, 1); let %g = %p.0; if (%x <= 0) { %x } else { @main(%g(%x)) }
        }""",
    "of no parameters": """def @run[A](%f: fn () -> A) -> A { %f() }
        def @main(%x: float32) { @run(fn () { @run(fn () { (%x, ()) }) }) }""",
    "never made": LIST
    + """def @first[A](%l: List[fn (A) -> A], %x: A) -> A { match (%l) { Cons(%f, _) => { %f(%x) }, Nil => { %x } } }
        def @main(%x: float32) { @first(Nil, %x) }""",
    "not even in a tuple": """def @main(%x: float32) { let %f = fn (%a: float32) { %a }; let %g = fn[A](%a: A) -> A { %a }; %x }""",
    "never called": """def @main(%x: float32) { let %f = fn (%a: float32) { %a }; let %p = (%f, %x); %p.1 }""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_stay(name: str) -> None:
    mod = parsed(PROGRAMS[name])
    new = first_order(mod)
    with nvm.VirtualMachine(nvm.compile(new)) as vm:
        for value in (-2, 3):
            (param,) = mod["main"].params
            assert isinstance(param.checked_type, TensorType)
            shape = tuple(d for d in param.checked_type.shape if isinstance(d, int))
            x = np.full(shape, value, param.checked_type.dtype)
            expected = evaluate(mod, [x])
            assert_same(evaluate(new, [x]), expected)
            assert_same(vm.run(x), expected)
    again = first_order(new)
    assert structural_equal(again, new), "a second time changes nothing"


def test_sizes_that_closures_know() -> None:
    """A size that no captured tensor has is captured as a number; those of a call's result are compared."""
    mod = parsed(
        MAP
        + """def @main(%x: Tensor[(?n, 4), float32], %l: List[float32]) {
          let %full = fn (%s: float32) -> Tensor[(?n), float32] { full(%s, shape=[?n], dtype="float32") };
          let %dot = fn (%v: Tensor[(?n), float32]) { sum(%v * sum(%x, axis=[1])) };
          (@map(fn (%s: float32) { %dot(%full(%s)) }, %l), @map(%full, %l), @map(%dot, @map(%full, %l)), %full(2f) + sum(%x, axis=[1]))
        }"""
    )
    new = first_order(mod)
    exe, other = nvm.compile(mod), nvm.compile(new)
    for n in (0, 3):
        x = np.arange(n * 4, dtype="float32").reshape(n, 4)
        given = [
            to_adt(("Cons", np.float32(2), ("Cons", np.float32(3), ("Nil",))), e.constructor)
            for e in (exe, other)
        ]
        expected = evaluate(mod, [x, given[0]])
        assert_same(evaluate(new, [x, given[1]]), expected)
        assert_same(nvm.VirtualMachine(other).run(x, given[1]), expected)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    source = random.Random(seed)
    mod = parsed(program(source, 3).removeprefix(HEAD))
    new = first_order(mod)
    exe = nvm.compile(new)
    for _ in range(3):
        args = [to_adt(value, exe.constructor) for value in inputs(source)]
        assert_same(evaluate(new, args), evaluate(mod, args), rtol=1e-3)


def test_what_is_first_order_stays() -> None:
    mod = parsed(
        LIST
        + """def @id[A](%x: A) -> A { %x }
        def @length[A](%l: List[A]) -> int32 { match (%l) { Cons(_, %t) => { 1 + @length(%t) }, Nil => { 0 } } }
        def @main(%x: float32) { (@length(Cons(@id(%x), Nil)), ()) }"""
    )
    new = mod.shallow_copy()
    assert transform.Defunctionalization(mod["main"], new) is mod["main"]
    assert structural_equal(new, mod)
    empty = IRModule.from_expr(Tuple([]))
    assert structural_equal(transform.Defunctionalization(empty["main"], empty).body, Tuple([]))


def test_other_functions_than_main() -> None:
    """One of another name, and one that is in no module; names that are taken are left alone."""
    mod = parsed(
        """type Defunc { Of_other_f }
        def @apply(%x: Defunc) -> Defunc { %x }
        def @run[A](%f: fn () -> A) -> A { %f() }
        def @other(%x: float32) { let %f = fn () { %x }; @run(%f) }
        def @other_f(%x: Defunc) { %x }"""
    )
    new = first_order(mod, "other")
    x = np.float32(4)
    assert evaluate(new, [x], "other") == x
    for name in ("apply", "other_f"):
        assert structural_equal(new[name], mod[name])
    free = mod["other"]
    bare = mod.shallow_copy()
    del bare["other"]
    made = transform.Defunctionalization(free, bare)
    assert "main" not in bare
    bare["start"] = made
    assert evaluate(infer_type(bare), [x], "start") == x


def test_long_programs() -> None:
    """A closure a let, each calls the one before."""
    x = Var("x", TensorType((), "float32"))
    scalar = TensorType((), "float32")
    names = [Var(f"f{i}") for i in range(400)]
    body: Any = nvm.relay.Tuple([names[-1], x])
    body = Call(nvm.relay.TupleGetItem(body, 0), [x])
    for i in range(399, -1, -1):
        a = Var("a", scalar)
        inner = nvm.relay.add(a, x) if i == 0 else Call(names[i - 1], [a])
        body = Let(names[i], Function([a], inner, scalar), body)
    mod = infer_type(IRModule.from_expr(Function([x], body)))
    assert evaluate(first_order(mod), [np.float32(2)]) == 4


ERRORS = {
    "generic": ("def @main[A](%x: A) -> A { %x }", InvalidInput, "fixed types, not one of any A"),
    "parameter": (
        "def @main(%f: fn (int32) -> int32) { %f(1) }",
        InvalidInput,
        r"parameter %f is fn \(int32\) -> int32",
    ),
    "result": ("def @main(%x: int32) { (1, fn () { %x }) }", InvalidInput, "its result is"),
    "held": (
        "type Job { Run(fn () -> int32) } type All { Of(Job) } def @main(%j: (int32, All)) { 1 }",
        InvalidInput,
        "parameter %j is",
    ),
    "undecided": (
        "def @main(%x: int32) { let %f = fn[A](%y: A) -> A { %y }; let %p = (%f, %x); %p.1 }",
        NimbleError,
        "generic",
    ),
    "growing": (
        """type Nested[A] { Flat(A), Deep(Nested[(A, A)]) }
        def @grow[A](%f: fn (A) -> int32, %x: A, %n: int32) -> int32 {
          if (%n <= 0) { %f(%x) } else { @grow(fn (%p: (A, int32)) { %f(%p.0) }, (%x, %n), %n - 1) }
        }
        def @main(%x: int32) { @grow(fn (%y: int32) { %y }, %x, 3) }""",
        CompileError,
        "@grow is needed for more than .* grow from call to call",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    text, kind, message = ERRORS[name]
    mod = parsed(text)
    before = mod.shallow_copy()
    with pytest.raises(kind, match=message):
        transform.Defunctionalization(mod["main"], mod)
    assert dict(mod.functions) == dict(before.functions)
    assert mod.type_definitions == before.type_definitions


def test_what_is_no_function() -> None:
    with pytest.raises((InvalidInputType, TypeError), match="Function"):
        transform.Defunctionalization(IRModule(), IRModule())  # type: ignore[arg-type]
