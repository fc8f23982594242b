"""Faults of scope, arity and ADT names, each found with its place; big programs in one pass."""

from __future__ import annotations

import pytest

import nimblevm.relay.op  # noqa: F401  (fills the registry)
from nimblevm.errors import WellFormedError
from nimblevm.relay.ir import (
    Call,
    Clause,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    PatternConstructor,
    PatternVar,
    Span,
    Tuple,
    TypeData,
    Var,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import get
from nimblevm.relay.types import GlobalTypeVar, TypeVar, scalar_type
from nimblevm.relay.well_formed import check_well_formed, well_formed

F32 = scalar_type("float32")
LIST = GlobalTypeVar("List")
A = TypeVar("A")
CONS = Constructor("Cons", (A, LIST(A)), LIST, 0)
NIL = Constructor("Nil", (), LIST, 1)
LIST_DATA = TypeData(LIST, (A,), (CONS, NIL))


def module(body: Expr, *params: Var) -> IRModule:
    mod = IRModule({GlobalVar("main"): Function(params, body)})
    mod.add_type(LIST_DATA)
    return mod


def refused(mod: IRModule, text: str) -> None:
    with pytest.raises(WellFormedError, match=text):
        check_well_formed(mod)


def x_var() -> Var:
    return Var("x", F32, span=Span("t.rly", 3, 7))


def test_good() -> None:
    x, y = x_var(), Var("y")
    check_well_formed(module(Let(y, x, Tuple((y, x))), x))
    assert well_formed(Function((x,), x))
    assert well_formed(x)
    assert not well_formed(Let(x, y, Let(x, y, x)))


def test_unbound() -> None:
    refused(module(x_var()), r"t.rly:3:7: variable %x is not bound")


def test_let_does_not_bind_its_own_value() -> None:
    y = Var("y")
    refused(module(Let(y, y, y)), "%y is not bound")


def test_function_let_binds_its_own_value() -> None:
    f, x = Var("f"), x_var()
    check_well_formed(module(Let(f, Function((x,), Call(f, (x,))), f)))


def test_branch_variable_does_not_escape() -> None:
    c, x, y = Var("c", scalar_type("bool")), x_var(), Var("y")
    refused(module(Tuple((If(c, Let(y, x, y), x), y)), c, x), "%y is not bound")


def test_shared_node_outside_of_its_scope() -> None:
    x, y = x_var(), Var("y")
    shared = Tuple((y,))
    refused(module(Tuple((Let(y, x, shared), shared)), x), "%y is not bound")


def test_shared_node_in_two_scopes_that_both_bind() -> None:
    x, c, y, z = x_var(), Var("c", scalar_type("bool")), Var("y"), Var("z")
    shared = Tuple((x,))
    body = If(c, Let(y, x, shared), Let(z, x, shared))
    check_well_formed(module(body, c, x))


def test_bound_twice() -> None:
    x, y = x_var(), Var("y")
    refused(module(Let(y, x, Let(y, x, y)), x), "%y is bound twice")
    refused(module(Let(x, x, x), x), "%x is bound twice")


def test_parameter_twice() -> None:
    x = x_var()
    refused(module(x, x, x), "%x is bound twice")


def test_bound_in_two_functions() -> None:
    x = x_var()
    mod = IRModule({GlobalVar("f"): Function((x,), x), GlobalVar("g"): Function((x,), x)})
    refused(mod, "%x is bound twice")


def test_globals() -> None:
    refused(module(GlobalVar("nowhere")), "no function @nowhere")
    refused(module(Call(GlobalVar("main"), ())), "another GlobalVar")


def test_constructors() -> None:
    x = x_var()
    refused(module(Call(CONS, (x,)), x), "takes 2 arguments, got 1")
    ghost = Constructor("Ghost", (), LIST, 7)
    refused(module(Call(ghost, ())), "no constructor Ghost")
    alien = Constructor("Alien", (), GlobalTypeVar("Nowhere"), 0)
    refused(module(Call(alien, ())), "does not have")


def test_pattern_arity_and_double_variable() -> None:
    xs, h = Var("xs", LIST(F32)), Var("h")
    one = Match(xs, (Clause(PatternConstructor(CONS, (PatternVar(h),)), h),))
    refused(module(one, xs), "has 2 fields, the pattern 1")
    same = PatternConstructor(CONS, (PatternVar(h), PatternVar(h)))
    refused(module(Match(xs, (Clause(same, h),)), xs), "%h is bound twice")


def test_types() -> None:
    refused(module(x_var(), Var("y", GlobalTypeVar("Nowhere")())), "no type Nowhere")
    refused(module(x_var(), Var("y", LIST(F32, F32))), "takes 1 types, got 2")
    refused(module(x_var(), Var("y", TypeVar("B"))), "type variable B is not bound")
    mod = IRModule()
    mod.add_type(TypeData(LIST, (), (CONS, NIL)))
    refused(mod, "no parameter of List")


def test_generic_function_binds_its_type_variables() -> None:
    b = TypeVar("B")
    y = Var("y", b)
    check_well_formed(IRModule({GlobalVar("id"): Function((y,), y, b, (b,))}))


@pytest.mark.parametrize("count", [30_000])
def test_depth(count: int) -> None:
    x = x_var()
    add = get("add")
    deep: Expr = x
    for _ in range(count):
        deep = Call(add, (deep, deep))
    check_well_formed(module(deep, x))
    body: Expr = x
    for i in range(count):
        body = Let(Var(f"v{i}"), x, body)
    mod = module(body, x_var())
    refused(mod, "%x is not bound")
