"""Visitors: order, memo, identity of what does not change, depth."""

from __future__ import annotations

import pytest

from nimblevm import relay
from nimblevm.relay.visitor import with_children
from tests.relay.random_ir import random_module

PROGRAM = """#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil }
def @main(%x: float32, %l: List[float32]) {
  let %f = fn (%a) { tanh(%a) };
  %0 = %f(%x);
  let %r = ref((%0, %0));
  ref_write(%r, (%x, 1f));
  if (%x < ref_read(%r).0) { match (%l) { Cons(%h, _) => %h, Nil => %x } } else { @main(%x, Nil) }
}
"""


def main() -> relay.Function:
    return relay.parse_module(PROGRAM).function("main")


def test_post_order() -> None:
    order = relay.post_order(main())
    assert len(order) == len(set(order))
    place = {node: i for i, node in enumerate(order)}
    for node in order:
        assert all(place[child] < place[node] for child in relay.ir.children(node))
    seen: list[relay.Expr] = []
    relay.post_order_visit(order[-1], seen.append)
    assert seen == order


class Counter(relay.ExprVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def visit_call(self, call: relay.Call) -> None:
        super().visit_call(call)
        self.seen.append(str(call.op))

    def visit_constant(self, const: relay.Constant) -> None:
        self.seen.append(str(const))

    def visit_pattern(self, pattern: relay.Pattern) -> None:
        self.seen.append(str(pattern))


def test_expr_visitor_sees_each_node_once_in_order() -> None:
    counter = Counter()
    counter.visit(main())
    assert counter.seen == ["tanh", "%f", "1f", "less", "Cons(%h, _)", "Nil", "Nil", "@main"]


def test_memo_gives_results_of_children() -> None:
    class Size(relay.ExprFunctor):
        """Nodes of the tree that a DAG stands for."""

        def visit_call(self, call: relay.Call) -> int:
            return 1 + sum(self.visit(arg) for arg in call.args)

        def visit_var(self, var: relay.Var) -> int:
            return 1

        def visit_op(self, op: relay.Op) -> int:
            return 0

    expr = relay.parse_expr(
        "free_var %x: float32; %0 = add(%x, %x);"
        + "".join(f"%{i} = add(%{i - 1}, %{i - 1});" for i in range(1, 50))
        + "%49"
    )
    assert Size().visit(expr) == 2**51 - 1


def test_functor_names_the_missing_method() -> None:
    with pytest.raises(NotImplementedError, match="visit_constant"):
        relay.ExprFunctor().visit(relay.parse_expr("1"))


def test_operands_hold_back_children() -> None:
    class Outer(Counter):
        def operands(self, expr: relay.Expr) -> tuple[relay.Expr, ...]:
            return () if isinstance(expr, relay.Function) else super().operands(expr)  # type: ignore[return-value]

        def visit_function(self, func: relay.Function) -> None:
            return None

    outer = Outer()
    outer.visit(main().body)
    assert "tanh" not in outer.seen


@pytest.mark.parametrize("seed", range(30))
def test_mutator_keeps_what_does_not_change(seed: int) -> None:
    module = random_module(seed)
    for function in module.functions.values():
        assert relay.ExprMutator().visit(function) is function
        assert relay.rewrite(function, lambda e: e) is function


class Rename(relay.ExprMutator):
    def visit_var(self, var: relay.Var) -> relay.Expr:
        return relay.Var(f"new_{var.name_hint}", var.type_annotation)


@pytest.mark.parametrize("seed", range(30))
def test_mutator_renames_consistently(seed: int) -> None:
    module = random_module(seed)
    for function in module.functions.values():
        # Patterns keep their variables unless visit_pattern is overridden, so only matchless functions are closed.
        new = Rename().visit(function)
        if not any(isinstance(n, relay.Match) for n in relay.post_order(function)):
            relay.assert_structural_equal(new, function)


class NegateConstants(relay.ExprMutator):
    def visit_constant(self, const: relay.Constant) -> relay.Expr:
        return relay.Constant(-const.data)


def test_mutator_rebuilds_paths_and_keeps_spans_and_sharing() -> None:
    function = relay.parse_expr("fn (%x) { %0 = add(%x, 1f); let %y = tanh(%x); (%0, %0, %y) }")
    new = NegateConstants().visit(function)
    relay.assert_structural_equal(
        new, relay.parse_expr("fn (%x) { %0 = add(%x, -1f); let %y = tanh(%x); (%0, %0, %y) }")
    )
    assert new.span is function.span
    assert new.body.value is function.body.value  # type: ignore[attr-defined]
    fields = new.body.body.fields
    assert fields[0] is fields[1]


def test_rewrite_is_bottom_up() -> None:
    def simplify(node: relay.Expr) -> relay.Expr:
        if isinstance(node, relay.TupleGetItem) and isinstance(node.tuple_value, relay.Tuple):
            return node.tuple_value.fields[node.index]
        return node

    expr = relay.parse_expr("free_var %x: float32; (((%x, 1).0, 2).0, 3).0")
    assert isinstance(relay.rewrite(expr, simplify), relay.Var)


def test_with_children_checks_the_count() -> None:
    with pytest.raises(ValueError, match="zip"):
        with_children(relay.parse_expr("(1, 2)"), ())


def deep(kind: str, n: int) -> relay.Expr:
    x = relay.Var("x", relay.scalar_type("float32"))
    tanh = relay.parse_expr("tanh")
    node: relay.Expr = relay.parse_expr("1f")
    for i in range(n):
        node = (
            relay.Let(relay.Var(f"v{i}"), x, node) if kind == "let" else relay.Call(tanh, (node,))
        )
    return node


@pytest.mark.parametrize("depth", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["let", "call"])
def test_depth(kind: str, depth: int) -> None:
    expr = deep(kind, depth)
    Counter().visit(expr)
    assert relay.ExprMutator().visit(expr) is expr
    assert NegateConstants().visit(expr) is not expr
    assert len(relay.post_order(expr)) >= depth
