"""Partitioning for external backends: golden texts, and what they don't show."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.fold_constant import FOLD_CONSTANT
from nimblevm.compiler.passes.partition import PARTITION
from nimblevm.driver import evaluate_call
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import IRModule
from nimblevm.relay.parser import parse_module
from nimblevm.relay.printer import astext
from nimblevm.relay.structural import structural_equal
from tests.compiler.externals import EXTERNALS

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
