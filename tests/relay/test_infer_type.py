"""Inference: the rules of docs/dims.md one by one, then what the language adds, then size."""

from __future__ import annotations

import pytest

import nimblevm.relay.op  # noqa: F401  (fills the registry)
from nimblevm.errors import RelayTypeError
from nimblevm.relay import dims
from nimblevm.relay.dim_facts import DimFacts
from nimblevm.relay.infer_type import infer_expr, infer_type, infer_type_of, signature
from nimblevm.relay.ir import (
    Call,
    Clause,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Let,
    Match,
    PatternConstructor,
    PatternVar,
    RefRead,
    Tuple,
    Var,
)
from nimblevm.relay.op.registry import get
from nimblevm.relay.parser import parse_module
from nimblevm.relay.text import type_text
from nimblevm.relay.type_context import (
    Demand,
    demands,
    instantiate,
    narrowing,
    result_over_axes,
)
from nimblevm.relay.types import (
    DimVar,
    FuncType,
    TensorType,
    TupleType,
    Type,
    free_dims,
    holes,
    scalar_type,
)
from nimblevm.relay.well_formed import check_well_formed

LIST = "type List[A] { Cons(A, List[A]), Nil }\n"
N, M = DimVar("n"), DimVar("m")


def typed(text: str) -> IRModule:
    """Parsed, checked and inferred; inferring again must change nothing."""
    mod = parse_module('#[version = "0.0.5"]\n' + text, "t.rly")
    check_well_formed(mod)
    done = infer_type(mod)
    check_well_formed(done)
    again = infer_type(done)
    for var in done:
        assert again.function(var) is done.function(var), f"@{var.name_hint} changed"
    return done


def result(mod: IRModule, name: str = "main") -> Type:
    ret = mod.function(name).ret_type
    assert ret is not None
    return ret


def text_of(text: str, name: str = "main") -> str:
    return type_text(result(typed(text), name))


def refused(text: str, *parts: str) -> None:
    with pytest.raises(RelayTypeError) as caught:
        typed(text)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def shape(type_: Type) -> tuple[dims.Dim, ...]:
    assert isinstance(type_, TensorType)
    return type_.shape


# --- the rules of dims ----------------------------------------------------------------------------

DOUBLE = """def @double(%x: Tensor[(?n, 3), float32]) -> Tensor[(?n * 2, 3), float32] {
  concatenate((%x, %x), axis=0)
}
"""


def test_global_is_polymorphic_in_its_named_dims() -> None:
    mod = typed(
        DOUBLE
        + """def @main(%a: Tensor[(5, 3), float32], %b: Tensor[(?m, 3), float32]) {
  (@double(%a), @double(%b), @double(@double(%b)))
}"""
    )
    ret = result(mod)
    m = shape(mod.function("main").params[1].checked_type or ret)[0]
    assert isinstance(ret, TupleType)
    assert [shape(f)[0] for f in ret.fields] == [10, dims.mul(2, m), dims.mul(4, m)]


def test_named_dims_of_a_call_must_agree() -> None:
    two = """def @f(%x: Tensor[(?n), float32], %y: Tensor[(?n), float32]) -> Tensor[(?n), float32] { %x }
"""
    refused(
        two + "def @main(%a: Tensor[(5), float32], %b: Tensor[(6), float32]) { @f(%a, %b) }",
        "?n is 5 by argument 0, but 6 here",
        "t.rly:2:35",
    )
    # An unknown that meets 5 is checked at run time, and is 5 afterwards.
    assert (
        text_of(
            two + "def @main(%a: Tensor[(?), float32], %b: Tensor[(5), float32]) { @f(%a, %b) }"
        )
        == "Tensor[(5), float32]"
    )


def test_name_only_inside_larger_expressions() -> None:
    refused(
        "def @f(%x: Tensor[(?n + 1), float32]) -> Tensor[(?n), float32] { %x }",
        "occurs only inside ?n + 1",
        "t.rly:2:8",
    )
    mod = typed(
        """def @f(%x: Tensor[(?n + 1), float32], %y: Tensor[(?n), float32]) -> Tensor[(?n), float32] { %y }
def @main(%a: Tensor[(4), float32], %b: Tensor[(3), float32]) { @f(%a, %b) }"""
    )
    assert shape(result(mod)) == (3,)
    refused(
        """def @f(%x: Tensor[(?n + 1), float32], %y: Tensor[(?n), float32]) -> Tensor[(?n), float32] { %y }
def @main(%a: Tensor[(4), float32]) { @f(%a, %a) }""",
        "expected ?n + 1 = 5, got 4",
    )


def test_a_tuple_field_counts_as_a_parameter() -> None:
    typed(
        """def @f(%x: Tensor[(?n + 1), float32], %y: (int32, Tensor[(?n), float32])) { (%x, %y) }"""
    )


def test_result_dim_is_existential() -> None:
    mod = typed(
        """def @f(%x: Tensor[(?n), float32]) -> Tensor[(?k), float32] { concatenate((%x, %x)) }
def @main(%x: Tensor[(3), float32]) { (@f(%x), @f(%x)) }"""
    )
    ret = result(mod)
    assert isinstance(ret, TupleType)
    first, second = (shape(f)[0] for f in ret.fields)
    assert isinstance(first, DimVar)
    assert isinstance(second, DimVar)
    assert first is not second


def test_dim_only_inside_an_adt_or_function_type_is_existential() -> None:
    mod = typed(
        LIST
        + """def @first(%xs: List[Tensor[(?k), float32]]) -> Tensor[(?k), float32] {
  match? (%xs) { Cons(%h, _) => %h }
}
def @main(%x: Tensor[(5), float32]) { (@first(Cons(%x, Nil)), @first(Cons(%x, Nil))) }"""
    )
    ret = result(mod)
    assert isinstance(ret, TupleType)
    sizes = [shape(f)[0] for f in ret.fields]
    assert all(isinstance(s, DimVar) for s in sizes)
    assert sizes[0] is not sizes[1]


def test_local_function_sees_outer_dims_as_numbers() -> None:
    outer = "def @main(%x: Tensor[(?n, 4), float32], %z: Tensor[(5, 4), float32]) {\n"
    mod = typed(
        outer + "  let %f = fn (%y: Tensor[(?n, 4), float32]) { tanh(%y) };\n  (%f(%x), %f(%z))\n}"
    )
    ret = result(mod)
    n = shape(mod.function("main").params[0].checked_type or ret)[0]
    assert isinstance(ret, TupleType)
    # Not instantiated at 5: the size is the outer one, checked when %z goes in.
    assert [shape(f)[0] for f in ret.fields] == [n, n]
    refused(
        outer
        + """  let %f = fn (%y: Tensor[(?n + 1, 4), float32]) { tanh(%y) };
  %f(%x)
}""",
        "expected ?n + 1, got ?n",
    )


def test_own_dims_of_a_local_function_are_instantiated() -> None:
    assert (
        text_of(
            """def @main(%x: Tensor[(?n, 4), float32]) {
  let %f = fn (%y: Tensor[(?, 4), float32]) { concatenate((%y, %y), axis=0) };
  (%f(%x), %f(%f(%x)))
}"""
        )
        == "(Tensor[(2 * ?n, 4), float32], Tensor[(4 * ?n, 4), float32])"
    )


def test_types_of_definitions_use_unknowns_that_claim_nothing() -> None:
    mod = typed(
        """type Seq { Seq(Tensor[(?, 4), float32]) }
def @main(%s: Seq, %t: Seq) {
  match (%s) { Seq(%a) => match (%t) { Seq(%b) => (%a, %b) } }
}"""
    )
    ret = result(mod)
    assert isinstance(ret, TupleType)
    assert shape(ret.fields[0])[0] is not shape(ret.fields[1])[0]


def test_recursion_uses_the_written_signature() -> None:
    mod = typed(
        """def @grow(%x: Tensor[(?n), float32], %i: int32) -> Tensor[(?k), float32] {
  if (equal(%i, 0)) { %x } else { @grow(concatenate((%x, %x)), subtract(%i, 1)) }
}"""
    )
    assert type_text(result(mod, "grow")) == "Tensor[(?k), float32]"
    same = "def @f(%x: Tensor[(?n), float32], %i: int32) -> Tensor[(?n), float32] {\n"
    typed(same + "  if (equal(%i, 0)) { %x } else { @f(tanh(%x), subtract(%i, 1)) }\n}")


def test_a_join_of_different_dims_is_fresh() -> None:
    mod = typed(
        """def @main(%c: bool, %x: Tensor[(?n, 4), float32], %y: Tensor[(?m, 4), float32],
                     %z: Tensor[(5, 4), float32], %w: Tensor[(6, 4), float32]) {
  (if (%c) { %x } else { %y }, if (%c) { %z } else { %w }, if (%c) { %x } else { tanh(%x) })
}"""
    )
    ret = result(mod)
    params = mod.function("main").params
    n = shape(params[1].checked_type or ret)[0]
    assert isinstance(ret, TupleType)
    first, second, third = (shape(f) for f in ret.fields)
    assert isinstance(first[0], DimVar)
    assert first[0].name is None
    assert isinstance(second[0], DimVar)
    assert first[0] is not second[0]
    assert third == (n, 4)
    refused("def @main(%c: bool, %x: float32, %y: int32) { if (%c) { %x } else { %y } }", "dtype")


def test_a_join_through_match_and_containers() -> None:
    assert (
        text_of(
            LIST
            + """def @main(%c: bool, %x: Tensor[(5), float32], %y: Tensor[(6), float32]) {
  (Cons(%x, Cons(%y, Nil)), if (%c) { Cons(%x, Nil) } else { Cons(%y, Nil) },
   if (%c) { ref(%x) } else { ref(%y) })
}"""
        )
        == "(List[Tensor[(?), float32]], List[Tensor[(?), float32]], ref(Tensor[(?), float32]))"
    )


def test_what_comes_out_of_a_container_is_a_claim() -> None:
    mod = typed(
        LIST
        + """def @main(%xs: List[Tensor[(?, 4), float32]], %ys: List[Tensor[(?k, 4), float32]]) {
  match? (%xs) {
    Cons(%a, Cons(%b, _)) => match? (%ys) { Cons(%c, Cons(%d, _)) => (%a, %b, %c, %d) }
  }
}"""
    )
    ret = result(mod)
    assert isinstance(ret, TupleType)
    a, b, c, d = (shape(f)[0] for f in ret.fields)
    assert a is not b  # anonymous: nothing is claimed, each element has its own size
    assert c is d  # named: claimed (insert_checks checks it)


def test_refs_forget_unknown_dims_and_keep_dtype_and_rank() -> None:
    mod = typed(
        """def @main(%x: Tensor[(?n, 4), float32]) {
  let %r = ref(%x);
  let %u = ref_write(%r, concatenate((%x, %x), axis=0));
  (ref_read(%r), ref_read(%r))
}"""
    )
    ret = result(mod)
    assert isinstance(ret, TupleType)
    assert shape(ret.fields[0])[1] == 4
    assert shape(ret.fields[0])[0] is not shape(ret.fields[1])[0]
    start = "def @main(%x: Tensor[(?n, 4), float32], %y: Tensor[(4), float32]) { let %r = ref(%x); "
    refused(start + "ref_write(%r, %y) }", "rank")
    refused(start + 'ref_write(%r, cast(%x, dtype="int32")) }', "dtype")


def test_a_ref_keeps_static_dims_until_another_size_may_be_stored() -> None:
    keep = """def @main(%x: Tensor[(3, 4), float32]) {
  let %r = ref(%x);
  let %u = ref_write(%r, tanh(%x));
  ref_read(%r)
}"""
    assert text_of(keep) == "Tensor[(3, 4), float32]"
    grow = """def @main(%x: Tensor[(1, 4), float32], %y: Tensor[(5), float32]) {
  let %r = ref(%x);
  let %s = ref(%y);
  let %u = ref_write(%r, concatenate((ref_read(%r), %x), axis=0));
  (ref_read(%r), ref_read(%s))
}"""
    assert text_of(grow) == "(Tensor[(?, 4), float32], Tensor[(5), float32])"


def test_a_ref_that_is_stored_to_through_an_alias() -> None:
    alias = """def @set(%r: ref(Tensor[(?), float32]), %x: Tensor[(?), float32]) { ref_write(%r, %x) }
def @main(%c: bool, %x: Tensor[(3), float32], %y: Tensor[(?), float32]) {
  let %r = ref(%x);
  let %u = @set(%r, %y);
  ref_read(%r)
}"""
    assert text_of(alias) == "Tensor[(?), float32]"
    joined = """def @main(%c: bool, %x: Tensor[(3), float32], %y: Tensor[(4), float32]) {
  let %r = ref(%x);
  let %s = ref(%y);
  let %t = if (%c) { %r } else { %s };
  let %u = ref_write(%t, %y);
  (ref_read(%r), ref_read(%s), ref_read(%t))
}"""
    assert text_of(joined) == ("(Tensor[(?), float32], Tensor[(?), float32], Tensor[(?), float32])")


def test_an_annotated_ref_holds_what_is_written() -> None:
    start = """def @main(%x: Tensor[(3), float32], %y: Tensor[(4), float32]) {
  let %r: ref(Tensor[(3), float32]) = ref(%x);
  """
    refused(start + "ref_write(%r, %y)\n}", "expected 3, got 4", "for what the ref holds")


def test_closure_results_are_claims() -> None:
    mod = typed(
        """def @main(%f: fn (Tensor[(?, 4), float32]) -> Tensor[(?, 4), float32],
                     %g: fn (Tensor[(?k, 4), float32]) -> Tensor[(?k, 4), float32],
                     %x: Tensor[(5, 4), float32]) {
  (%f(%x), %f(%x), %g(%x))
}"""
    )
    ret = result(mod)
    assert isinstance(ret, TupleType)
    first, second, third = (shape(f)[0] for f in ret.fields)
    assert isinstance(first, DimVar)
    assert first is not second
    assert third == 5


def test_widening_is_free_and_narrowing_allowed() -> None:
    wide = "def @wide(%x: Tensor[(?, 4), float32]) -> Tensor[(?, ?), float32] { %x }\n"
    assert text_of(wide + "def @main(%x: Tensor[(5, 4), float32]) { @wide(%x) }") == (
        "Tensor[(?, ?), float32]"
    )
    narrow = "def @narrow(%x: Tensor[(5, 4), float32]) -> Tensor[(5, 4), float32] { %x }\n"
    assert text_of(narrow + "def @main(%x: Tensor[(?, ?), float32]) { @narrow(%x) }") == (
        "Tensor[(5, 4), float32]"
    )
    refused(narrow + "def @main(%x: Tensor[(6, 4), float32]) { @narrow(%x) }", "expected 5, got 6")
    assert (
        text_of(
            "def @main(%x: Tensor[(?, 4), float32]) { let %y: Tensor[(5, 4), float32] = %x; %y }"
        )
        == "Tensor[(5, 4), float32]"
    )


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("?", "5", "5"),
        ("?n", "1", "?n"),
        ("?n", "?n", "?n"),
        ("?n", "0", "0"),
        ("1", "1", "1"),
    ],
)
def test_broadcast_of_one_axis(left: str, right: str, expected: str) -> None:
    assert (
        text_of(
            f"def @main(%x: Tensor[({left}), float32], %y: Tensor[({right}), float32]) {{ add(%x, %y) }}"
        )
        == f"Tensor[({expected}), float32]"
    )


def test_broadcast_of_two_unknowns_is_an_expression() -> None:
    mod = typed(
        """def @main(%x: Tensor[(?n, 4), float32], %y: Tensor[(?m, 1), float32]) {
  let %z = add(%x, %y);
  (%z, add(%z, %x))
}"""
    )
    ret = result(mod)
    n, m = (shape(p.checked_type or ret)[0] for p in mod.function("main").params)
    assert isinstance(ret, TupleType)
    assert [shape(f) for f in ret.fields] == [(dims.bcast(n, m), 4)] * 2
    refused(
        "def @main(%x: Tensor[(?n), float32], %y: Tensor[(?n + 1), float32]) "
        "{ let %z: Tensor[(?n), float32] = %y; %z }",
        "expected ?n, got ?n + 1",
    )


def test_a_signature_undefined_at_the_sizes_of_a_call() -> None:
    less = "def @f(%x: Tensor[(?n), float32]) -> Tensor[(?n - 3), float32] { strided_slice(%x, begin=[3], end=[2147483647]) }\n"
    refused(
        less + "def @main(%x: Tensor[(2), float32]) { @f(%x) }",
        "t.rly:3:",
        "must be an integer >= 0",
    )
    both = "def @f(%x: Tensor[(?n), float32], %y: Tensor[(?m), float32]) { add(%x, %y) }\n"
    refused(
        both + "def @main(%x: Tensor[(2), float32], %y: Tensor[(3), float32]) { @f(%x, %y) }",
        "sizes 2 and 3 can't be broadcast",
    )


def test_rank_0_and_empty() -> None:
    assert text_of("def @main(%x: float32) { add(%x, 1f) }") == "float32"
    assert (
        text_of(
            """def @main(%x: Tensor[(0, 3), float32], %y: float32) {
  (add(%x, %y), concatenate((%x, %x), axis=0))
}"""
        )
        == "(Tensor[(0, 3), float32], Tensor[(0, 3), float32])"
    )


# --- the language -----------------------------------------------------------------------------------


def test_prelude_like_generics() -> None:
    mod = typed(
        LIST
        + """def @map[A, B](%f: fn (A) -> B, %xs: List[A]) -> List[B] {
  match (%xs) { Cons(%h, %t) => Cons(%f(%h), @map(%f, %t)), Nil => Nil }
}
def @foldl[A, B](%f: fn (A, B) -> A, %z: A, %xs: List[B]) -> A {
  match (%xs) { Cons(%h, %t) => @foldl(%f, %f(%z, %h), %t), Nil => %z }
}
def @id[A](%x: A) -> A { %x }
def @main(%x: Tensor[(3), float32]) {
  let %xs = Cons(%x, Cons(%x, Nil));
  (@map(fn (%y: Tensor[(?), float32]) { sum(%y) }, %xs), @map(@id, %xs),
   @foldl(fn (%a: int32, %y: Tensor[(3), float32]) { add(%a, 1) }, 0, %xs))
}"""
    )
    assert type_text(result(mod)) == "(List[float32], List[Tensor[(3), float32]], int32)"
    calls = [
        node
        for node in _nodes(mod.function("main"))
        if isinstance(node, Call) and isinstance(node.op, GlobalVar)
    ]
    assert all(len(c.type_args) == len(mod.function(c.op.name_hint).type_params) for c in calls)


def _nodes(root: Expr) -> list[Expr]:
    from_root = [root]
    for node in from_root:
        match node:
            case Function(body=body):
                from_root.append(body)
            case Let(value=value, body=body):
                from_root.extend((value, body))
            case Tuple(fields=fields):
                from_root.extend(fields)
    return from_root


def test_polymorphic_recursion() -> None:
    assert (
        text_of(
            """type Nest[A] { Z(A), S(Nest[(A, A)]) }
def @depth[A](%n: Nest[A]) -> int32 { match (%n) { Z(_) => 0, S(%m) => add(1, @depth(%m)) } }
def @main(%x: float32) { @depth(S(Z((%x, %x)))) }"""
        )
        == "int32"
    )


def test_mutual_recursion_without_annotations() -> None:
    mod = typed(
        """def @even(%n: int32) { if (equal(%n, 0)) { True } else { @odd(subtract(%n, 1)) } }
def @odd(%n: int32) { if (equal(%n, 0)) { False } else { @even(subtract(%n, 1)) } }
def @main() { @even(5) }"""
    )
    assert type_text(result(mod)) == "bool"


def test_recursion_without_annotation_keeps_what_it_can_prove() -> None:
    loop = """def @main(%x: Tensor[(?n, 4), float32]) {
  let %loop = fn (%i: int32, %a: Tensor[(?n, 4), float32]) {
    if (less(%i, 9)) { %loop(add(%i, 1), BODY) } else { (%i, %a) }
  };
  %loop(0, %x)
}"""
    assert text_of(loop.replace("BODY", "tanh(%a)")) == "(int32, Tensor[(?n, 4), float32])"
    grows = """def @grow(%x: Tensor[(?n, 4), float32], %i: int32) {
  if (equal(%i, 0)) { %x } else { @grow(concatenate((%x, %x), axis=0), subtract(%i, 1)) }
}
def @main(%x: Tensor[(3, 4), float32]) { @grow(%x, 2) }"""
    assert text_of(grows) == "Tensor[(?, ?), float32]"


def test_recursion_whose_assumption_fails_with_an_error_is_tried_again() -> None:
    # On the assumption that @f returns (3), the addition is refuted; it returns unknown sizes.
    text = """def @f(%x: Tensor[(?n), float32], %i: int32) {
  if (equal(%i, 0)) { %x } else {
    let %y = @f(concatenate((%x, %x)), subtract(%i, 1));
    let %z: Tensor[(?n * 2 + 1), float32] = concatenate((%y, ones(shape=[1], dtype="float32")));
    %z
  }
}"""
    assert text_of(text, "f") == "Tensor[(?), float32]"


def test_endless_recursion_has_no_type() -> None:
    refused("def @f(%x: int32) { @f(%x) }", "can't infer the type of the result of @f")


def test_higher_order_holes() -> None:
    assert (
        text_of(
            """def @main(%x: float32) {
  let %twice = fn (%f, %y) { %f(%f(%y)) };
  let %first = fn (%p) { %p.0 };
  let %store = fn (%r) { ref_write(%r, %x) };
  (%twice(fn (%z) { add(%z, 1f) }, %x), %first((%x, 1)), %store(ref(%x)))
}"""
        )
        == "(float32, float32, ())"
    )


def test_let_polymorphism_is_explicit() -> None:
    assert (
        text_of(
            """def @main(%x: float32) {
  let %id = fn [A](%y: A) -> A { %y };
  (%id(%x), %id((%x, 1)))
}"""
        )
        == "(float32, (float32, int32))"
    )
    refused(
        "def @main(%x: float32) { let %id = fn (%y) { %y }; (%id(%x), %id((%x, 1))) }",
        "expected a tensor, got a tuple of 2",
    )


def test_shadowing() -> None:
    assert (
        text_of(
            "def @main(%x: Tensor[(?n), float32]) { let %x = add(%x, 1f); let %x = (%x, 1); %x.1 }"
        )
        == "int32"
    )


@pytest.mark.parametrize(
    ("clauses", "missing"),
    [
        ("Nil => 0, Cons(_, Nil) => 1, Cons(_, Cons(_, _)) => 2", None),
        ("Cons(_, Nil) => 1, Nil => 0", "Cons(_, Cons(_, _))"),
        ("_ => 1", None),
        ("Cons(_, _) => 1", "Nil"),
    ],
)
def test_match_completeness(clauses: str, missing: str | None) -> None:
    text = LIST + f"def @main(%xs: List[int32]) {{ match (%xs) {{ {clauses} }} }}"
    if missing is None:
        typed(text)
    else:
        refused(text, f"missing: {missing}")
        typed(text.replace("match (", "match? ("))


def test_match_on_tuples_of_lists() -> None:
    pair = LIST + "def @main(%a: List[int32], %b: List[int32]) { match ((%a, %b)) { "
    typed(pair + "(Cons(_, _), Cons(_, _)) => 1, (Nil, _) => 2, (_, Nil) => 3 } }")
    refused(pair + "(Cons(_, _), Cons(_, _)) => 1, (Nil, Nil) => 2 } }", "(Nil, Cons(_, _))")


def test_no_hole_and_no_missing_type_is_left() -> None:
    mod = typed(
        LIST
        + """def @main(%x: Tensor[(?n), float32]) {
  let %xs = Nil;
  let %f = fn (%y) { Cons(%y, %xs) };
  match (%f(%x)) { Cons(%h, _) => %h, Nil => %x }
}"""
    )
    for node in _nodes(mod.function("main")):
        if not isinstance(node, GlobalVar):
            assert node.checked_type is not None
            assert not holes(node.checked_type)


def test_free_variables_and_signatures() -> None:
    x = Var("x", TensorType((N, 4)))
    expr = infer_expr(Call(get("tanh"), (x,)))
    assert expr.checked_type is TensorType((N, 4))
    assert infer_type_of(Tuple((x,))) is TupleType([TensorType((N, 4))])
    mod = typed(DOUBLE)
    assert isinstance(signature(mod.get_global_var("double"), mod), FuncType)


def test_annotated_variables_keep_their_identity() -> None:
    x, y = Var("x", TensorType((N,))), Var("y", TensorType((N,)))
    mod = IRModule({GlobalVar("main"): Function((x,), Let(y, x, y))})
    done = infer_type(mod).function("main")
    assert done.params[0] is x
    assert isinstance(done.body, Let)
    assert done.body.var is y


# --- what the compiler asks -------------------------------------------------------------------------


def test_demands_of_a_call() -> None:
    x, w = Var("x", TensorType((N, 300))), Var("w", TensorType((512, M)))
    dense = get("nn.dense")
    call = Call(dense, (x, w), dense.attrs() if dense.attrs else None)
    found, ret = demands(call, (TensorType((N, 300)), TensorType((512, M))))
    assert found == [Demand(1, 1, 300)]
    assert ret is TensorType((N, 512))
    facts = DimFacts()
    facts.assume_equal(M, 300)
    assert demands(call, (TensorType((N, 300)), TensorType((512, M))), facts)[0] == []


def test_demands_of_a_broadcast() -> None:
    x, y = Var("x"), Var("y")
    call = Call(get("add"), (x, y))
    found, ret = demands(call, (TensorType((5, 4)), TensorType((N, 1))))
    assert found == [Demand(1, shape=(5, 4))]
    assert ret is TensorType((5, 4))
    found, ret = demands(call, (TensorType((N,)), TensorType((M,))))
    assert found == []
    assert ret is TensorType((dims.bcast(N, M),))


def test_narrowing_lists_axes() -> None:
    have = TupleType([TensorType((M, 4)), scalar_type("int32")])
    want = TupleType([TensorType((5, 4)), scalar_type("int32")])
    (one,) = narrowing(have, want)
    assert (one.path, one.axis, one.actual, one.expected, one.binds) == ((0,), 0, M, 5, False)
    (bound,) = narrowing(TensorType((5, 5)), TensorType((N, 5)))
    assert bound.binds
    assert bound.expected is N
    twice = narrowing(TensorType((M, 5)), TensorType((N, N)))
    assert [n.binds for n in twice] == [True, False]
    assert narrowing(TensorType((N,)), TensorType((N,)), DimFacts([N])) == []
    assert len(narrowing(TensorType((M,)), TensorType((N,)), DimFacts([N]))) == 1


def test_instantiate_a_signature() -> None:
    sig = FuncType([TensorType((N,)), TensorType((dims.add(N, 1),))], TensorType((dims.mul(2, N),)))
    made = instantiate(sig, (TensorType((M,)), TensorType((7,))))
    assert made.dims == {N: M}
    assert made.params == (TensorType((M,)), TensorType((dims.add(M, 1),)))
    assert made.result is TensorType((dims.mul(2, M),))


def test_result_over_axes_stays_small() -> None:
    big: dims.Dim = N
    for _ in range(50):
        big = dims.add(big, DimVar())
    call = Call(get("add"), (Var("x"), Var("y")))
    ret, mapping = result_over_axes(call, (TensorType((big,)), TensorType((1,))))
    (var,) = free_dims(ret)
    assert mapping == {var: big}


# --- size -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_depth_is_no_limit(count: int) -> None:
    x = Var("x", TensorType((N, 4)))
    add, tanh = get("add"), get("tanh")
    deep: Expr = x
    for _ in range(count):
        deep = Call(add, (deep, deep))
    for _ in range(count):
        deep = Call(tanh, (deep,))
    names = [Var(f"v{i}") for i in range(count)]
    body: Expr = names[-1]
    for i in range(count - 1, -1, -1):
        body = Let(names[i], Call(tanh, (names[i - 1],)) if i else deep, body)
    mod = infer_type(IRModule({GlobalVar("main"): Function((x,), body)}))
    assert mod.function("main").ret_type is TensorType((N, 4))
    assert infer_type(mod).function("main") is mod.function("main")


def test_deep_types_are_no_limit() -> None:
    x = Var("x", TensorType((N,)))
    nested: Expr = x
    for _ in range(5_000):
        nested = Tuple((nested,))
    c = Var("c", scalar_type("bool"))
    fn = Function((c, x), nested)
    mod = infer_type(IRModule({GlobalVar("main"): fn}))
    assert isinstance(mod.function("main").ret_type, TupleType)


# --- what passes write ------------------------------------------------------------------------------


def test_match_type_makes_a_fact() -> None:
    text = """def @main(%x: Tensor[(?n, 4), float32], %y: Tensor[(?, 4), float32]) {
  let %z = vm.match_type(%y, type=Tensor[(?n, 4), float32]);
  add(%x, %z)
}"""
    assert text_of(text) == "Tensor[(?n, 4), float32]"


def test_call_of_a_fused_group_keeps_every_dim() -> None:
    x = Var("x", TensorType((DimVar(), dims.add(N, 1))))
    n = Var("n", TensorType((N,)))
    p = Var("p", x.type_annotation)
    group = Function((p,), Call(get("tanh"), (p,)), attrs={"Primitive": 1})
    main = Function((x, n), Call(group, (x,)))
    done = infer_type(IRModule({GlobalVar("main"): main})).function("main")
    assert done.ret_type is x.type_annotation


def test_lifted_function_knows_dims_by_its_parameters() -> None:
    scalar = scalar_type("int64")
    k, y = Var("k", scalar), Var("y", TensorType((dims.add(N, 1),)))
    lifted = GlobalVar("lifted")
    lifted_fn = Function((k, y), y, y.type_annotation, attrs={"dim_params": ((0, N),)})
    dim_value = get("vm.dim_value")
    x = Var("x", TensorType((M,)))
    z = Var("z", TensorType((dims.add(M, 1),)))
    d = Var("d")
    assert dim_value.attrs is not None
    call = Call(lifted, (d, z))
    main = Function((x, z), Let(d, Call(dim_value, (), dim_value.attrs(M)), call))
    done = infer_type(IRModule({GlobalVar("main"): main, lifted: lifted_fn}))
    assert done.function("main").ret_type is TensorType((dims.add(M, 1),))


def test_claims_that_a_pass_took_away_stay_away() -> None:
    mod = typed(
        LIST
        + """def @main(%xs: List[Tensor[(3), float32]], %r: ref(Tensor[(4), float32])) {
  match? (%xs) { Cons(%h, _) => (%h, ref_read(%r)) }
}"""
    )
    main = mod.function("main")
    match = main.body
    assert isinstance(match, Match)
    pattern, rhs = match.clauses[0].lhs, match.clauses[0].rhs
    assert isinstance(pattern, PatternConstructor)
    assert isinstance(rhs, Tuple)
    raw = Var("raw", checked_type=TensorType((DimVar(),)))
    read = RefRead(main.params[1], checked_type=TensorType((DimVar(),)))
    lhs = PatternConstructor(pattern.constructor, (PatternVar(raw), pattern.patterns[1]))
    body = Match(match.data, (Clause(lhs, Tuple((raw, read))),), complete=False)
    mod["main"] = Function(main.params, body)
    ret = result(infer_type(mod))
    assert ret is TupleType([raw.checked_type, read.checked_type])  # type: ignore[list-item]
