"""Relay text -> IR: grammar, spans, scopes, and the messages of syntax errors."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimblevm import relay
from nimblevm.errors import RelaySyntaxError
from nimblevm.relay import dims
from nimblevm.relay.lexer import LONGEST_NUMBER, NESTING_LIMIT

HEADER = '#[version = "0.0.5"]\n'
LIST = "type List[A] { Cons(A, List[A]), Nil }\n"
CASES = sorted((Path(__file__).parent.parent / "golden" / "syntax_errors").glob("*.rly"))
MARK = "// ERROR\n"


def expr(text: str) -> relay.Expr:
    return relay.parse_expr(text)


def module(text: str) -> relay.IRModule:
    return relay.parse_module(HEADER + text)


def same(a: str, b: str) -> None:
    relay.assert_structural_equal(expr(a), expr(b), map_free_vars=True)


# --- messages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_message(path: Path, request: pytest.FixtureRequest) -> None:
    program, _, expected = path.read_text().partition(MARK)
    with pytest.raises(RelaySyntaxError) as caught:
        relay.parse_module(program, path.name)
    message = "".join(f"// {line}\n" for line in str(caught.value).splitlines())
    if request.config.getoption("--update-golden", default=False):
        path.write_text(program + MARK + message)
    else:
        assert message == expected


def test_error_has_the_fields_of_a_syntax_error() -> None:
    with pytest.raises(SyntaxError) as caught:
        relay.parse_expr("add(1f,\n  1.0)", "file.rly")
    assert (caught.value.filename, caught.value.lineno, caught.value.offset) == ("file.rly", 2, 3)


def test_bare_carriage_return() -> None:
    with pytest.raises(RelaySyntaxError, match="carriage return"):
        expr("()\r()")
    same("free_var %x: int32;\r\n(%x,\r\n 1)", "free_var %x: int32; (%x, 1)")


def test_the_mark_that_editors_put_first() -> None:
    same("\ufefffree_var %x: int32; %x", "free_var %x: int32; %x")
    with pytest.raises(RelaySyntaxError, match=":1:2: no token of Relay starts with"):
        expr("1\ufeff")


def test_letters_and_digits_of_other_scripts() -> None:
    for text in ("%gr\xf6\xdfe", "1 + \u0664", "\uff11"):
        with pytest.raises(RelaySyntaxError, match="names and numbers are of ASCII letters"):
            expr(text)


def test_blanks_are_read_once() -> None:
    assert isinstance(expr("1" + "\n" * 300_000), relay.Constant)
    with pytest.raises(RelaySyntaxError, match="no token of Relay starts with"):
        expr("1" + " " * 300_000 + "^")
    assert isinstance(expr("1 // the end"), relay.Constant)
    assert isinstance(expr("1 /* the end */"), relay.Constant)


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("%x || %x", r"write logical_or\(a, b\)"),
        ("%x && %x", r"write logical_and\(a, b\)"),
        ("!%x", r"write logical_not\(a\)"),
        ("%x % 2", r"floor_mod\(a, b\)"),
    ],
)
def test_operators_of_other_languages(written: str, hint: str) -> None:
    with pytest.raises(RelaySyntaxError, match=hint):
        expr(f"free_var %x: bool; {written}")


# --- literals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("1", 1, "int32"), ("-1", -1, "int32"), ("--1", 1, "int32"), ("- -  -1", -1, "int32"),
        ("2147483647", 2**31 - 1, "int32"), ("-2147483648", -(2**31), "int32"), ("2147483648", 2**31, "int64"),
        ("-9223372036854775808", -(2**63), "int64"), ("1i8", 1, "int8"), ("-128i8", -128, "int8"),
        ("7i16", 7, "int16"), ("7i32", 7, "int32"), ("1i64", 1, "int64"), ("1f", 1.0, "float32"),
        ("1.5f16", 1.5, "float16"), ("2e-3f64", 2e-3, "float64"), ("0.1f", 0.1, "float32"), ("1E2f", 100.0, "float32"),
        ("inff", np.inf, "float32"), ("-inff64", -np.inf, "float64"), ("True", True, "bool"), ("False", False, "bool"),
    ],
)  # fmt: skip
def test_literal(text: str, value: float, dtype: str) -> None:
    constant = expr(text)
    assert isinstance(constant, relay.Constant)
    assert constant.data.dtype == dtype
    assert constant.data.shape == ()
    assert constant.data == np.array(value, dtype)


def test_negative_zero_and_nan() -> None:
    assert np.signbit(expr("-0f").data)  # type: ignore[attr-defined]
    assert np.isnan(expr("nanf").data)  # type: ignore[attr-defined]


# --- expressions ----------------------------------------------------------------------------------------


def test_precedence_and_association() -> None:
    v = "free_var %a: int32; free_var %b: int32; "
    same(v + "%a + %b * %a", v + "add(%a, multiply(%b, %a))")
    same(v + "%a - %b - %a", v + "subtract(subtract(%a, %b), %a)")
    same(v + "%a / %b * %a", v + "multiply(divide(%a, %b), %a)")
    same(v + "%a < %b == %a >= %b", v + "equal(less(%a, %b), greater_equal(%a, %b))")
    same(v + "%a <= %b != %a > %b", v + "not_equal(less_equal(%a, %b), greater(%a, %b))")
    same(v + "(%a + %b) * %a -1", v + "subtract(multiply(add(%a, %b), %a), 1)")
    same(v + "%a/%b", v + "divide(%a, %b)")


def test_slash_in_names() -> None:
    function = expr("fn (%layer/w, %conv.weight) { (%layer/w, %conv.weight) }")
    assert [p.name_hint for p in function.params] == ["layer/w", "conv.weight"]  # type: ignore[attr-defined]


def test_tuples_and_projections() -> None:
    assert expr("()").fields == ()  # type: ignore[attr-defined]
    assert len(expr("(1,)").fields) == 1  # type: ignore[attr-defined]
    assert isinstance(expr("(1)"), relay.Constant)
    assert len(expr("(1, 2,)").fields) == 2  # type: ignore[attr-defined]
    deep = expr("((1, (2, 3)).1 .0)")
    assert isinstance(deep, relay.TupleGetItem)
    assert (deep.index, deep.tuple_value.index) == (0, 1)  # type: ignore[attr-defined]


def test_curried_calls() -> None:
    call = expr("fn (%f) { %f(1)(2, 3).1(4) }").body  # type: ignore[attr-defined]
    assert isinstance(call, relay.Call)
    assert isinstance(call.op, relay.TupleGetItem)
    assert len(call.op.tuple_value.args) == 2  # type: ignore[attr-defined]


def test_graph_bindings_share() -> None:
    value = expr("free_var %x: float32; %0 = tanh(%x); %1 = (%0, %0); (%1, %0)")
    inner = value.fields[0]  # type: ignore[attr-defined]
    assert inner.fields[0] is inner.fields[1] is value.fields[1]  # type: ignore[attr-defined]


def test_shadowing() -> None:
    function = expr("fn (%x) { let %x = add(%x, 1); let %x = %x * 2; %x }")
    first = function.body  # type: ignore[attr-defined]
    assert first.value.args[0] is function.params[0]  # type: ignore[attr-defined]
    assert first.body.value.args[0] is first.var
    assert first.body.body is first.body.var


def test_scope_ends_with_its_brackets() -> None:
    with pytest.raises(RelaySyntaxError, match="undefined variable %y"):
        expr("((let %y = 1; %y), %y)")
    with pytest.raises(RelaySyntaxError, match="undefined graph variable %0"):
        expr("if (True) { %0 = tanh(1f); %0 } else { %0 }")


def test_only_functions_see_their_own_let() -> None:
    let = expr("let %f = fn (%n) { %f(%n) }; %f")
    assert let.value.body.op is let.var  # type: ignore[attr-defined]
    with pytest.raises(RelaySyntaxError, match="undefined variable %a"):
        expr("let %a = add(%a, 1); %a")
    with pytest.raises(RelaySyntaxError, match="%f is used in its own value"):
        expr("let %f = fn (%n) { %f(%n) }.0; %f")


def test_sequences_bind_fresh_lets() -> None:
    let = expr("tanh(1f); let %y = 2f; %y; %y")
    assert isinstance(let, relay.Let)
    assert isinstance(let.body.body, relay.Let)  # type: ignore[attr-defined]
    same("tanh(1f); 2f", "let %_ = tanh(1f); 2f")


def test_blocks_ifs_and_refs() -> None:
    same("{ { 1 } }", "1")
    same("if (True) { let %x = 1; %x } else { 2 }", "if ({True}) { let %y = 1; %y } else { {2} }")
    same(
        "let %r = ref(1); ref_write(%r, ref_read(%r) + 1); %r",
        "let %r = ref(1); let %_ = ref_write(%r, add(ref_read(%r), 1)); %r",
    )


def test_functions() -> None:
    function = expr(
        'fn [A, B](%f: fn (A) -> B, %x: A, Primitive=1, Compiler="c", list=[1, [2, True]], none=None) -> B { %f(%x) }'
    )
    assert isinstance(function, relay.Function)
    a, b = function.type_params
    assert function.params[0].type_annotation is relay.FuncType([a], b)
    assert function.ret_type is b
    assert dict(function.attrs) == {
        "Primitive": 1,
        "Compiler": "c",
        "list": (1, (2, True)),
        "none": None,
    }


def test_operator_attributes() -> None:
    assert expr("nn.dense(1f, 2f)").attrs.units is None  # type: ignore[attr-defined]
    assert expr("nn.dense(1f, 2f, units=-3,)").attrs.units == -3  # type: ignore[attr-defined]
    assert expr('cast(1f, dtype="int8")').attrs.dtype == "int8"  # type: ignore[attr-defined]
    assert expr("transpose(1f, axes=[1, 0])").attrs.axes == (1, 0)  # type: ignore[attr-defined]
    assert expr("concatenate((1f, 2f), axis=1)").attrs.axis == 1  # type: ignore[attr-defined]


def test_dim_attributes() -> None:
    call = expr("vm.dim_value(dim=(?n + 1) * 2)")
    assert relay.dim_text(call.attrs.dim) == "2 * ?n + 2"  # type: ignore[attr-defined]
    assert expr("broadcast_to(1f, shape=(2, 3))").attrs.shape == (2, 3)  # type: ignore[attr-defined]


def test_calls_of_other_things_may_have_attributes() -> None:
    call = expr('@f(1, attrs_type_key="DictAttrs", kind="a")')
    assert dict(call.attrs) == {"kind": "a"}  # type: ignore[attr-defined]


def test_free_var_and_comments() -> None:
    value = expr(
        "/* a /* nested */ // b\n */ free_var %x: float32; // c\n (%x /* ty=float32 */, %x)"
    )
    assert value.fields[0] is value.fields[1]  # type: ignore[attr-defined]


# --- match ------------------------------------------------------------------------------------------------


def test_match() -> None:
    text = """
    def @main(%l: List[(int32, int32)]) {
      match (%l) {
        Cons((%a, _), Cons(_, %rest: List[(int32, int32)])) => %a + 1,
        Cons(%x, Nil) => { let %y = %x.0; %y }
        Nil => 0
      }
    }
    """
    match = module(text + LIST).function("main").body
    assert isinstance(match, relay.Match)
    assert match.complete
    first, second, third = (c.lhs for c in match.clauses)
    assert isinstance(first, relay.PatternConstructor)
    assert isinstance(first.patterns[0], relay.PatternTuple)
    assert isinstance(first.patterns[0].patterns[1], relay.PatternWildcard)
    assert isinstance(second, relay.PatternConstructor)
    assert third.constructor.tag == 1  # type: ignore[attr-defined]
    partial = module(
        LIST + "def @main(%l: List[int32]) { match? %l { Cons(%a, _) => %a } }"
    ).function("main")
    assert not partial.body.complete  # type: ignore[attr-defined]


def test_nullary_constructors_are_calls() -> None:
    mod = module(LIST + "def @main() { (Nil, Nil(), Cons, Cons(1, Nil)) }")
    bare, called, constructor, full = mod.function("main").body.fields  # type: ignore[attr-defined]
    assert bare.args == called.args == ()
    assert bare.op is called.op is mod.get_constructor("List", "Nil")
    assert constructor is full.op is mod.get_constructor("List", "Cons")


# --- modules ----------------------------------------------------------------------------------------------


def test_definitions_in_any_order() -> None:
    mod = module(
        "def @main() { @later(Nil) }\ndef @later(%x: List[Box]) { %x }\n"
        + LIST
        + "extern type Box\n"
    )
    assert mod.function("main").body.op is mod.get_global_var("later")  # type: ignore[attr-defined]
    assert mod.get_type("Box")[1:] == ()


def test_init_module() -> None:
    base = module(LIST + "def @f(%l: List[int32]) { %l }")
    text = HEADER + "def @main() { @f(Nil) }"
    mod = relay.parse_module(text, init_module=base)
    assert sorted(v.name_hint for v in mod) == ["f", "main"]
    assert "main" not in base
    with pytest.raises(RelaySyntaxError, match="@f is defined twice"):
        relay.parse_module(HEADER + "def @f() { () }", init_module=base)


def test_parse_expr_leaves_names_open() -> None:
    call = expr("@somewhere(1)")
    assert call.op.name_hint == "somewhere"  # type: ignore[attr-defined]


def test_parse_checks_and_infers() -> None:
    mod = relay.parse(HEADER + "def @main(%x: Tensor[(?n, 3), float32]) { concatenate((%x, %x)) }")
    assert relay.type_text(mod.function("main").ret_type) == "Tensor[(2 * ?n, 3), float32]"
    relay.assert_structural_equal(mod, relay.fromtext(mod.astext()))


def test_version_type() -> None:
    assert str(relay.SemVer(0, 0, 5)) == "0.0.5"


# --- types and dims -----------------------------------------------------------------------------------------


def test_types() -> None:
    i32, f32 = relay.scalar_type("int32"), relay.scalar_type("float32")
    parse = relay.parse_type
    assert parse("int32") is i32
    assert parse("Tensor[(), float32]") is f32
    assert (
        parse("Tensor[(5), bool]") is parse("Tensor[(5,), bool]") is relay.TensorType((5,), "bool")
    )
    assert parse("()") is relay.TupleType(())
    assert parse("(int32,)") is relay.TupleType([i32])
    assert parse("(int32)") is i32
    assert parse("(int32, (float32, int32))") is relay.TupleType([i32, relay.TupleType([f32, i32])])
    assert parse("fn (int32) -> fn () -> float32") is relay.FuncType([i32], relay.FuncType([], f32))
    assert parse("ref(int32)") is relay.RefType(i32)
    assert parse("Map[int32, Leaf]").args[1] is relay.TypeCall(relay.GlobalTypeVar("Leaf"))  # type: ignore[attr-defined]
    assert isinstance(parse("_"), relay.IncompleteType)
    generic = parse("fn [A](A) -> A")
    assert generic.arg_types[0] is generic.type_params[0] is generic.ret_type  # type: ignore[attr-defined]


def test_dims_are_one_object_in_a_definition() -> None:
    mod = module(
        "def @f(%x: Tensor[(?n, ?), float32]) -> Tensor[(?n, ?), float32] {\n"
        "  let %g = fn (%y: Tensor[(?n + 1), float32]) { %y }; %x }\n"
        "def @g(%x: Tensor[(?n), float32]) { %x }"
    )
    f, g = mod.function("f"), mod.function("g")
    n, unknown = f.params[0].type_annotation.shape  # type: ignore[union-attr]
    assert f.ret_type.shape[0] is n  # type: ignore[union-attr]
    assert f.ret_type.shape[1] is not unknown  # type: ignore[union-attr]
    assert f.body.value.params[0].type_annotation.shape == (dims.add(n, 1),)  # type: ignore[attr-defined]
    assert g.params[0].type_annotation.shape[0] is not n  # type: ignore[union-attr]


def test_dim_expressions() -> None:
    shape = relay.parse_type(
        "Tensor[(2 * ?n - 1, -?n + 4 * (?m + 1), floordiv(?n, 2), floormod(?n, ?m), min(?n, 3), max(?n, ?m), bcast(?n, ?m), 2 + 3), int8]"
    ).shape  # type: ignore[attr-defined]
    n, m = dims.free_vars(shape[0])[0], dims.free_vars(shape[3])[1]
    assert shape[0] is dims.sub(dims.mul(2, n), 1)
    assert shape[1] is dims.add(dims.mul(-1, n), dims.mul(4, dims.add(m, 1)))
    assert shape[2] is dims.floordiv(n, 2)
    assert shape[3] is dims.floormod(n, m)
    assert shape[4] is dims.min_(n, 3)
    assert shape[5] is dims.max_(n, m)
    assert shape[6] is dims.bcast(n, m)
    assert shape[7] == 5


# --- spans --------------------------------------------------------------------------------------------------


def test_spans() -> None:
    text = HEADER + "def @main(%x: float32) {\n  let %y = add(%x,\n    1f);\n  %y * 2f\n}\n"
    function = relay.parse_module(text, "m.rly").function("main")
    let = function.body
    assert str(function.span) == "m.rly:2:1"
    assert str(function.params[0].span) == "m.rly:2:11"
    assert isinstance(let, relay.Let)
    assert let.span == relay.Span("m.rly", 3, 3, 4, 9)
    assert let.value.span == relay.Span("m.rly", 3, 12, 4, 8)
    assert let.body.span == relay.Span("m.rly", 5, 3, 5, 10)
    assert all(n.span for n in relay.post_order(function) if not isinstance(n, relay.Op))


# --- metadata -------------------------------------------------------------------------------------------------

TVM_METADATA = """#[metadata]
{
  "root": 1,
  "nodes": [
    {"type_key": ""},
    {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
    {"type_key": "Array", "data": [3]},
    {"type_key": "relay.Constant", "attrs": {"_checked_type_": "0", "data": "0", "span": "0"}}
  ],
  "b64ndarrays": [
    "P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAgAAAAIgAQACAAAAAAAAAAMAAAAAAAAAGAAAAAAAAAAAAIA/AAAAQAAAQEAAAIBAAACgQAAAwEA="
  ],
  "attrs": {"tvm_version": "0.8.0"}
}
"""


def test_metadata_written_by_tvm() -> None:
    mod = module("def @main() { meta[relay.Constant][0] }\n\n" + TVM_METADATA)
    expected = np.arange(1, 7, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(mod.function("main").body.data, expected)  # type: ignore[attr-defined]


def test_init_meta_table_appends() -> None:
    more = relay.Constant(np.array([7, 8]))
    text = (
        HEADER
        + "def @main() { (meta[relay.Constant][0], meta[relay.Constant][1]) }\n"
        + TVM_METADATA
    )
    mod = relay.parse_module(text, init_meta_table={"relay.Constant": [more]})
    assert mod.function("main").body.fields[1] is more  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "damage", ["P6G0", "AAAAlvBAXt0AAAAAAAAAAAEAAAAAAAAAAgAAAAIgAQACAAAAAAAAAA==", "!!"]
)
def test_damaged_tensor(damage: str) -> None:
    start = TVM_METADATA.index("P6G0")
    text = TVM_METADATA[:start] + damage + TVM_METADATA[TVM_METADATA.index('"', start) :]
    with pytest.raises(RelaySyntaxError, match="tensor of the metadata"):
        module("def @main() { () }\n" + text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"root": 1', '"root": ' + "9" * 5_000),
        ('"root": 1', '"root": [[' * 50_000),
        ('"data": "0"', '"data": "x"'),
        ('"data": "0"', '"data": 1e999'),
        ('"keys": ["relay.Constant"]', '"keys": []'),
        ('"keys": ["relay.Constant"]', '"keys": [3]'),
        ('"type_key": "relay.Constant", "attrs"', '"type_key": "IntImm", "x"'),
        ('"data": "0"', '"data": "9"'),
    ],
)
def test_damaged_metadata(old: str, new: str) -> None:
    text = re.sub(r"\s+", " ", TVM_METADATA).replace("[ ", "[").replace(" ]", "]")
    assert old in text
    with pytest.raises(RelaySyntaxError, match="metadata"):
        module("def @main() { () }\n" + text.replace(old, new))


def test_virtual_devices_are_read_and_dropped() -> None:
    table = {"VirtualDevice": ["cpu"]}
    text = HEADER + "def @main(%x {virtual_device=meta[VirtualDevice][0]}: float32) { %x }"
    assert len(relay.parse_module(text, init_meta_table=table).function("main").params) == 1


# --- depth ----------------------------------------------------------------------------------------------------


def deep_texts(n: int) -> dict[str, str]:
    return {
        "lets": "".join(f"let %x{i + 1} = add(%x{i}, 1f);\n" for i in range(n)) + f"%x{n}",
        "calls": "tanh(" * n + "%x0" + ")" * n,
        "parentheses": "(" * n + "%x0" + ")" * n,
        "tuples": "(" * n + "%x0" + ",)" * n,
        "ifs": "if (%x0) {" * n + "%x0" + "} else {%x0}" * n,
        "functions": "fn (%y) {" * n + "%x0" + "}" * n,
        "curried": "%x0" + "(1)" * n,
        "sums": "%x0" + " + 1f" * n,
        "minuses": "-" * n + "1f",
        "graph": "%0 = add(%x0, %x0);"
        + "".join(f"%{i} = add(%{i - 1}, %{i - 1});" for i in range(1, n))
        + f"%{n - 1}",
        "types": "let %z: " + "fn () -> " * n + "int32 = 1; %z",
        "patterns": "match (%x0) {" + "(" * n + "_" + ",)" * n + "=> 1}",
        "dims": "let %z: Tensor[(" + "(" * n + "1" + ")" * n + "), int32] = 1; %z",
        "values": "fn (a=" + "[" * n + "1" + "]" * n + ") { %x0 }",
        "comments": "/*" * n + "*/" * n + "%x0",
    }


@pytest.mark.parametrize("kind", deep_texts(1))
def test_depth(kind: str) -> None:
    expr("free_var %x0: float32; " + deep_texts(3_000)[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", deep_texts(1))
def test_depth_100_000(kind: str) -> None:
    expr("free_var %x0: float32; " + deep_texts(100_000)[kind])


def test_nesting_limit() -> None:
    with pytest.raises(RelaySyntaxError, match="nest deeper than 1,000,000") as caught:
        expr("(" * (NESTING_LIMIT + 1))
    assert caught.value.offset == NESTING_LIMIT + 1


# --- damaged texts ------------------------------------------------------------------------------------------

WHOLE = (
    HEADER
    + LIST
    + """extern type Storage
def @main[A](%x: Tensor[(?n, 2 * ?n - 1, floordiv(?n, 2)), float32], %l: List[(A, ref(int32))], Primitive=1) -> fn (A) -> A {
  let %f: fn [B](B) -> B = fn (%y) { %f(%y).0 };
  %0 = nn.dense(%x, -1.5f16, units=3, out_dtype="float32");
  if (%0 + 1i64 * 2 <= %0) { match? (%l, ()) { (Cons(%a, _), %b: ()) => { (%a,) } _ => Nil } }
  else { ref_write(ref(%0), ref_read(%x)); transpose(meta[relay.Constant][0], axes=[1, 0]) }
}
"""
    + TVM_METADATA
)
PIECES = re.findall(r"\s+|\w+|.", WHOLE.partition("#[metadata]")[0])
INSERTED = [
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ",",
    ";",
    "%x",
    "@f",
    "1.",
    "?",
    ".0",
    "=",
    "=>",
    "meta",
    "-",
    '"',
    "/*",
    "_",
    "let",
    "def",
]


@given(st.data())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_damaged_text_is_a_syntax_error_or_still_a_program(data: st.DataObject) -> None:
    pieces = list(PIECES)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(pieces) - 1))
        match data.draw(st.integers(0, 3)):
            case 0:
                pieces[at] = ""
            case 1:
                pieces.insert(at, data.draw(st.sampled_from(INSERTED)))
            case 2:
                other = data.draw(st.integers(0, len(pieces) - 1))
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case _:
                del pieces[at + 2 :]
    with contextlib.suppress(RelaySyntaxError):
        module_text = "".join(pieces) + "\n" + TVM_METADATA
        relay.parse_module(relay.parse_module(module_text).astext())


def test_undamaged_text_is_a_program() -> None:
    mod = relay.parse_module(WHOLE)
    relay.assert_structural_equal(relay.parse_module(mod.astext()), mod)


@pytest.mark.parametrize(
    "text",
    [
        "DIGITS", "DIGITSf", "-DIGITSi64", "1.DIGITSf", "1eDIGITSf", "%DIGITS", "%0.DIGITS", "meta[relay.Constant][DIGITS]",
        "sum(1f, axis=[DIGITS])", "let %x: Tensor[(DIGITS), float32] = 1f; %x", "let %x: Tensor[(2), floatDIGITS] = 1f; %x",
    ],
)  # fmt: skip
def test_numbers_that_are_too_long(text: str) -> None:
    """int() refuses thousands of digits by a ValueError of its own."""
    with pytest.raises(RelaySyntaxError) as caught:
        module("def @main(%a: float32) { " + text.replace("DIGITS", "9" * 5_000) + " }")
    if "float" not in text:
        assert f"the longest have {LONGEST_NUMBER}" in str(caught.value)
