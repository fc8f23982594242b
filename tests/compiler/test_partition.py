"""Partitioning for external backends: golden texts, and what they don't show."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimblevm.compiler.external import External
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.fold_constant import FOLD_CONSTANT
from nimblevm.compiler.passes.partition import PARTITION
from nimblevm.driver import evaluate_call
from nimblevm.errors import CompileError
from nimblevm.relay.dataflow_pattern import is_op, wildcard
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Expr, Function, IRModule
from nimblevm.relay.parser import parse_module
from nimblevm.relay.printer import astext
from nimblevm.relay.structural import structural_equal
from nimblevm.relay.visitor import post_order
from nimblevm.tvm.relay.transform import MergeComposite
from tests.compiler.externals import EXTERNALS, is_float32

CASES = sorted((Path(__file__).parent.parent / "golden" / "partition").glob("*.rly"))


def run(text: str, head: str, name: str) -> tuple[IRModule, IRModule]:
    marks = dict(
        line.removeprefix("// ").split(": ", 1) for line in head.splitlines() if ": " in line
    )
    names = marks.get("EXTERNALS", "").split(", ")
    externals = tuple(EXTERNALS[n] for n in names if n)
    context = PassContext(verify=True, evaluate=evaluate_call, externals=externals)
    mod = infer_type(parse_module(text, name))
    if marks.get("NEEDS") == "fold_constant":
        mod = FOLD_CONSTANT(mod, context)
    return mod, PARTITION(mod, context)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    head, rest = path.read_text().split("// BEFORE\n")
    text, after = rest.split("// AFTER\n")
    before, result = run(text, head, path.name)
    printed = astext(result)
    if request.config.getoption("--update-golden"):
        path.write_text(f"{head}// BEFORE\n{text}// AFTER\n{printed.rstrip()}\n")
        return
    expected = infer_type(parse_module(after, path.name))
    same = structural_equal(result, expected)
    assert same, f"--- got\n{printed}\n--- expected\n{after}"
    if path.stem.startswith("nothing"):
        assert result is before


def test_merge_composite() -> None:
    """TVM's pass: rows in order, nothing inside of an earlier row's function."""
    mod = parse_module("""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %w: Tensor[(4, 4), float32]) {
  nn.dense(nn.relu(nn.dense(%x, %w)), %w)
}""")
    dense = is_op("nn.dense")(wildcard(), wildcard())
    table = [("a.dense_relu", is_op("nn.relu")(dense)), ("a.dense", dense, is_float32)]
    result = MergeComposite(table)(mod)
    found = {
        n.attrs["Composite"]: n.attrs["PartitionedFromPattern"]
        for n in post_order(result["main"].body)
        if isinstance(n, Function)
    }
    assert found == {"a.dense_relu": "nn.dense_nn.relu_", "a.dense": "nn.dense_"}
    assert MergeComposite([("a.tanh", is_op("tanh")(wildcard()))])(mod)["main"].body is not None


def test_a_check_that_raises_is_named() -> None:
    """With the operator that it looked at."""

    def check(root: Expr) -> bool:
        raise ArithmeticError("odd")

    table = [("t.tanh", is_op("tanh")(wildcard()), check)]
    external = External("testing", table, lambda region: None)
    mod = infer_type(
        parse_module(
            '#[version = "0.0.5"]\ndef @main(%x: Tensor[(4), float32]) { tanh(%x) }', "m.rly"
        )
    )
    context = PassContext(evaluate=evaluate_call, externals=(external,))
    with pytest.raises(
        CompileError, match=r"m\.rly:2:39: check of .* testing, pattern t\.tanh: .*odd"
    ):
        PARTITION(mod, context)


@pytest.mark.parametrize("field", ["name", "runtime", "device"])
def test_names(field: str) -> None:
    with pytest.raises(ValueError, match="named by letters"):
        External(**{"name": "a", "patterns": (), "codegen": lambda region: None, field: "a,b"})
