"""Inference: what the language adds to the rules of dims, depth, and what passes write."""

from __future__ import annotations

import pytest

from nimblevm.relay import dims
from nimblevm.relay.infer_type import infer_expr, infer_type, infer_type_of, signature
from nimblevm.relay.ir import (
    Call,
    Clause,
    Expr,
    Function,
    GlobalVar,
    Let,
    Match,
    PatternConstructor,
    PatternVar,
    RefRead,
    Tuple,
    Var,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import get
from nimblevm.relay.text import type_text
from nimblevm.relay.types import DimVar, FuncType, TensorType, TupleType, holes, scalar_type
from tests.relay.inferred import DOUBLE, LIST, M, N, refused, result, text_of, typed

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
        (node.op, node.type_args)
        for node in _nodes(mod.function("main"))
        if isinstance(node, Call) and isinstance(node.op, GlobalVar)
    ]
    assert all(len(args) == len(mod.function(var).type_params) for var, args in calls)


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
