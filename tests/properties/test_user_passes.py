"""The passes that users call keep the meaning of random programs: oracle before = oracle after."""

from __future__ import annotations

import pytest
from hypothesis import given

import nimblevm as nvm
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.eta_expand import ETA_EXPAND
from nimblevm.compiler.passes.partial_eval import PARTIAL_EVAL
from nimblevm.compiler.passes.to_anf import TO_ANF
from nimblevm.compiler.passes.to_graph import TO_GRAPH
from nimblevm.errors import NimbleError
from nimblevm.relay import machine
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.module import IRModule
from tests.properties.compare import assert_same
from tests.properties.examples import examples
from tests.properties.extended import extended_programs
from tests.properties.programs import Program, programs

FEW = examples(4)
MANY = examples(100)

ORACLE = machine.Program(IRModule())
CONTEXT = PassContext(
    evaluate=lambda call, values: ORACLE.apply(call.op, values, call.attrs)  # type: ignore[arg-type]
)
PASSES = (
    (PARTIAL_EVAL,),
    (TO_GRAPH,),
    (ETA_EXPAND,),
    (TO_ANF, TO_GRAPH),
    (PARTIAL_EVAL, TO_GRAPH),
)


def check(program: Program) -> None:
    """A pass may remove a failure (what is dead may be gone), but brings none."""
    mod = nvm.relay.parse(program.text, source_name="random.rly")
    try:
        expected = evaluate(mod, program.args)
    except NimbleError:
        return
    mod = infer_type(mod)
    for steps in PASSES:
        new = mod
        for step in steps:
            new = infer_type(step(new, CONTEXT))
        names = ", ".join(step.name for step in steps)
        assert nvm.relay.well_formed(new), f"{names} broke\n{program.text}\n{new}"
        try:
            assert_same(evaluate(new, program.args), expected)
        except (AssertionError, NimbleError) as error:
            error.add_note(f"{names} changed\n{program.text}\ninto\n{new}")
            raise


@FEW
@given(program=programs())
def test_random_programs(program: Program) -> None:
    check(program)


@FEW
@given(program=extended_programs(failing=True))
def test_random_programs_with_sharing_and_effects(program: Program) -> None:
    check(program)


@pytest.mark.slow
@MANY
@given(program=programs())
def test_more_random_programs(program: Program) -> None:
    check(program)


@pytest.mark.slow
@MANY
@given(program=extended_programs(failing=True))
def test_more_random_programs_with_sharing_and_effects(program: Program) -> None:
    check(program)
