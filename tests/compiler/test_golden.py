"""Golden files of the passes: tests/golden/<pass>/<case>.rly holds a program before and after the pass.

Parts: `// BEFORE` and `// AFTER`. The form that the pass needs (A-normal form, groups...) is made by the passes before it
that a `// NEEDS: name, name` line lists; `// DEVICES: name` says what the program is compiled for beside the host,
`// EXTERNALS: name, name` for which backends of tests/compiler/externals.py.
`pytest --update-golden` rewrites the AFTER parts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nimblevm.compiler.devices import Devices
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.passes.backward_fold_scale_axis import BACKWARD_FOLD_SCALE_AXIS
from nimblevm.compiler.passes.batch_leaves import BATCH_LEAVES
from nimblevm.compiler.passes.batch_levels import BATCH_LEVELS
from nimblevm.compiler.passes.canonicalize_cast import CANONICALIZE_CAST
from nimblevm.compiler.passes.canonicalize_ops import CANONICALIZE_OPS
from nimblevm.compiler.passes.canonicalize_qnn import CANONICALIZE_QNN
from nimblevm.compiler.passes.combine_parallel import (
    COMBINE_BATCH_MATMUL,
    COMBINE_CONV2D,
    COMBINE_DENSE,
    COMBINE_UNITS,
)
from nimblevm.compiler.passes.combine_parallel_dense import COMBINE_PARALLEL_DENSE
from nimblevm.compiler.passes.cse import CSE
from nimblevm.compiler.passes.dead_code import DEAD_CODE
from nimblevm.compiler.passes.defuse_ops import DEFUSE_OPS
from nimblevm.compiler.passes.div_to_mul import DIV_TO_MUL
from nimblevm.compiler.passes.eta_expand import ETA_EXPAND
from nimblevm.compiler.passes.fake_quantization_to_integer import (
    FAKE_QUANTIZATION_QAT,
    FAKE_QUANTIZATION_TO_INTEGER,
)
from nimblevm.compiler.passes.fast_math import FAST_MATH
from nimblevm.compiler.passes.find_appends import FIND_APPENDS
from nimblevm.compiler.passes.flatten_atrous_conv import FLATTEN_ATROUS_CONV
from nimblevm.compiler.passes.fold_batch_norm import FOLD_BATCH_NORM
from nimblevm.compiler.passes.fold_constant import FOLD_CONSTANT
from nimblevm.compiler.passes.fold_explicit_padding import FOLD_EXPLICIT_PADDING
from nimblevm.compiler.passes.forward_fold_scale_axis import FORWARD_FOLD_SCALE_AXIS
from nimblevm.compiler.passes.fuse_levels import FUSE_LEVELS
from nimblevm.compiler.passes.fuse_loops import FUSE_LOOPS
from nimblevm.compiler.passes.fuse_ops import FUSE_OPS
from nimblevm.compiler.passes.hoist_projection import HOIST_PROJECTION
from nimblevm.compiler.passes.inline import INLINE
from nimblevm.compiler.passes.insert_checks import INSERT_CHECKS
from nimblevm.compiler.passes.join_inputs import JOIN_INPUTS
from nimblevm.compiler.passes.lambda_lift import LAMBDA_LIFT
from nimblevm.compiler.passes.manifest_alloc import MANIFEST_ALLOC
from nimblevm.compiler.passes.move_projections import MOVE_PROJECTIONS
from nimblevm.compiler.passes.name_effects import NAME_EFFECTS
from nimblevm.compiler.passes.order_weights import ORDER_WEIGHTS
from nimblevm.compiler.passes.pack_convolutions import PACK_CONVOLUTIONS
from nimblevm.compiler.passes.partial_eval import PARTIAL_EVAL
from nimblevm.compiler.passes.partition import PARTITION
from nimblevm.compiler.passes.plan_devices import PLAN_DEVICES
from nimblevm.compiler.passes.plan_memory import PLAN_MEMORY
from nimblevm.compiler.passes.project_tables import PROJECT_TABLES
from nimblevm.compiler.passes.shape_functions import SHAPE_FUNCTIONS
from nimblevm.compiler.passes.simplify import SIMPLIFY
from nimblevm.compiler.passes.simplify_inference import SIMPLIFY_INFERENCE
from nimblevm.compiler.passes.specialize_loops import SPECIALIZE_LOOPS
from nimblevm.compiler.passes.split_args import SPLIT_ARGS
from nimblevm.compiler.passes.split_calls import SPLIT_CALLS
from nimblevm.compiler.passes.split_inputs import SPLIT_INPUTS
from nimblevm.compiler.passes.split_loops import SPLIT_LOOPS
from nimblevm.compiler.passes.split_products import SPLIT_PRODUCTS
from nimblevm.compiler.passes.to_anf import TO_ANF
from nimblevm.compiler.passes.to_basic_block import TO_BASIC_BLOCK
from nimblevm.compiler.passes.to_graph import TO_GRAPH
from nimblevm.compiler.passes.to_mixed_precision import TO_MIXED_PRECISION
from nimblevm.compiler.passes.winograd import WINOGRAD
from nimblevm.driver import evaluate_call
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.module import IRModule
from nimblevm.relay.parser import parse_module
from nimblevm.relay.printer import astext
from nimblevm.relay.structural import structural_equal
from tests.compiler.externals import EXTERNALS

GOLDEN = Path(__file__).parent.parent / "golden"
PASSES: dict[str, Pass] = {
    p.name: p
    for p in (
        NAME_EFFECTS, INSERT_CHECKS, INLINE, SIMPLIFY, FOLD_CONSTANT, CSE, DEAD_CODE, SHAPE_FUNCTIONS, TO_ANF, LAMBDA_LIFT,
        FIND_APPENDS, FUSE_OPS, MANIFEST_ALLOC, FUSE_LOOPS, MOVE_PROJECTIONS, FUSE_LEVELS, PLAN_MEMORY, TO_GRAPH, SIMPLIFY_INFERENCE, ETA_EXPAND, PARTIAL_EVAL,
        SPLIT_INPUTS, HOIST_PROJECTION, SPLIT_PRODUCTS, SPLIT_LOOPS, BATCH_LEAVES, BATCH_LEVELS, JOIN_INPUTS,
        SPECIALIZE_LOOPS, PROJECT_TABLES, FOLD_BATCH_NORM, PACK_CONVOLUTIONS, WINOGRAD, ORDER_WEIGHTS, PLAN_DEVICES, PARTITION,
        COMBINE_PARALLEL_DENSE, CANONICALIZE_OPS, DEFUSE_OPS, DIV_TO_MUL, FAST_MATH, FOLD_EXPLICIT_PADDING, SPLIT_ARGS,
        TO_BASIC_BLOCK, COMBINE_DENSE, COMBINE_UNITS, COMBINE_BATCH_MATMUL, COMBINE_CONV2D,
        CANONICALIZE_QNN, SPLIT_CALLS, BACKWARD_FOLD_SCALE_AXIS, FORWARD_FOLD_SCALE_AXIS,
        FLATTEN_ATROUS_CONV, CANONICALIZE_CAST, TO_MIXED_PRECISION,
        FAKE_QUANTIZATION_TO_INTEGER, FAKE_QUANTIZATION_QAT,
    )
}  # fmt: skip
CASES = sorted(path for name in PASSES for path in (GOLDEN / name).glob("*.rly"))


def split(text: str) -> tuple[str, str, str]:
    """(head with comments, program before, program after)."""
    head, rest = text.split("// BEFORE\n")
    before, after = rest.split("// AFTER\n")
    return head, before, after


def marked(head: str, mark: str) -> list[str]:
    """The names of a line `// MARK: name, name`."""
    lines = (
        line.removeprefix(f"// {mark}:")
        for line in head.splitlines()
        if line.startswith(f"// {mark}:")
    )
    return [name.strip() for line in lines for name in line.split(",")]


def run(path: Path) -> tuple[IRModule, IRModule]:
    head, before, _ = split(path.read_text())
    devices = Devices()
    for name in marked(head, "DEVICES"):
        devices = Devices(("cpu", name), 1, entries=frozenset(("main",)))
    externals = tuple(EXTERNALS[name] for name in marked(head, "EXTERNALS"))
    context = PassContext(verify=True, evaluate=evaluate_call, devices=devices, externals=externals)
    mod = infer_type(parse_module(before, path.name))
    for name in marked(head, "NEEDS"):
        mod = PASSES[name](mod, context)
    original = dict(mod.functions)
    result = PASSES[path.parent.name](mod, context)
    assert dict(mod.functions) == original, "the pass changed its argument"
    return mod, result


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    before, result = run(path)
    head, text, after = split(path.read_text())
    printed = astext(result)
    if request.config.getoption("--update-golden"):
        path.write_text(f"{head}// BEFORE\n{text}// AFTER\n{printed.rstrip()}\n")
        return
    expected = infer_type(parse_module(after, path.name))
    same = structural_equal(result, expected)
    assert same, f"--- before\n{before!r}\n--- got\n{printed}\n--- expected\n{after}"


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_has_a_case_where_it_does_nothing(name: str) -> None:
    unchanged = [p for p in CASES if p.parent.name == name and p.stem.startswith("nothing")]
    assert unchanged, f"tests/golden/{name} needs a case nothing*.rly"
    for path in unchanged:
        before, result = run(path)
        assert structural_equal(before, result)
