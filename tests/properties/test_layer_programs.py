"""Folding scales, flattening convolutions, sharing casts and choosing precisions keep values and types of random
networks, and Defunctionalization those of all random programs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import nimblevm as nvm
from nimblevm.compiler.transform import KEEP_ORIG_OUTPUT_DTYPE
from nimblevm.driver import bind_params
from nimblevm.errors import NimbleError
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.module import IRModule
from nimblevm.relay.structural import structural_equal
from nimblevm.tvm.relay import transform
from tests.properties.compare import assert_same
from tests.properties.examples import examples
from tests.properties.extended import extended_programs
from tests.properties.layers import network
from tests.properties.programs import Program, programs

FEW = examples(4)
MANY = examples(100)


def folded(mod: IRModule) -> IRModule:
    return transform.Sequential([transform.FoldScaleAxis(), transform.CanonicalizeCast()], 3)(mod)


def mixed(mod: IRModule) -> IRModule:
    with transform.PassContext(config={KEEP_ORIG_OUTPUT_DTYPE: True}):
        return transform.ToMixedPrecision("float16", 0)(mod)


def first_order(mod: IRModule) -> IRModule:
    new = mod.shallow_copy()
    new["main"] = transform.Defunctionalization(new["main"], new)
    return infer_type(new)


PASSES: dict[str, tuple[Callable[[IRModule], IRModule], float]] = {
    "ForwardFoldScaleAxis": (transform.ForwardFoldScaleAxis(), 1e-4),
    "BackwardFoldScaleAxis": (transform.BackwardFoldScaleAxis(), 1e-4),
    "FoldScaleAxis": (transform.FoldScaleAxis(), 1e-4),
    "FlattenAtrousConv": (transform.FlattenAtrousConv(), 1e-4),
    "CanonicalizeCast": (transform.CanonicalizeCast(), 0),
    "ToMixedPrecision": (mixed, 3e-2),
    "all": (lambda mod: mixed(folded(transform.FlattenAtrousConv()(mod))), 3e-2),
}
"""Name -> (pass, how far from the largest element a value may be)."""


def assert_near(got: Any, expected: Any, tolerance: float) -> None:
    if isinstance(expected, tuple):
        for one, other in zip(got, expected, strict=True):
            assert_near(one, other, tolerance)
        return
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    largest = float(np.abs(expected).max(initial=1))
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * largest)


def check(seeds: range) -> dict[str, int]:
    """How many networks each pass changed."""
    changed = dict.fromkeys(PASSES, 0)
    for seed in seeds:
        case = network(random.Random(seed))
        mod = nvm.relay.parse(case.text, source_name=f"{seed}.rly")
        mod = infer_type(bind_params(mod, case.weights))
        expected = evaluate(mod, case.args)
        for name, (apply, tolerance) in PASSES.items():
            new = apply(mod)
            changed[name] += not structural_equal(new, transform.ToGraphNormalForm()(mod))
            try:
                assert nvm.relay.well_formed(new)
                assert structural_equal(new["main"].checked_type, mod["main"].checked_type)
                assert_near(evaluate(new, case.args), expected, tolerance)
            except (AssertionError, NimbleError) as error:
                error.add_note(f"{name} changed\n{case.text}\ninto\n{new}")
                raise
    return changed


def test_networks() -> None:
    changed = check(range(24))
    assert all(changed.values()), changed


@pytest.mark.slow
def test_more_networks() -> None:
    check(range(100, 400))


def check_program(program: Program) -> None:
    """Any program: one that fails may do so elsewhere, or not at all; the passes bring no failure."""
    mod = infer_type(nvm.relay.parse(program.text, source_name="random.rly"))
    try:
        expected = evaluate(mod, program.args)
    except NimbleError:
        return
    for name, apply, tolerance in (
        ("folding", folded, None),
        ("ToMixedPrecision", mixed, 2e-2),
        ("Defunctionalization", first_order, None),
    ):
        new = apply(mod)
        try:
            assert nvm.relay.well_formed(new)
            assert structural_equal(new["main"].checked_type, mod["main"].checked_type)
            assert_same(evaluate(new, program.args), expected, tolerance)
        except (AssertionError, NimbleError) as error:
            error.add_note(f"{name} changed\n{program.text}\ninto\n{new}")
            raise


@FEW
@given(program=programs())
def test_programs(program: Program) -> None:
    check_program(program)


@FEW
@given(program=extended_programs(failing=True))
def test_programs_with_sharing_and_effects(program: Program) -> None:
    check_program(program)


@pytest.mark.slow
@MANY
@given(program=programs())
def test_more_programs(program: Program) -> None:
    check_program(program)


@pytest.mark.slow
@MANY
@given(program=extended_programs(failing=True))
def test_more_programs_with_sharing_and_effects(program: Program) -> None:
    check_program(program)
