"""Partitioning for external backends: what golden texts don't show."""

from __future__ import annotations

from typing import Any

import pytest

from nimblevm.compiler.external import External
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.partition import PARTITION
from nimblevm.driver import evaluate_call
from nimblevm.errors import CompileError
from nimblevm.relay.dataflow_pattern import is_op, wildcard
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Expr, Function
from nimblevm.relay.parser import parse_module
from nimblevm.relay.visitor import post_order
from nimblevm.tvm.relay.transform import MergeComposite
from tests.compiler.externals import EXTERNALS, is_float32


@pytest.mark.parametrize("names", [(), ("merging",)])
def test_without_regions_the_module_is_returned_itself(names: tuple[str, ...]) -> None:
    """Nobody is asked, or what is asked takes no tanh of float64."""
    mod = infer_type(
        parse_module("""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float64]) { tanh(%x) }""")
    )
    externals = tuple(EXTERNALS[name] for name in names)
    assert PARTITION(mod, PassContext(verify=True, externals=externals)) is mod


def test_merge_composite() -> None:
    """TVM's pass: rows in order, nothing inside of an earlier row's function."""
    mod = parse_module("""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %w: Tensor[(4, 4), float32]) {
  nn.dense(nn.relu(nn.dense(%x, %w)), %w)
}""")
    dense = is_op("nn.dense")(wildcard(), wildcard())
    table: list[Any] = [("a.dense_relu", is_op("nn.relu")(dense)), ("a.dense", dense, is_float32)]
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
    given: dict[str, Any] = {"name": "a", "patterns": (), "codegen": lambda region: None}
    with pytest.raises(ValueError, match="named by letters"):
        External(**{**given, field: "a,b"})
