"""Variables, type variables and missing match cases."""

from __future__ import annotations

from nimblevm import relay
from nimblevm.relay import analysis
from nimblevm.relay.ir import (
    Call,
    Clause,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Tuple,
    TypeData,
    Var,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import get
from nimblevm.relay.types import GlobalTypeVar, TypeVar, scalar_type
from nimblevm.relay.visitor import post_order

F32 = scalar_type("float32")
COLOUR = GlobalTypeVar("Colour")
RED, GREEN, BLUE = (Constructor(n, (), COLOUR, i) for i, n in enumerate(("Red", "Green", "Blue")))
BOX = GlobalTypeVar("Box")
FULL = Constructor("Full", (COLOUR(), COLOUR()), BOX, 0)
EMPTY = Constructor("Empty", (), BOX, 1)
MOD = IRModule()
MOD.add_type(TypeData(COLOUR, (), (RED, GREEN, BLUE)))
MOD.add_type(TypeData(BOX, (), (FULL, EMPTY)))
ANY = PatternWildcard()


def p(constructor: Constructor, *parts: Pattern) -> Pattern:
    return PatternConstructor(constructor, parts)


def missing(*patterns: Pattern) -> list[str]:
    x = Var("x", F32)
    found = analysis.unmatched_cases(Match(x, tuple(Clause(q, x) for q in patterns)), MOD)
    return [analysis.pattern_text(q) for q in found]


def test_variables() -> None:
    x, y, z, f = Var("x", F32), Var("y"), Var("z"), GlobalVar("f")
    expr = Let(y, Call(f, (x,)), Tuple((y, z, y)))
    assert analysis.free_vars(expr) == (x, z)
    assert analysis.bound_vars(expr) == (y,)
    assert set(analysis.all_vars(expr)) == {x, y, z}
    assert analysis.global_calls(expr) == (f,)


def test_type_variables() -> None:
    a, b = TypeVar("A"), TypeVar("B")
    x, y = Var("x", a), Var("y", b)
    fn = Function((x, y), x, a, (a,))
    assert analysis.bound_type_vars(fn) == (a,)
    assert analysis.free_type_vars(fn) == (b,)
    assert set(analysis.all_type_vars(fn)) == {a, b}


def test_post_order_visits_shared_nodes_once() -> None:
    x = Var("x", F32)
    node: Expr = x
    for _ in range(200):
        node = Call(get("add"), (node, node))
    order = post_order(node)
    assert len([n for n in order if isinstance(n, Call)]) == 200
    assert order[-1] is node


def test_complete() -> None:
    assert missing(ANY) == []
    assert missing(PatternVar(Var("v"))) == []
    assert missing(p(RED), p(GREEN), p(BLUE)) == []
    assert missing(p(FULL, p(RED), ANY), p(FULL, ANY, ANY), p(EMPTY)) == []
    assert missing(PatternTuple((ANY, p(RED))), PatternTuple((p(RED), ANY)), ANY) == []


def test_missing() -> None:
    assert missing(p(RED)) == ["Green", "Blue"]
    assert missing(p(FULL, p(RED), ANY), p(EMPTY)) == ["Full(Green, _)", "Full(Blue, _)"]
    assert missing(p(FULL, ANY, ANY)) == ["Empty"]
    assert missing(PatternTuple((p(RED), ANY))) == ["(Green, _)", "(Blue, _)"]
    diagonal = [PatternTuple((p(c), p(c))) for c in (RED, GREEN, BLUE)]
    assert missing(*diagonal) == [
        "(Red, Green)", "(Red, Blue)", "(Green, Red)", "(Green, Blue)", "(Blue, Red)", "(Blue, Green)",
    ]  # fmt: skip


def test_deep_and_wide_patterns() -> None:
    deep: Pattern = p(RED)
    for _ in range(20_000):
        deep = PatternTuple((deep,))
    text = missing(deep)
    assert len(text) == 2
    assert text[0].startswith("((((")
    # Exponentially many cases: it stops, and says that something is missing.
    wide = [
        PatternTuple(tuple(p(c) if i == j else ANY for j in range(14)))
        for i in range(14)
        for c in (RED, GREEN)
    ]
    assert missing(*wide)


def test_variables_come_as_a_reader_meets_them() -> None:
    """As in TVM: parameters before the body, the variable of a let before its value, of a pattern before its clause."""
    a, b, c, d = (relay.var(name, shape=()) for name in "abcd")
    f = relay.Function([c, b], relay.Let(a, d, relay.Tuple([a, b])))
    assert analysis.bound_vars(f) == (c, b, a)
    assert analysis.all_vars(f) == (c, b, a, d)
    mod = relay.IRModule()
    _, cons, nil = relay.prelude.Prelude(mod).mod.get_type("List")
    match = relay.Match(
        d,
        [
            relay.Clause(relay.PatternConstructor(nil), c),
            relay.Clause(
                relay.PatternConstructor(cons, [relay.PatternVar(b), relay.PatternVar(a)]), a
            ),
        ],
    )
    assert analysis.bound_vars(match) == (b, a)
    assert analysis.all_vars(match) == (d, c, b, a)


def test_type_variables_of_types() -> None:
    a, b, c = (relay.TypeVar(name) for name in "abc")
    function = relay.FuncType([b], relay.TupleType([c]), [a])
    assert analysis.all_type_vars(function) == (a, b, c)
    assert analysis.bound_type_vars(function) == (a,)
    assert set(analysis.free_type_vars(function)) == {b, c}
    assert analysis.all_type_vars(relay.TupleType([c, a, c])) == (c, a)
    assert analysis.bound_type_vars(relay.TupleType([c])) == ()
