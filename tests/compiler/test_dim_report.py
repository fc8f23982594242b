"""The report on dims: each state, each place that makes checks, and agreement with the compiled program."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

import nimblevm as nvm
from nimblevm.bytecode.dim_lines import DimLine, DimReport, executable_report
from nimblevm.compiler.dim_notes import demand_text
from nimblevm.compiler.dim_report import dim_report
from nimblevm.relay import dims
from nimblevm.relay.dims import DimVar
from tests.dims.rules import RULES
from tests.properties.programs import Program, programs

HEADER = '#[version = "0.0.5"]\n'
Rows = dict[tuple[str, int], DimLine]


def rows(text: str, name: str = "main", values: bool = False) -> Rows:
    mod = nvm.relay.parse(HEADER + text, source_name="m.rly")
    (found,) = dim_report(mod, [name], values).functions
    return {(line.value + line.part, line.axis): line for line in found.lines}


def test_signature() -> None:
    found = rows(
        "def @main(%x: Tensor[(?n, 4), float32], %y: (Tensor[(?n), int32], Tensor[(?), int32]))"
        " -> Tensor[(?n, 4), float32] { exp(%x) }"
    )
    states = {key: line.state for key, line in found.items()}
    assert states == {
        ("parameter %x", 0): "free",
        ("parameter %x", 1): "static",
        ("parameter %y.0", 0): "checked",
        ("parameter %y.1", 0): "free",
        ("result", 0): "equal to",
        ("result", 1): "static",
    }
    assert found["parameter %x", 0].dim == "?n"
    assert found["parameter %x", 1].dim == "4"
    assert found["parameter %y.1", 0].dim == "?"
    assert found["result", 0].equal_to == "axis 0 of %x"
    repeated = found["parameter %y.0", 0]
    assert repeated.equal_to == "axis 0 of %x"
    (check,) = repeated.checks
    assert (check.function, check.place) == ("@main", "m.rly:2:41")
    assert (check.why, check.demand) == ("parameter %y.0 of @main", "must be ?n")


# name: (program, key of the line, why, demand, place)
CHECKED = {
    "operator": (
        "def @main(%x: Tensor[(?n), int32], %y: Tensor[(?m), int32]) {\n  where(less(%x, %y), %x,\n stack((%x, %y), axis=0)) }",
        ("parameter %x", 0), "field 0 of argument data of stack", "must be ?m", "m.rly:4:2",
    ),
    "broadcast of unknown sizes": (
        "def @main(%x: Tensor[(?n), int32], %y: Tensor[(?m), int32]) {\n  add(%x, %y) }",
        ("parameter %y", 0), "axis 0 of the result of add", "?n and ?m must be equal, unless one is 1", "m.rly:3:3",
    ),
    "broadcast with a size": (
        "def @main(%x: Tensor[(?n), int32], %y: Tensor[(5), int32]) {\n  %x + %y }",
        ("parameter %x", 0), "argument lhs of add", "must be 1 or 5", "m.rly:3:3",
    ),
    "annotation": (
        "def @main(%x: Tensor[(?n), int32]) {\n  let %y: Tensor[(5), int32] = %x;\n  %y }",
        ("parameter %x", 0), "%y in @main", "must be 5", "m.rly:3:7",
    ),
    "annotation of an expression": (
        "def @main(%x: Tensor[(?n), int32]) {\n  let %y: Tensor[(6), int32] = concatenate((%x, %x));\n  %y }",
        ("parameter %x", 0), "%y in @main", "2 * ?n must be 6", "m.rly:3:32",
    ),
    "parameter of a function": (
        "def @f(%a: Tensor[(3), int32]) { %a }\ndef @main(%x: Tensor[(?n), int32]) {\n  @f(%x) }",
        ("parameter %x", 0), "parameter %a of @f", "must be 3", "m.rly:4:3",
    ),
    "parameter of a local function": (
        "def @main(%x: Tensor[(?n), int32]) {\n  let %f = fn (%a: Tensor[(?n), int32]) { %a };\n  %f(%x) }",
        ("%f parameter %a", 0), "parameter %a of %f in @main", "must be ?n", "m.rly:3:16",
    ),
    "result": (
        "def @main(%x: Tensor[(?n), int32]) -> Tensor[(7), int32] {\n  negative(%x) }",
        ("result", 0), "result of @main", "?n must be 7", "m.rly:3:3",
    ),
    "result in a branch": (
        "def @main(%x: Tensor[(?n), int32], %c: bool) -> Tensor[(2), int32] {\n"
        "  if (%c) { ones(shape=[2], dtype=\"int32\") } else {\n    abs(%x) } }",
        ("result", 0), "result of @main", "?n must be 2", "m.rly:4:5",
    ),
    "field of a constructor": (
        "type Box { Box(Tensor[(?, 3), int32]) }\ndef @main(%b: Box) {\n  match (%b) { Box(%v) => %v } }",
        ("field 0 of Box", 1), "field 0 of Box", "must be 3", "m.rly:4:20",
    ),
    "reference": (
        "def @main(%r: ref(Tensor[(3), int32])) {\n  ref_read(%r) }",
        ("content of the reference", 0), "content of the reference", "must be 3", "m.rly:3:3",
    ),
    "closure": (
        "def @main(%f: fn (int32) -> Tensor[(3), int32]) {\n  %f(1) }",
        ("result of the closure", 0), "result of the closure", "must be 3", "m.rly:3:3",
    ),
    "parameter of a function that is a value": (
        "def @main(%x: int32) {\n  fn (%a: Tensor[(3), int32]) { %a } }",
        ("fn at 3:3 parameter %a", 0), "parameter %a of fn at 3:3 in @main", "must be 3", "m.rly:3:7",
    ),
    "parameter of a function that another returns": (
        "def @main(%x: int32) {\n  let %f = fn (%y: int32) {\n  fn (%a: Tensor[(3), int32]) { %a } };\n  %f(%x) }",
        ("fn at 4:3 parameter %a", 0), "parameter %a of fn at 4:3 in @main", "must be 3", "m.rly:4:7",
    ),
    "constructor that is a value": (
        "type Box { Box(Tensor[(3), int32]) }\ndef @main(%x: int32) {\n  Box }",
        ("field 0 of Box", 0), "field 0 of Box, called as a function", "must be 3", "m.rly:2:12",
    ),
    "reshape": (
        "def @main(%x: Tensor[(?n), int32]) {\n  reshape(%x, newshape=[-1, 2]) }",
        ("parameter %x", 0), "argument data of reshape", "must be a multiple of 2", "m.rly:3:3",
    ),
    "not empty": (
        "def @main(%x: Tensor[(?n), int32]) {\n  argmax(%x) }",
        ("parameter %x", 0), "argument data of argmax", "must not be empty", "m.rly:3:3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKED)
def test_checked(name: str) -> None:
    text, key, why, demand, place = CHECKED[name]
    line = rows(text)[key]
    assert line.state == "checked"
    assert (why, demand, place) in [(c.why, c.demand, c.place) for c in line.checks], line.checks
    assert all(c.function.endswith("@main") for c in line.checks)


def test_sizes_that_depend_on_data_are_free() -> None:
    found = rows(
        "def @main(%x: Tensor[(?n), int32]) {\n  let %u = argwhere(%x);\n  negative(%u) }",
        values=True,
    )
    assert found["%u", 0].state == "free"
    assert found["%u", 0].equal_to == "axis 0 of the result of argwhere (3:12)"
    assert found["%u", 1].state == "static"
    assert (found["result", 0].state, found["result", 0].equal_to) == ("equal to", found["%u", 0].equal_to)  # fmt: skip


def test_expressions_say_what_they_are_computed_from() -> None:
    line = rows("def @main(%x: Tensor[(?n), int32]) { concatenate((%x, %x)) }")["result", 0]
    assert (line.dim, line.state, line.equal_to) == ("2 * ?n", "equal to", "computed from axis 0 of %x")  # fmt: skip


def test_values_and_patterns() -> None:
    text = """type Box { Box(Tensor[(?, 3), int32]) }
def @main(%b: Box) { match (%b) { Box(%v) => { let %w = negative(%v); %w } } }"""
    assert ("%w", 0) not in rows(text)
    found = rows(text, values=True)
    assert found["%w", 0].state == "equal to"
    assert found["%w", 1].state == "static"


def test_claims_inside_of_containers() -> None:
    found = rows(
        "type List[A] { Cons(A, List[A]), Nil }\n"
        "def @main(%l: List[(Tensor[(?, 3), int32], int32)], %r: ref(Tensor[(?), int32])) { %l }"
    )
    assert found["parameter %l.List[0].0", 0].state == "free"
    assert found["parameter %l.List[0].0", 1].checks[0].demand == "must be 3"
    assert found["parameter %r.content", 0].state == "free"
    assert found["result.List[0].0", 1].state == "checked"


def test_names_are_unique_and_single_unknowns_stay_question_marks() -> None:
    found = rows("def @main(%x: Tensor[(?, ?), int32]) { (%x, transpose(%x)) }")
    assert [line.dim for line in found.values()] == ["?d0", "?d1", "?d0", "?d1", "?d1", "?d0"]


def test_the_prelude_is_left_out() -> None:
    mod = nvm.relay.parse(HEADER + "def @main(%x: int32) { %x }")
    nvm.relay.Prelude(mod)
    assert [f.name for f in dim_report(mod).functions] == ["main"]
    assert dim_report(mod, ["map"]).functions[0].name == "map"
    with pytest.raises(KeyError, match="no function @nothing"):
        dim_report(mod, ["nothing"])


def test_json_is_plain() -> None:
    mod = nvm.relay.parse(HEADER + CHECKED["operator"][0], source_name="m.rly")
    report = dim_report(mod)
    (function,) = report.to_json()["functions"]
    assert function["name"] == "main"
    first = function["dims"][0]
    assert set(first) == {"value", "part", "axis", "dim", "state", "equal_to", "checks"}
    assert first["checks"][0]["line"] in (3, 4)
    total = sum(report.count(s) for s in ("static", "equal to", "checked", "free"))
    assert total == len(function["dims"])


@pytest.mark.parametrize("whole", [2, 3])
def test_demands_in_words(whole: int) -> None:
    n, m = DimVar("n"), DimVar("m")
    assert demand_text(n, 4) == "must be 4"
    assert (
        demand_text(n, dims.mul(whole, dims.floordiv(n, whole))) == f"must be a multiple of {whole}"
    )
    product = dims.mul(n, m)
    rest = dims.sub(product, dims.mul(whole, dims.floordiv(product, whole)))
    assert demand_text(n, dims.add(n, rest)) == f"?n * ?m must be a multiple of {whole}"
    assert demand_text(n, dims.max_(n, 1)) == "must not be empty"
    assert demand_text(n, dims.max_(n, dims.min_(m, 1))) == "must not be empty"


def places(report: DimReport) -> set[tuple[str, int, int]]:
    lines = (line for f in report.functions for line in f.lines)
    return {(c.source, c.line, c.column) for line in lines for c in line.checks if c.line}


SAMPLED = [
    pytest.param(name, marks=() if i % 4 == 0 else pytest.mark.slow) for i, name in enumerate(RULES)
]


def assert_told(mod: nvm.relay.IRModule) -> set[tuple[str, int, int]]:
    """Every check that the compiled program makes is in the report. Returns the places in the report."""
    told = places(dim_report(mod, [v.name_hint for v in mod.functions]))
    # Inlining would move checks of a callee's entry to the call. Fusion moves broadcasts to the last operator.
    with nvm.compile(mod, native=False, passes_off=("inline",)) as exe:
        compiled = executable_report(exe)
    joins = {c.line for f in compiled.functions for x in f.lines if x.value == "broadcast" for c in x.checks}  # fmt: skip
    assert not {place for place in places(compiled) - told if place[1] not in joins}
    assert joins <= {line for _, line, _ in told}
    return told


@pytest.mark.parametrize("name", SAMPLED)
def test_no_check_of_a_compiled_program_is_missing(name: str) -> None:
    mod = nvm.relay.parse(HEADER + RULES[name].text, source_name=f"{name}.rly")
    told = assert_told(mod)
    for bad in RULES[name].bad:
        lines = (bad.line,) if isinstance(bad.line, int) else bad.line or ()
        assert not lines or {line for _, line, _ in told} & set(lines)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_no_check_of_a_random_program_is_missing(program: Program) -> None:
    mod = nvm.relay.parse(program.text, source_name="random.rly")
    dim_report(mod, values=True)
    assert_told(mod)


def test_deep_programs() -> None:
    x = nvm.relay.var("x", shape=(nvm.relay.DimVar("n"),), dtype="float32")
    body: nvm.relay.Expr = x
    for _ in range(5_000):
        body = nvm.relay.tanh(body)
    (function,) = dim_report(nvm.relay.IRModule.from_expr(nvm.relay.Function([x], body))).functions
    assert function.lines[-1].equal_to == "axis 0 of %x"
