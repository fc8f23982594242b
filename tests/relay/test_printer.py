"""IR -> Relay text, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimblevm import relay
from nimblevm.relay import dims
from nimblevm.relay.op import registry
from tests.relay.random_ir import random_module

HEADER = '#[version = "0.0.5"]\n'
F32 = relay.scalar_type("float32")


def op(name: str) -> relay.Op:
    return registry.get(name)


def call(name: str, *args: relay.Expr) -> relay.Call:
    record = op(name)
    return relay.Call(record, args, record.attrs() if record.attrs else None)


def text(node: object) -> str:
    return str(node)


def round_trip(expr: relay.Expr) -> None:
    relay.assert_structural_equal(relay.parse_expr(expr.astext()), expr, map_free_vars=True)


# --- layout ---------------------------------------------------------------------------------------------

GOLDEN = """\
#[version = "0.0.5"]
type List[A] {
  Cons(A, List[A]),
  Nil,
}

extern type Storage

def @helper[A](%l: List[A], Primitive=1) -> A {
  match? (%l) {
    Cons(%a, _) => {
      %a
    },
  }
}

def @main(%x: Tensor[(?n, 4), float32], %p: (float32, int32)) -> (Tensor[(?n, 4), float32], int64) {
  %0 = tanh(%x);
  %1 = nn.dense(%0, %0, units=4);
  let %y: Tensor[(?, 4), float32] = add(%1, 1f);
  let %f = fn (%z) {
    %f(%z)
  };
  %2 = Cons(%p.1, Nil);
  %3 = @helper(%2);
  %4 = less(%3, 0);
  %5 = if (%4) {
    let %y_1 = ref(%0);
    ref_read(%y_1)
  } else {
    %0
  };
  (%5, -1i64)
}
"""


def test_layout_is_a_fixed_point() -> None:
    module = relay.parse_module(GOLDEN)
    assert module.astext() == GOLDEN
    assert text(module) == GOLDEN.removeprefix(HEADER).removesuffix("\n")


def test_expressions() -> None:
    x = relay.Var("x", F32)
    assert text(x) == "%x"
    assert text(op("add")) == "add"
    assert text(call("tanh", x)) == "free_var %x: float32;\ntanh(%x)"
    assert relay.Function((x,), x).astext() == HEADER + "fn (%x: float32) {\n  %x\n}\n"
    assert x.astext() == HEADER + "free_var %x: float32;\n%x\n"


def test_patterns_clauses_and_types() -> None:
    module = relay.parse_module(GOLDEN)
    match = module.function("helper").body
    assert isinstance(match, relay.Match)
    assert text(match.clauses[0]) == "Cons(%a, _) => {\n  %a\n}"
    assert text(match.clauses[0].lhs) == "Cons(%a, _)"
    definition = module.type_definitions[relay.GlobalTypeVar("List")]
    assert text(definition) == "type List[A] {\n  Cons(A, List[A]),\n  Nil,\n}"


def test_patterns_of_one_part() -> None:
    source = f"""{HEADER}type T {{
  A(int32),
  B((int32,)),
}}

def @main(%t: T) -> int32 {{
  match (%t) {{
    A(%x) => {{
      %x
    }},
    B((%y,)) => {{
      %y
    }},
  }}
}}
"""
    assert relay.parse(source).astext() == source


def test_shared_node_is_bound_in_the_common_block() -> None:
    x = relay.Var("x", relay.scalar_type("bool"))
    shared = call("tanh", x)
    deep = relay.If(x, relay.If(x, call("exp", shared), x), relay.If(x, x, call("abs", shared)))
    assert text(relay.Function((x,), deep)).splitlines()[1] == "  %0 = tanh(%x);"
    round_trip(deep)


def test_shared_in_one_branch_stays_there() -> None:
    x = relay.Var("x", relay.scalar_type("bool"))
    shared = call("tanh", x)
    assert text(relay.Function((x,), relay.If(x, relay.Tuple((shared, shared)), x))).splitlines()[
        1:3
    ] == [
        "  if (%x) {",
        "    %0 = tanh(%x);",
    ]


def test_let_as_argument_gets_a_block() -> None:
    x, y = relay.Var("x", F32), relay.Var("y")
    inner = relay.Let(y, call("tanh", x), y)
    assert text(call("exp", inner)).splitlines()[1:] == [
        "%0 = {",
        "  let %y = tanh(%x);",
        "  %y",
        "};",
        "exp(%0)",
    ]
    round_trip(call("exp", inner))
    round_trip(relay.Let(relay.Var("z"), inner, x))


def test_names() -> None:
    names = ["x", "x", "7up", "odd name", "", "a/b", "conv.weight", "layer.0", "a/"]
    params = tuple(relay.Var(name) for name in names)
    function = relay.Function(params, relay.Tuple(params))
    assert text(function).splitlines()[0] == (
        "fn (%x, %x_1, %v7up, %odd_name, %v, %a/b, %conv.weight, %layer_0, %a_) {"
    )
    round_trip(function)


def test_names_do_not_cost_quadratic_time() -> None:
    params = tuple(relay.Var("x") for _ in range(20_000))
    assert text(relay.Function(params, params[-1])).endswith("%x_19999\n}")


# --- dims -------------------------------------------------------------------------------------------------


def function_of(*types: relay.Type) -> relay.Function:
    params = tuple(relay.Var(f"x{i}", t) for i, t in enumerate(types))
    return relay.Function(params, params[0])


def test_dim_names() -> None:
    once, twice, n, other_n = relay.Any(), dims.DimVar(), dims.DimVar("n"), dims.DimVar("n")
    shape = (once, twice, dims.add(twice, 1), n, other_n)
    function = function_of(relay.TensorType(shape))
    assert "Tensor[(?, ?d0, ?d0 + 1, ?n, ?n_1), float32]" in text(function)
    d0 = dims.DimVar("d0")
    assert "(?d1, ?d1, ?d0)" in text(function_of(relay.TensorType((twice, twice, d0))))
    round_trip(function)


def test_dim_expressions() -> None:
    n, m = dims.DimVar("n"), dims.DimVar("m")
    cases = {
        "?n - 1": dims.sub(n, 1),
        "2 * ?n + 3": dims.add(dims.mul(2, n), 3),
        "?n - 2 * ?m": dims.sub(n, dims.mul(2, m)),
        "-?n": dims.mul(-1, n),
        "?m - ?n": dims.sub(m, n),
        "floordiv(?n + 1, 2)": dims.floordiv(dims.add(n, 1), 2),
        "floormod(?n, 3)": dims.floormod(n, 3),
        "bcast(?n, ?m)": dims.bcast(n, m),
        "max(?n, ?m) + 1": dims.add(dims.max_(n, m), 1),
    }
    for expected, dim in cases.items():
        assert relay.dim_text(dim) == expected
        round_trip(function_of(relay.TensorType((n, m)), relay.TensorType((dim,))))


def test_tvm_text_has_no_dims_but_unknown_ones() -> None:
    n = dims.DimVar("n")
    function = function_of(relay.TensorType((n, dims.add(n, 1), relay.Any(), 3)))
    assert "Tensor[(?, ?, ?, 3), float32]" in function.astext(tvm=True)


def test_type_text() -> None:
    a = relay.TypeVar("A")
    listed = relay.GlobalTypeVar("List")(F32)
    function = relay.FuncType([relay.RefType(listed)], relay.TupleType([a]), [a])
    assert relay.type_text(function) == "fn [A](ref(List[float32])) -> (A,)"
    assert relay.type_text(None) == relay.type_text(relay.IncompleteType()) == "_"
    assert relay.type_text(relay.TupleType(())) == "()"
    assert relay.type_text(relay.TensorType((relay.Any(), 1), "int8")) == "Tensor[(?, 1), int8]"


def test_equal_names_of_type_variables() -> None:
    outer, inner = relay.TypeVar("A"), relay.TypeVar("A")
    y = relay.Var("y", inner)
    x = relay.Var("x", outer)
    function = relay.Function((x,), relay.Function((y,), x, outer, (inner,)), None, (outer,))
    assert "fn [A_1](%y: A_1) -> A" in text(function) or "fn [A](%y: A) -> A_1" in text(function)
    round_trip(function)


# --- constants ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1, "int32", "1"), (-5, "int64", "-5i64"), (2**40, "int64", "1099511627776i64"), (3, "int8", "3i8"),
        (1, "float32", "1f"), (0.1, "float32", "0.1f"), (1e-5, "float32", "1e-05f"), (1.5, "float16", "1.5f16"),
        (1e22, "float64", "1e+22f64"), (-np.inf, "float32", "-inff"), (-0.0, "float64", "-0f64"), (True, "bool", "True"),
    ],
)  # fmt: skip
def test_literals(value: float, dtype: str, expected: str) -> None:
    constant = relay.Constant(np.array(value, dtype))
    assert text(constant) == expected
    round_trip(constant)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_every_float_comes_back(bits: int) -> None:
    round_trip(relay.Constant(np.array(bits, "uint32").view("float32").reshape(())))
    round_trip(relay.Constant(np.array(bits & 0xFFFF, "uint16").view("float16").reshape(())))
    round_trip(relay.Constant(np.array(bits * 4_294_967_291, "uint64").view("float64").reshape(())))


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int64", "uint8", "uint32", "uint64", "float16", "float64"]
)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 1, 2)])
def test_tensor_constants(shape: tuple[int, ...], dtype: str) -> None:
    array = (np.arange(np.prod(shape)).reshape(shape) - 1).astype(dtype)
    constant = relay.Constant(array)
    round_trip(relay.Tuple((constant, constant, relay.Constant(array.copy()))))


def test_metadata_section() -> None:
    constant = relay.Constant(np.ones((2,), "float32"))
    shown = relay.Tuple((constant, constant)).astext()
    assert "(meta[relay.Constant][0], meta[relay.Constant][0])\n\n#[metadata]\n{" in shown
    assert '"tvm_version"' in shown
    assert "#[metadata]" not in constant.astext(show_meta_data=False)
    assert str(constant) == "meta[relay.Constant][0]"


# --- attributes and comments ----------------------------------------------------------------------------------


def test_attributes() -> None:
    x = relay.Var("x", F32)
    attrs = op("nn.dense").attrs
    assert attrs is not None
    dense = relay.Call(op("nn.dense"), (x, x), attrs(units=3, out_dtype="float32"))
    assert text(dense).splitlines()[-1] == 'nn.dense(%x, %x, units=3, out_dtype="float32")'
    values = {
        "f": 0.1, "g": 2.0, "inf": float("inf"), "quote": 'a"b', "lines": "a\nb", "backslash": "\\n", "none": None, "yes": True,
        "list": (1, ("a", -2)), "empty": (), "type": relay.TensorType((2,)),
    }  # fmt: skip
    function = relay.Function((), x, None, (), {k: v for k, v in values.items() if k != "type"})
    round_trip(function)


def test_dims_as_attributes() -> None:
    n = dims.DimVar("n")
    x = relay.Var("x", relay.TensorType((n,)))
    size = relay.Var("n", relay.scalar_type("int64"))
    function = relay.Function(
        (x, size), x, None, (), {"dim_params": ((1, n),), "more": dims.add(n, 1)}
    )
    assert "dim_params=[[1, ?n]], more=?n + 1" in text(function)
    round_trip(function)


@pytest.mark.parametrize(
    "source",
    [
        'vm.match_type(%x, type=Tensor[(?n, 2 * ?n), float32], where="parameter %x of @main")',
        "vm.dim_value(dim=2 * ?n + 1)",
        "broadcast_to(%x, shape=[?n, 3, ?n - 1])",
        'full(%x, dtype="int8")',
        "clip(%x, a_min=-inff, a_max=0.1f)",
        "strided_slice(%x, begin=[0, -1], end=[2147483648, 3])",
        "split(%x, indices_or_sections=[1, 2])",
        "sum(%x, axis=[0], keepdims=True)",
        "sum(%x)",
    ],
)
def test_attributes_of_operators(source: str) -> None:
    function = relay.parse_expr(f"fn (%x: Tensor[(?n), float32]) {{ {source} }}")
    assert text(function).splitlines()[1] == f"  {source}"
    round_trip(function)


def test_type_comments() -> None:
    module = relay.parse(HEADER + "def @main(%x: Tensor[(?n), float32]) { add(tanh(%x), 1f) }")
    shown = module.astext(show_types=True)
    assert "%0 = tanh(%x) /* ty=Tensor[(?n), float32] */;" in shown
    relay.assert_structural_equal(relay.parse(shown), module)


def test_annotate_is_refused() -> None:
    with pytest.raises(NotImplementedError):
        op("add").astext(annotate=str)


# --- round trips ------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**9))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_random_modules(seed: int) -> None:
    module = random_module(seed)
    shown = module.astext()
    back = relay.parse_module(shown)
    relay.assert_structural_equal(back, module)
    assert relay.structural_hash(back) == relay.structural_hash(module)


@pytest.mark.slow
@given(st.integers(0, 10**9))
@settings(max_examples=2000, deadline=None)
def test_many_random_modules(seed: int) -> None:
    module = random_module(seed, 80)
    relay.assert_structural_equal(relay.parse_module(module.astext()), module)


def deep(kind: str, n: int) -> relay.Expr:
    x = relay.Var("x", F32)
    node: relay.Expr = x
    for i in range(n):
        match kind:
            case "calls":
                node = call("tanh", node)
            case "dag":
                node = call("add", node, node)
            case "lets":
                node = relay.Let(relay.Var(f"v{i}"), x, node)
            case "let values":
                node = relay.Let(relay.Var(f"v{i}"), node, x)
            case "functions":
                node = relay.Function((), node)
            case "ifs":
                node = relay.If(x, node, x)
            case "ifs that share":
                node = relay.If(x, call("tanh", node), call("exp", node))
            case "tuples":
                node = relay.TupleGetItem(relay.Tuple((node,)), 0)
    return node


KINDS = ["calls", "dag", "lets", "let values", "functions", "ifs", "ifs that share", "tuples"]


@pytest.mark.parametrize("kind", KINDS)
def test_depth(kind: str) -> None:
    round_trip(deep(kind, 1_000))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_depth_100_000(kind: str) -> None:
    round_trip(deep(kind, 100_000))
