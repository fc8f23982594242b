"""Programs about dims: each with inputs that fit and inputs (or callers) that lie.

    RULES["bound_by_tuple_field"].good      argument lists of main: every path gives the oracle's value
    ....bad                                 argument lists with what the error must name

Arguments are written as shapes: `(3, 4)` stands for a float32 array, `True` for a bool, `Adt(...)` for a constructor's value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nimblevm.errors import InvalidInput, NimbleError, ShapeMismatch


@dataclass(frozen=True)
class Adt:
    """A value made by constructor `name`."""

    name: str
    fields: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Bad:
    """Arguments, and what the VM's error must say. line: where; several if a pass may move the check (inlining)."""

    args: tuple[Any, ...]
    words: str
    line: int | tuple[int, ...] | None
    expected: int
    got: int
    error: type[NimbleError] = ShapeMismatch


@dataclass(frozen=True)
class Rule:
    """One program. checks: CheckDim and noted Broadcast instructions that the compiled program may have (None: any)."""

    text: str
    good: tuple[tuple[Any, ...], ...] = ()
    bad: tuple[Bad, ...] = ()
    checks: int | None = None
    words: tuple[str, ...] = field(default=())


def value_of(spec: Any, exe: Any) -> Any:
    """The argument that a specification stands for; `exe` has the constructors."""
    if isinstance(spec, Adt):
        return exe.constructor(spec.name)(*(value_of(f, exe) for f in spec.fields))
    if isinstance(spec, bool):
        return np.asarray(spec)
    if isinstance(spec, int):
        return np.asarray(spec, "int32")
    if isinstance(spec, list):
        return tuple(value_of(f, exe) for f in spec)
    size = int(np.prod(spec, dtype=np.int64))
    return (np.arange(size, dtype="float32") / 8 + 0.5).reshape(spec)


def V(*dims: str) -> str:
    """A float32 tensor type."""
    return f"Tensor[({', '.join(dims)}{',' if len(dims) == 1 else ''}), float32]"


N, M, K, ANY, THREE = V("?n"), V("?m"), V("?k"), V("?"), V("3")
LIST = "type List[A] { Cons(A, List[A]), Nil }\n"
BOX = f"type Box {{ Box({ANY}) }}\n"
BOX3 = f"type Box {{ Box({THREE}) }}\n"
SAME = f"def @same(%x: {N}, %y: {N}) -> {N} {{ %x + %y }}\n"
ONES3 = 'ones(shape=[3], dtype="float32")'

RULES: dict[str, Rule] = {
    # --- a global function is polymorphic in the named dims of its signature --------------------------
    "polymorphic": Rule(
        f"def @f(%x: {V('?n', '4')}) -> {V('?n', '4')} {{ tanh(%x) }}\n"
        f"def @main(%a: {V('?p', '4')}, %b: {V('?q', '4')}) {{ (@f(%a), @f(%b), @f(zeros(shape=[2, 4], dtype=\"float32\"))) }}",
        good=(((2, 4), (5, 4)), ((0, 4), (1, 4))),
        checks=0,
    ),
    "equal_names_need_no_check": Rule(
        f"def @f(%x: {N}, %y: {N}) -> {N} {{ %x + %y * %x }}\ndef @main(%a: {N}) {{ @f(%a, tanh(%a)) }}",
        good=(((3,),), ((0,),), ((1,),)),
        checks=1,  # at the entry of @f, for other callers
    ),
    "named_result": Rule(
        f"def @f(%x: {V('?n', '?m')}) -> {V('?m', '?n')} {{ transpose(%x) }}\n"
        f"def @main(%x: {V('?n', '?m')}) {{ @f(@f(%x)) + %x }}",
        good=(((2, 3),), ((0, 3),), ((1, 1),)),
        checks=0,
    ),
    "computed_result": Rule(
        f"def @f(%x: {N}, %y: {M}) -> {V('?n + 2 * ?m')} {{ concatenate((%x, %y, %y), axis=0) }}\n"
        f"def @main(%x: {N}, %y: {N}) {{ @f(%x, %y) + concatenate((%x, %x, %x), axis=0) }}",
        good=(((2,), (2,)), ((0,), (0,)), ((1,), (1,))),
        bad=(Bad(((2,), (3,)), "%y", None, 2, 3, InvalidInput),),
    ),
    # --- bound by DimOf at the first exact occurrence, further ones are checked ------------------------
    "second_parameter": Rule(
        SAME + f"def @main(%a: {N}, %b: {M}) {{ @same(%a, %b) }}",
        good=(((3,), (3,)), ((0,), (0,)), ((1,), (1,))),
        bad=(Bad(((3,), (4,)), "parameter %y of @same, axis 0", (2, 3), 3, 4), Bad(((3,), (1,)), "%y of @same", (2, 3), 3, 1), Bad(((0,), (1,)), "%y of @same", (2, 3), 0, 1)),
    ),
    "second_axis": Rule(
        f"def @square(%x: {V('?n', '?n')}) -> {V('?n', '?n')} {{ %x + transpose(%x) }}\n"
        f"def @main(%x: {V('?n', '?m')}) {{ @square(tanh(%x)) }}",
        good=(((2, 2),), ((0, 0),), ((1, 1),)),
        bad=(Bad(((2, 3),), "parameter %x of @square, axis 1", (2, 3), 2, 3), Bad(((2, 1),), "%x of @square", (2, 3), 2, 1)),
    ),
    "input_second_parameter": Rule(
        f"def @main(%x: {N}, %y: {N}) {{ %x + %y }}",
        good=(((3,), (3,)), ((0,), (0,)), ((1,), (1,))),
        bad=(Bad(((3,), (4,)), "parameter %y of @main: axis 0", None, 3, 4, InvalidInput), Bad(((3,), (1,)), "?n, from parameter %x", None, 3, 1, InvalidInput)),
        checks=1,
    ),
    "input_static": Rule(
        f"def @main(%x: {V('?n', '4')}) {{ tanh(%x) }}",
        good=(((3, 4),), ((0, 4),), ((1, 4),)),
        bad=(Bad(((3, 5),), "parameter %x of @main: axis 1", None, 4, 5, InvalidInput), Bad(((3, 1),), "%x of @main: axis 1", None, 4, 1, InvalidInput)),
        checks=0,
    ),
    "bound_by_tuple_field": Rule(
        f"def @f(%t: (int32, ({N}, {V('2', '?m')})), %y: {V('?m', '?n')}) -> {V('?m', '?n')} {{ %y + %t.1.0 }}\n"
        f"def @main(%t: (int32, ({V('?a')}, {V('2', '?b')})), %y: {V('?c', '?d')}) {{ @f(%t, %y) }}",
        good=(([1, [(3,), (2, 4)]], (4, 3)), ([1, [(0,), (2, 1)]], (1, 0))),
        bad=(
            Bad(([1, [(3,), (2, 4)]], (4, 2)), "parameter %y of @f, axis 1", (2, 3), 3, 2),
            Bad(([1, [(3,), (2, 4)]], (1, 3)), "parameter %y of @f, axis 0", (2, 3), 4, 1),
        ),
    ),
    "input_tuple_field": Rule(
        f"def @main(%t: (int32, ({N}, {V('2', '?m')})), %y: {V('?m', '?n')}) {{ %y + %t.1.0 }}",
        good=(([1, [(3,), (2, 4)]], (4, 3)), ([1, [(0,), (2, 1)]], (1, 0))),
        bad=(
            Bad(([1, [(3,), (2, 4)]], (4, 2)), "parameter %y of @main: axis 1", None, 3, 2, InvalidInput),
            Bad(([1, [(3,), (3, 4)]], (4, 3)), "parameter %t of @main, at [1][1]: axis 0", None, 2, 3, InvalidInput),
        ),
    ),
    "expression_is_checked": Rule(
        f"def @f(%x: {V('?n + 1')}, %y: {N}) -> {V('2 * ?n + 1')} {{ concatenate((%x, %y), axis=0) }}\n"
        f"def @main(%x: {V('?a')}, %y: {V('?b')}) {{ @f(%x, %y) }}",
        good=(((4,), (3,)), ((1,), (0,)), ((2,), (1,))),
        bad=(Bad(((4,), (4,)), "parameter %x of @f, axis 0", (2, 3), 5, 4), Bad(((0,), (0,)), "%x of @f", (2, 3), 1, 0)),
    ),
    "input_expression": Rule(
        f"def @main(%x: {V('floordiv(?n, 2)')}, %y: {N}) {{ concatenate((%x, %y), axis=0) }}",
        good=(((1,), (3,)), ((0,), (1,)), ((0,), (0,))),
        bad=(Bad(((2,), (3,)), "parameter %x of @main, axis 0", 2, 1, 2),),
    ),
    # --- existential dims --------------------------------------------------------------------------
    "only_in_result": Rule(
        f"def @f(%x: {N}) -> {M} {{ concatenate((%x, %x), axis=0) }}\n"
        f"def @main(%x: {N}) {{ let %a = @f(%x); let %b = @f(%a); (%a + %a, %b * %b, shape_of(%b)) }}",
        good=(((3,),), ((0,),), ((1,),)),
        checks=0,
    ),
    "result_names_one_dim_twice": Rule(
        f"def @f(%x: {N}, %y: {M}) -> ({K}, {K}) {{ (%x, %y) }}\n"
        f"def @main(%x: {N}, %y: {M}) {{ let %t = @f(%x, %y); %t.0 + %t.1 }}",
        good=(((3,), (3,)), ((0,), (0,)), ((1,), (1,))),
        bad=(Bad(((3,), (4,)), "result of @f.1, axis 0", 2, 3, 4), Bad(((3,), (1,)), "result of @f", 2, 3, 1)),
    ),
    "two_calls_two_dims": Rule(
        f"def @f(%x: {N}) -> {M} {{ tanh(%x) }}\ndef @main(%x: {N}, %y: {M}) {{ @f(%x) + @f(%y) }}",
        good=(((3,), (3,)), ((1,), (3,)), ((0,), (1,))),
        bad=(Bad(((3,), (4,)), "can't be broadcast", 3, 3, 4),),
    ),
    "only_in_function_type": Rule(
        f"def @ap(%f: fn ({K}) -> {K}, %x: {N}) -> {ANY} {{ tanh(%f(%x)) }}\n"
        f"def @main(%x: {N}, %y: {M}) {{ @ap(fn (%z: {ANY}) -> {ANY} {{ concatenate((%z, %y), axis=0) }}, %x) }}",
        good=(((3,), (0,)), ((0,), (0,))),
        bad=(Bad(((3,), (1,)), "result of the closure, axis 0", 2, 3, 4),),
    ),
    "only_in_adt_argument": Rule(
        LIST + f"def @f(%l: List[{K}]) -> {ANY} {{ match (%l) {{ Cons(%a, Cons(%b, _)) => %a + %b, _ => {ONES3} }} }}\n"
        f"def @main(%x: {N}, %y: {M}) {{ @f(Cons(%x, Cons(%y, Nil))) }}",
        good=(((4,), (4,)), ((0,), (0,))),
        bad=(Bad(((4,), (3,)), "field 0 of Cons, axis 0", 3, 4, 3), Bad(((4,), (1,)), "field 0 of Cons", 3, 4, 1)),
    ),
    # --- local functions ------------------------------------------------------------------------------
    "outer_dim_in_local_function": Rule(
        f"def @main(%x: {N}, %y: {M}) {{\n let %g = fn (%z: {N}) -> {N} {{ %z + %x }};\n %g(%y) }}",
        good=(((3,), (3,)), ((0,), (0,)), ((1,), (1,))),
        bad=(Bad(((3,), (4,)), "%z", None, 3, 4), Bad(((3,), (1,)), "%z", None, 3, 1)),
    ),
    "captured_dim_alone": Rule(
        f"def @make(%x: {N}) -> fn ({ANY}) -> {ANY} {{\n  fn (%z: {N}) -> {N} {{ tanh(%z) }} }}\n"
        f"def @main(%x: {N}, %y: {M}) {{ let %g = @make(%x); (%g(%y), %g(%x)) }}",
        good=(((3,), (3,)), ((0,), (0,)), ((1,), (1,))),
        bad=(Bad(((3,), (4,)), "parameter %z", 3, 3, 4), Bad(((3,), (1,)), "parameter %z", 3, 3, 1)),
    ),
    "captured_dim_through_two_functions": Rule(
        f"def @make(%x: {N}) -> fn (int32) -> fn ({ANY}) -> {ANY} {{\n"
        f"  fn (%i: int32) -> fn ({ANY}) -> {ANY} {{\n    fn (%z: {N}) -> {N} {{ tanh(%z) }} }} }}\n"
        f"def @main(%x: {N}, %y: {M}) {{ let %f = @make(%x); let %g = %f(1); tanh(%g(%y)) }}",
        good=(((3,), (3,)), ((0,), (0,))),
        bad=(Bad(((3,), (4,)), "parameter %z", 4, 3, 4),),
    ),
    "dim_value_in_closure": Rule(
        f"def @make(%x: {N}) -> fn (int32) -> Tensor[(1), int32] {{ fn (%i: int32) -> Tensor[(1), int32] {{ shape_of(%x) * %i }} }}\n"
        f"def @main(%x: {N}) {{ let %f = @make(%x); %f(2) }}",
        good=(((3,),), ((0,),)),
    ),
    "own_dim_of_local_function": Rule(
        f"def @main(%x: {ANY}, %y: {ANY}) {{ let %g = fn (%a: {K}, %b: {K}) -> {K} {{ %a + %b }}; (%g(%x, %x), %g(%x, %y)) }}",
        good=(((3,), (3,)), ((0,), (0,))),
        bad=(Bad(((1,), (3,)), "%b", 2, 1, 3),),
    ),
    "dim_that_gets_its_number_after_the_closure": Rule(
        f"def @main(%x: {ANY}, %w: {ANY}) {{ let %g = fn (%a: {K}) -> {K} {{ tanh(%a) }}; let %h: {K} = %w; (%g(%x), %g(%h), %h) }}",
        good=(((1,), (3,)), ((3,), (3,)), ((3,), (0,))),
    ),
    # --- recursion and joins -------------------------------------------------------------------------------
    "recursion_keeps_the_dim": Rule(
        f"def @f(%i: int32, %x: {N}) -> {N} {{ if (%i < 1) {{ %x }} else {{ @f(%i - 1, tanh(%x)) }} }}\n"
        f"def @main(%i: int32, %x: {N}) {{ @f(%i, %x) + %x }}",
        good=((3, (2,)), (0, (0,)), (1, (1,))),
        checks=0,
    ),
    "recursion_widens": Rule(
        f"def @f(%i: int32, %x: {N}) -> {ANY} {{ if (%i < 1) {{ %x }} else {{ @f(%i - 1, concatenate((%x, %x), axis=0)) }} }}\n"
        f"def @main(%i: int32, %x: {N}) {{ @f(%i, %x) }}",
        good=((3, (2,)), (0, (0,)), (1, (1,))),
        checks=0,
    ),
    "recursion_breaks_its_promise": Rule(
        f"def @f(%i: int32, %x: {N}) -> {N} {{\n  if (%i < 1) {{ %x }} else {{ @f(%i - 1, concatenate((%x, %x), axis=0)) }} }}\n"
        f"def @main(%i: int32, %x: {N}) {{ @f(%i, %x) }}",
        good=((0, (2,)), (3, (0,))),
        bad=(Bad((1, (2,)), "result of @f, axis 0", 3, 2, 4),),
    ),
    "join_of_if": Rule(
        f"def @main(%c: bool, %x: {N}, %y: {M}) {{ let %z = if (%c) {{ %x }} else {{ %y }}; (%z * %z, shape_of(%z)) }}",
        good=((True, (3,), (4,)), (False, (3,), (4,)), (False, (3,), (0,))),
        checks=0,
    ),
    "join_of_static_dims": Rule(
        f"def @main(%c: bool, %x: {V('3')}, %y: {V('4')}) {{ let %z = if (%c) {{ %x }} else {{ %y }}; (%z * %z, shape_of(%z)) }}",
        good=((True, (3,), (4,)), (False, (3,), (4,))),
        checks=0,
    ),
    "join_narrowed": Rule(
        f"def @main(%c: bool, %x: {N}, %y: {M}) -> {N} {{\n  if (%c) {{ %x }} else {{ %y }} }}",
        good=((True, (3,), (4,)), (False, (3,), (3,)), (False, (0,), (0,))),
        bad=(Bad((False, (3,), (4,)), "result of @main, axis 0", None, 3, 4), Bad((False, (3,), (1,)), "result of @main, axis 0", None, 3, 1)),
    ),
    "join_of_match": Rule(
        BOX + f"type Maybe {{ Some(Box), None }}\ndef @main(%o: Maybe, %x: {N}) {{\n"
        "let %z = match (%o) { Some(Box(%y)) => %y, None => %x };\n%z + %x }",
        good=((Adt("None"), (3,)), (Adt("Some", (Adt("Box", ((3,),)),)), (3,)), (Adt("Some", (Adt("Box", ((1,),)),)), (0,))),
        bad=(Bad((Adt("Some", (Adt("Box", ((4,),)),)), (3,)), "can't be broadcast", 6, 3, 4),),
    ),
    "join_of_ref": Rule(
        f"def @main(%c: bool, %x: {N}, %y: {M}) {{ let %r = ref(%x); let %u = if (%c) {{ ref_write(%r, %y) }} else {{ () }}; ref_read(%r) }}",
        good=((True, (3,), (4,)), (False, (3,), (4,)), (True, (3,), (0,))),
        checks=0,
    ),
    # --- claims: ADT fields, refs, closure results -----------------------------------------------------------
    "field_claims_a_size": Rule(
        BOX3 + f"def @get(%b: Box) -> {THREE} {{ match (%b) {{ Box(%v) => tanh(%v) }} }}\ndef @main(%x: {N}) {{ @get(Box(%x)) }}",
        good=(((3,),),),
        bad=(Bad(((4,),), "field 0 of Box, axis 0", 3, 3, 4), Bad(((1,),), "field 0 of Box", 3, 3, 1), Bad(((0,),), "field 0 of Box", 3, 3, 0)),
    ),
    "field_claims_a_name": Rule(
        LIST + f"def @head(%l: List[{K}], %x: {K}) -> {K} {{ match (%l) {{ Cons(%v, _) => tanh(%v), Nil => %x }} }}\n"
        f"def @main(%x: {N}, %y: {M}) {{ @head(Cons(%y, Nil), %x) }}",
        good=(((3,), (3,)), ((0,), (0,)), ((1,), (1,))),
        bad=(Bad(((3,), (4,)), "field 0 of Cons, axis 0 (?k)", 3, 3, 4), Bad(((3,), (1,)), "field 0 of Cons", 3, 3, 1)),
    ),
    "tuple_in_field": Rule(
        f"type P {{ P((int32, {THREE})) }}\ndef @get(%p: P) -> {THREE} {{ match (%p) {{ P(%t) => tanh(%t.1) }} }}\n"
        f"def @main(%x: {N}) {{ @get(P((1, %x))) }}",
        good=(((3,),),),
        bad=(Bad(((4,),), "field 0 of P.1, axis 0", 3, 3, 4),),
    ),
    "field_in_input": Rule(
        BOX3 + f"def @main(%b: Box) -> {THREE} {{ match (%b) {{ Box(%v) => tanh(%v) }} }}",
        good=((Adt("Box", ((3,),)),),),
        bad=(Bad((Adt("Box", ((4,),)),), "parameter %b of @main, at .Box[0]: axis 0", None, 3, 4, InvalidInput),),
    ),
    "named_field_in_input": Rule(
        LIST + f"def @main(%x: {K}, %l: List[{K}]) -> {K} {{ match (%l) {{ Cons(%v, _) => %v + %x, Nil => %x }} }}",
        good=(((3,), Adt("Cons", ((3,), Adt("Nil")))), ((0,), Adt("Nil"))),
        bad=(Bad(((3,), Adt("Cons", ((4,), Adt("Nil")))), "parameter %l of @main, at .Cons[0]: axis 0", None, 3, 4, InvalidInput),),
    ),
    "named_field_in_input_before_its_dim": Rule(
        LIST + f"def @main(%l: List[{K}], %x: {K}) -> {K} {{ match (%l) {{ Cons(%v, _) => %v + %x, Nil => %x }} }}",
        good=((Adt("Cons", ((3,), Adt("Nil"))), (3,)), (Adt("Nil"), (0,))),
        bad=(Bad((Adt("Cons", ((4,), Adt("Nil"))), (3,)), "?k, from parameter %l", None, 4, 3, InvalidInput),),
    ),
    "ref_claims_a_size": Rule(
        f"def @read(%r: ref({THREE})) -> {THREE} {{ tanh(ref_read(%r)) }}\ndef @main(%x: {N}) {{ let %r = ref(%x); @read(%r) }}",
        good=(((3,),),),
        bad=(Bad(((4,),), "content of the reference, axis 0", 2, 3, 4), Bad(((1,),), "content of the reference", 2, 3, 1)),
    ),
    "ref_claims_a_name": Rule(
        f"def @read(%r: ref({K}), %x: {K}) -> {K} {{ %x + ref_read(%r) }}\ndef @main(%x: {N}, %y: {M}) {{ let %r = ref(%y); @read(%r, %x) }}",
        good=(((3,), (3,)), ((0,), (0,))),
        bad=(Bad(((3,), (4,)), "content of the reference, axis 0 (?k)", 2, 3, 4), Bad(((3,), (1,)), "content of the reference", 2, 3, 1)),
    ),
    "ref_written_behind_the_back": Rule(
        f"def @write(%r: ref({ANY}), %y: {M}) -> () {{ ref_write(%r, %y) }}\n"
        f"def @main(%y: {M}) {{ let %r = ref({ONES3}); let %u = @write(%r, %y); let %v: {THREE} = ref_read(%r); %v + {ONES3} }}",
        good=(((3,),),),
        bad=(Bad(((4,),), "axis 0", 3, 3, 4), Bad(((1,),), "axis 0", 3, 3, 1)),
    ),
    "closure_claims_a_size": Rule(
        f"def @call(%f: fn (int32) -> {THREE}) -> {THREE} {{ tanh(%f(1)) }}\ndef @main(%x: {N}) {{ @call(fn (%i: int32) -> {ANY} {{ %x }}) }}",
        good=(((3,),),),
        bad=(Bad(((4,),), "result of the closure, axis 0", 2, 3, 4), Bad(((1,),), "result of the closure", 2, 3, 1)),
    ),
    "closure_in_tail_position_claims": Rule(
        f"def @call(%f: fn ({K}) -> {K}, %x: {N}) -> {ANY} {{ %f(%x) }}\n"
        f"def @main(%x: {N}, %y: {M}) {{ @call(fn (%z: {ANY}) -> {ANY} {{ concatenate((%z, %y), axis=0) }}, %x) }}",
        good=(((3,), (0,)),),
        bad=(Bad(((3,), (2,)), "result of the closure, axis 0", 2, 3, 5),),
    ),
    "closure_parameter_claims": Rule(
        f"def @call(%f: fn ({ANY}) -> {ANY}, %x: {N}) -> {ANY} {{ %f(%x) }}\ndef @main(%x: {N}) {{\n  @call(fn (%z: {THREE}) -> {THREE} {{ tanh(%z) }}, %x) }}",
        good=(((3,),),),
        bad=(Bad(((4,),), "parameter %z", 4, 3, 4), Bad(((1,),), "parameter %z", 4, 3, 1)),
    ),
    "constructor_as_function_claims": Rule(
        BOX3 + f"def @call(%f: fn ({ANY}) -> Box, %x: {N}) -> Box {{ %f(%x) }}\n"
        f"def @get(%b: Box) -> {THREE} {{ match (%b) {{ Box(%v) => tanh(%v) }} }}\ndef @main(%x: {N}) {{ @get(@call(Box, %x)) }}",
        good=(((3,),),),
        bad=(Bad(((4,),), "axis 0", 2, 3, 4),),
    ),
    "closure_in_field": Rule(
        f"type F {{ F(fn (int32) -> {THREE}) }}\ndef @call(%f: F) -> {THREE} {{ match (%f) {{ F(%g) => tanh(%g(1)) }} }}\n"
        f"def @main(%x: {N}) {{ @call(F(fn (%i: int32) -> {ANY} {{ %x }})) }}",
        good=(((3,),),),
        bad=(Bad(((4,),), "result of the closure, axis 0", 3, 3, 4),),
    ),
    "generic_function_carries_claims": Rule(
        LIST + f"def @map[A, B](%f: fn (A) -> B, %l: List[A]) -> List[B] {{ match (%l) {{ Cons(%h, %t) => Cons(%f(%h), @map(%f, %t)), Nil => Nil }} }}\n"
        f"def @sum(%l: List[{THREE}]) -> {THREE} {{ match (%l) {{ Cons(%h, %t) => %h + @sum(%t), Nil => {ONES3} }} }}\n"
        f"def @main(%x: {N}) {{\n  @sum(@map(fn (%y: {ANY}) -> {THREE} {{ %y }}, Cons({ONES3}, Cons(%x, Nil)))) }}",
        good=(((3,),),),
        bad=(Bad(((4,),), "result of a function in @main, axis 0", 6, 3, 4),),
    ),
    # --- widening and narrowing ------------------------------------------------------------------------------
    "widening_is_free": Rule(
        f"def @f(%x: {V('?', '?')}) -> {V('?', '?')} {{ tanh(%x) }}\ndef @main(%x: {V('2', '3')}, %y: {V('?n', '?n')}) {{\n"
        f"  let %a: {V('?', '3')} = %x; (@f(%a), @f(%x), @f(%y)) }}",
        good=(((2, 3), (4, 4)), ((2, 3), (0, 0))),
        checks=0 + 1,  # ?n of %y twice, at the entry of main
    ),
    "narrowing_let": Rule(
        f"def @main(%x: {V('?', '?')}) {{\n  let %y: {V('?', '3')} = %x;\n  tanh(%y) }}",
        good=(((2, 3),), ((0, 3),)),
        bad=(Bad(((2, 4),), "%y in @main, axis 1", None, 3, 4), Bad(((2, 1),), "%y in @main, axis 1", None, 3, 1)),
        checks=1,
    ),
    "narrowing_argument": Rule(
        f"def @f(%x: {THREE}) -> {THREE} {{ tanh(%x) }}\ndef @main(%x: {N}) {{ @f(%x) }}",
        good=(((3,),),),
        bad=(Bad(((4,),), "parameter %x of @f, axis 0", 3, 3, 4), Bad(((0,),), "parameter %x of @f", 3, 3, 0)),
    ),
    "narrowing_result": Rule(
        f"def @f(%x: {N}) -> {THREE} {{ tanh(%x) }}\ndef @main(%x: {N}) {{ @f(%x) }}",
        good=(((3,),),),
        bad=(Bad(((4,),), "result of @f, axis 0", 2, 3, 4),),
    ),
    "operator_demands": Rule(
        f"def @main(%x: {V('?a', '?b')}, %w: {V('2', '?c')}) {{\n  nn.dense(%x, %w) }}",
        good=(((4, 3), (2, 3)), ((0, 3), (2, 3)), ((4, 0), (2, 0))),
        bad=(Bad(((4, 3), (2, 4)), "argument data of nn.dense, axis 1", 3, 4, 3), Bad(((4, 1), (2, 4)), "argument data of nn.dense", 3, 4, 1)),
        checks=1,
    ),
    "proved_demands": Rule(
        f"def @main(%x: {V('?a', '?b')}, %w: {V('2', '?b')}) {{ nn.dense(nn.dense(tanh(%x), %w), zeros(shape=[5, 2], dtype=\"float32\")) }}",
        good=(((4, 3), (2, 3)), ((0, 3), (2, 3))),
        checks=1,  # ?b of %w at the entry
    ),
    # --- broadcast -----------------------------------------------------------------------------------------
    "unknown_with_five": Rule(
        f"def @main(%x: {ANY}, %y: {V('5')}) {{\n  let %z: {V('5')} = %x + %y; %z * %y }}",
        good=(((5,), (5,)), ((1,), (5,))),
        bad=(Bad(((4,), (5,)), "argument lhs of add, axis 0", 3, 5, 4), Bad(((0,), (5,)), "argument lhs of add, axis 0", 3, 5, 0)),
        checks=0,  # Broadcast decides
    ),
    "unknown_with_one": Rule(
        f"def @main(%x: {ANY}, %y: {V('1')}) {{ %x + %y }}", good=(((5,), (1,)), ((1,), (1,)), ((0,), (1,))), checks=0
    ),
    "unknown_with_zero": Rule(
        f"def @main(%x: {ANY}, %y: {V('0')}) {{\n  %x + %y }}",
        good=(((0,), (0,)), ((1,), (0,))),
        bad=(Bad(((4,), (0,)), "argument lhs of add, axis 0", 3, 0, 4),),
    ),
    "two_unknowns": Rule(
        f"def @main(%x: {N}, %y: {M}) {{\n  (%x + %y, shape_of(%x * %y)) }}",
        good=(((3,), (3,)), ((1,), (3,)), ((3,), (1,)), ((0,), (1,)), ((1,), (0,)), ((0,), (0,)), ((1,), (1,))),
        bad=(Bad(((2,), (3,)), "bcast(?n, ?m)", 3, 2, 3), Bad(((0,), (3,)), "can't be broadcast", 3, 0, 3), Bad(((3,), (0,)), "can't be broadcast", 3, 3, 0)),
    ),
    "two_unknowns_of_two_axes": Rule(
        f"def @main(%x: {V('?a', '?b')}, %y: {V('?c', '?d')}) {{\n  tanh(%x * %y) + %x }}",
        good=(((2, 3), (2, 3)), ((2, 3), (1, 3)), ((2, 3), (2, 1)), ((1, 3), (2, 1)), ((0, 3), (1, 1)), ((1, 1), (1, 1))),
        bad=(Bad(((2, 3), (2, 4)), "can't be broadcast", 3, 3, 4),),
    ),
    "bcast_in_a_signature": Rule(
        f"def @f(%x: {N}, %y: {M}) -> {V('bcast(?n, ?m)')} {{\n  %x + %y }}\ndef @main(%x: {N}, %y: {M}) {{ let %z = @f(%x, %y); %z + %z }}",
        good=(((3,), (1,)), ((1,), (3,)), ((0,), (1,)), ((2,), (2,))),
        bad=(Bad(((2,), (3,)), "can't be broadcast", (3, 4), 2, 3),),
    ),
    "equal_names_broadcast_without_question": Rule(
        f"def @main(%x: {V('?n', '?m')}, %y: {M}) {{ (%x + %y) * tanh(%x) }}",
        good=(((2, 3), (3,)), ((0, 1), (1,)), ((2, 0), (0,))),
        bad=(Bad(((2, 3), (1,)), "parameter %y of @main: axis 0", None, 3, 1, InvalidInput),),
        checks=1,
    ),
}  # fmt: skip

# What inference or the parser refuses: text and words of the message.
REFUTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "name_only_in_larger_expressions": (f"def @main(%x: {V('?n + 1')}) {{ %x }}", ("2:11", "?n", "only inside ?n + 1", "exactly ?n")),
    "name_only_in_larger_expressions_of_a_tuple": (f"def @main(%x: ({V('?n * 2')}, {V('?m')})) {{ %x }}", ("?n", "only inside 2 * ?n")),
    "type_definitions_name_no_dims": (f"type T {{ T({N}) }}\ndef @main(%x: {N}) {{ T(%x) }}", ("2:", "type definition", "write ?")),
    "equal_names": (SAME + f"def @main(%a: {V('5')}, %b: {V('6')}) {{ @same(%a, %b) }}", ("3:", "?n is 5", "6", "%b", "%y of @same")),
    "polymorphic_result": (f"def @f(%x: {N}) -> {N} {{ %x }}\ndef @main(%a: {V('5')}) {{ let %b: {V('6')} = @f(%a); %b }}", ("3:", "expected 6", "got 5", "%b")),
    "result_of_the_body": (f"def @f(%x: {N}) -> {V('?n + 1')} {{ tanh(%x) }}\ndef @main(%x: {N}) {{ @f(%x) }}", ("2:", "expected ?n + 1", "got ?n", "result of @f")),
    "local_function": (f"def @main(%x: {N}) {{ let %g = fn (%z: {N}) -> {N} {{ %z }}; %g(concatenate((%x, {ONES3}), axis=0)) }}", ("2:", "?n", "?n + 3")),
    "recursion": (f"def @f(%i: int32, %x: {N}) -> {N} {{ if (%i < 1) {{ %x }} else {{ let %y: {V('?n + 1')} = @f(%i - 1, %x); %x }} }}", ("2:", "expected ?n + 1", "got ?n", "%y")),
    "ref_rank": (f"def @main(%x: {N}, %y: {V('?m', '1')}) {{ let %r = ref(%x); ref_write(%r, %y) }}", ("2:", "rank 1", "rank 2", "the ref holds")),
    "ref_dtype": (f"def @main(%x: {N}, %y: Tensor[(?m), int32]) {{ let %r = ref(%x); ref_write(%r, %y) }}", ("2:", "float32", "int32")),
    "ref_rank_through_a_function": (f"def @f(%r: ref({V('?', '?')})) -> () {{ () }}\ndef @main(%x: {N}) {{ let %r = ref(%x); @f(%r) }}", ("3:", "rank")),
    "field": (BOX3 + f"def @main(%x: {V('4')}) {{ Box(%x) }}", ("3:", "expected 3", "got 4", "Box")),
    "broadcast": (f"def @main(%x: {V('4')}, %y: {V('5')}) {{ %x + %y }}", ("2:", "4", "5", "%x", "%y")),
    "broadcast_with_zero": (f"def @main(%x: {V('4')}, %y: {V('0')}) {{ %x + %y }}", ("2:", "4", "0")),
    "narrowing": (f"def @main(%x: {V('4', '?')}) {{ let %y: {V('3', '?')} = %x; %y }}", ("2:", "expected 3", "got 4", "%y")),
}  # fmt: skip
