"""Inference: the rules of docs/dims.md one by one."""

from __future__ import annotations

import pytest

from nimblevm.relay import dims
from nimblevm.relay.text import type_text
from nimblevm.relay.types import DimVar, TupleType
from tests.relay.inferred import DOUBLE, LIST, refused, result, shape, text_of, typed


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
