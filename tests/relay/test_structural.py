"""Structural equality and hash."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from nimblevm import relay
from nimblevm.relay import dims
from tests.relay.random_ir import random_module

HEADER = '#[version = "0.0.5"]\n'


def expr(text: str) -> relay.Expr:
    return relay.parse_expr(text)


def equal(a: str, b: str, free: bool = False) -> bool:
    x, y = expr(a), expr(b)
    same = relay.structural_equal(x, y, map_free_vars=free)
    assert same == relay.structural_equal(y, x, map_free_vars=free)
    if same:
        assert relay.structural_hash(x, free) == relay.structural_hash(y, free)
    else:
        assert relay.structural_hash(x, free) != relay.structural_hash(y, free)
    return same


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("fn (%x) { %x }", "fn (%y) { %y }"),
        ("fn (%x, %y) { (%x, %y) }", "fn (%y, %x) { (%y, %x) }"),
        ("let %a = 1; let %b = 2; (%a, %b)", "let %b = 1; let %a = 2; (%b, %a)"),
        ("fn [A](%x: A) -> A { %x }", "fn [B](%x: B) -> B { %x }"),
        ("fn (%x: fn [A](A) -> A) { %x }", "fn (%x: fn [B](B) -> B) { %x }"),
        ("fn (%x: Tensor[(?n, ?m), int8]) { %x }", "fn (%x: Tensor[(?m, ?n), int8]) { %x }"),
        ("fn (%x: Tensor[(?, ?), int8]) { %x }", "fn (%x: Tensor[(?a, ?b), int8]) { %x }"),
        (
            "fn (%x: Tensor[(?a, ?b, ?a + 2 * ?b), int8]) { %x }",
            "fn (%x: Tensor[(?b, ?a, 2 * ?a + ?b), int8]) { %x }",
        ),
        (
            "fn (%x: Tensor[(max(?a, ?b) - ?a), int8]) { %x }",
            "fn (%x: Tensor[(max(?b, ?a) - ?b), int8]) { %x }",
        ),
        ("fn (%x: _) { %x }", "fn (%x) { %x }"),
        ("(1).0", "(1).0"),
        ("(nanf, -0f)", "(nanf, -0f)"),
        ("()", "()"),
    ],
)
def test_equal(a: str, b: str) -> None:
    assert equal(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("fn (%x, %y) { %x }", "fn (%x, %y) { %y }"),
        ("fn (%x) { %x }", "fn (%x, %y) { %x }"),
        ("1", "2"), ("1", "1i64"), ("1f", "1f64"), ("0f", "-0f"), ("(1,)", "1"), ("(1, 2)", "(1,)"),
        ("tanh(1f)", "exp(1f)"),
        ("fn () -> int32 { 1 }", "fn () { 1 }"),
        ("fn (a=1) { 1 }", "fn (a=2) { 1 }"), ("fn (a=1) { 1 }", "fn (b=1) { 1 }"), ("fn (a=1) { 1 }", "fn (a=True) { 1 }"),
        ("nn.dense(1f, 1f)", "nn.dense(1f, 1f, units=1)"),
        ("fn (%x: Tensor[(?n, ?), int8]) { %x }", "fn (%x: Tensor[(?n, 1), int8]) { %x }"),
        ("fn (%x: int8) { %x }", "fn (%x: int16) { %x }"),
        ("if (True) { 1 } else { 2 }", "if (True) { 2 } else { 1 }"),
        ("(1, 2).0", "(1, 2).1"),
        ("ref(1)", "ref_read(1)"),
        ("@f", "@g"),
    ],
)  # fmt: skip
def test_different(a: str, b: str) -> None:
    assert not equal(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("fn (%x: Tensor[(?n, ?n), int8]) { %x }", "fn (%x: Tensor[(?n, ?m), int8]) { %x }"),
        (
            "fn (%x: Tensor[(?n, ?n + 1), int8]) { %x }",
            "fn (%x: Tensor[(?n, ?n + 2), int8]) { %x }",
        ),
        ("%0 = tanh(1f); (%0, %0)", "(tanh(1f), tanh(1f))"),
        ("%0 = ref(1); (%0, %0)", "(ref(1), ref(1))"),
    ],
)
def test_different_though_the_hash_may_agree(a: str, b: str) -> None:
    assert not relay.structural_equal(expr(a), expr(b))
    assert not relay.structural_equal(expr(b), expr(a))


def test_free_variables() -> None:
    a, b = "free_var %x: float32; tanh(%x)", "free_var %y: float32; tanh(%y)"
    assert equal(a, b, free=True)
    assert not relay.structural_equal(expr(a), expr(b))
    assert not equal("free_var %x: float32; %x", "free_var %x: int32; %x", free=True)
    one, two = "free_var %x; free_var %y; (%x, %x)", "free_var %x; free_var %y; (%x, %y)"
    assert not equal(one, two, free=True)
    x = relay.Var("x")
    left, right = relay.Tuple((x, x)), relay.Tuple((x, x))
    assert relay.structural_equal(left, right)


def test_modules() -> None:
    text = (
        HEADER
        + "type T[A] { C(A, T[A]), D }\ndef @main(%x: T[int8]) { @f(%x) }\ndef @f(%y: T[int8]) { %y }\n"
    )
    module = relay.parse_module(text)

    def variant(*pairs: tuple[str, str]) -> bool:
        changed = text
        for old, new in pairs:
            changed = changed.replace(old, new)
        return relay.structural_equal(module, relay.parse_module(changed))

    assert variant(("%x", "%zz"), ("[A]", "[B]"), ("C(A", "C(B"))
    assert not variant(("@f", "@g"))
    assert not variant((", D", ", D, E"))
    assert not variant(("T[", "U["))
    copy = module.shallow_copy()
    del copy["f"]
    assert not relay.structural_equal(module, copy)


def test_each_function_has_its_own_dims() -> None:
    def text(n: str, m: str) -> relay.IRModule:
        return relay.parse_module(
            HEADER
            + f"def @f(%x: Tensor[(?{n}), int8]) {{ %x }}\ndef @g(%x: Tensor[(?{m}), int8]) {{ %x }}"
        )

    assert relay.structural_equal(text("n", "n"), text("a", "b"))


def test_types() -> None:
    n, m = dims.DimVar("n"), relay.Any()
    assert relay.structural_equal(relay.TensorType((n, 2)), relay.TensorType((m, 2)))
    assert not relay.structural_equal(relay.TensorType((n, 2)), relay.TensorType((m, 3)))
    assert relay.structural_hash(relay.TensorType((n, 2))) == relay.structural_hash(
        relay.TensorType((m, 2))
    )
    pair = relay.TupleType([relay.TensorType((n,)), relay.TensorType((n,))])
    other = relay.TupleType([relay.TensorType((n,)), relay.TensorType((m,))])
    assert not relay.structural_equal(pair, other)


def test_attributes_left_out_are_the_defaults() -> None:
    parsed = expr("free_var %x: float32; nn.dense(%x, %x)")
    assert isinstance(parsed, relay.Call)
    assert relay.structural_equal(parsed, relay.Call(parsed.op, parsed.args))
    assert relay.structural_hash(parsed) == relay.structural_hash(
        relay.Call(parsed.op, parsed.args)
    )


def test_constants_by_bytes() -> None:
    a, b = relay.Constant(np.arange(4, dtype="int8")), relay.Constant(np.arange(4, dtype="int8"))
    assert relay.structural_equal(a, b)
    assert not relay.structural_equal(a, relay.Constant(np.arange(4, dtype="uint8")))
    assert not relay.structural_equal(a, relay.Constant(np.arange(4, dtype="int8").reshape(2, 2)))


def test_path_of_the_first_difference() -> None:
    a = relay.parse_module(HEADER + "def @main(%x: float32) {\n  let %y = (1f, (%x, 2f));\n  %y\n}")
    b = relay.parse_module(HEADER + "def @main(%x: float32) {\n  let %y = (1f, (%x, 3f));\n  %y\n}")
    with pytest.raises(relay.StructuralMismatch) as caught:
        relay.assert_structural_equal(a, b)
    message = str(caught.value)
    assert message.startswith(
        "not structurally equal at function @main.body.value.fields[1].fields[1]: constants of different values\n"
    )
    assert "2f" in message.partition("--- right")[0]
    assert "3f" in message.partition("--- right")[2]


def test_hash_is_the_same_in_every_process() -> None:
    code = (
        "from nimblevm import relay\n"
        "print(relay.structural_hash(relay.parse_expr('fn (%x: Tensor[(?n), int8]) { let %y = (%x, 1.5f); %y }')))"
    )
    runs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": s, "PYTHONPATH": ":".join(sys.path)}).stdout
        for s in ("1", "2")
    }  # fmt: skip
    assert len(runs) == 1


@pytest.mark.parametrize("seed", range(20))
def test_random_modules_equal_themselves_only(seed: int) -> None:
    a, b = random_module(seed), random_module(seed)
    relay.assert_structural_equal(a, b)
    relay.assert_structural_equal(a, a)
    assert relay.structural_digest(a) == relay.structural_digest(b)
    other = random_module(seed + 1000)
    assert not relay.structural_equal(a, other)
    assert relay.structural_digest(a) != relay.structural_digest(other)


def doubling(n: int) -> relay.Expr:
    node: relay.Expr = relay.Var("x", relay.scalar_type("float32"))
    add = relay.parse_expr("add")
    for _ in range(n):
        node = relay.Call(add, (node, node))
    return node


def test_shared_graphs_are_linear() -> None:
    assert relay.structural_equal(doubling(1000), doubling(1000), map_free_vars=True)
    assert relay.structural_hash(doubling(1000), True) == relay.structural_hash(
        doubling(1000), True
    )
    assert not relay.structural_equal(doubling(1000), doubling(999), map_free_vars=True)


def chain(n: int) -> relay.Expr:
    x = relay.Var("x", relay.scalar_type("float32"))
    node: relay.Expr = x
    add = relay.parse_expr("add")
    for i in range(n):
        node = relay.Let(relay.Var(f"v{i}"), relay.Call(add, (x, x)), node)
    return relay.Function((x,), node)


def test_long_chains() -> None:
    assert relay.structural_equal(chain(5_000), chain(5_000))
    assert relay.structural_hash(chain(5_000)) == relay.structural_hash(chain(5_000))


def test_deep_types() -> None:
    a = b = relay.scalar_type("int8")
    for _ in range(8_000):
        a = relay.TupleType([a, relay.TensorType((relay.Any(),))])  # type: ignore[assignment]
    for _ in range(8_000):
        b = relay.TupleType([b, relay.TensorType((relay.Any(),))])  # type: ignore[assignment]
    assert relay.structural_equal(a, b)
    assert relay.structural_hash(a) == relay.structural_hash(b)
